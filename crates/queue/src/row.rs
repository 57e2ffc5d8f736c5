use trellis_types::{
    JobId, NodeId, OriginId, Priority, Run, Seconds, SessionId, Timestamp, TubeName,
};

use crate::Key;

/// Names a tube from its creation to its end; a tube created again has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TubeId(pub u64);

/// One row of the machine's image. All rows together are the whole replicated state but the
/// bodies; [`Machine::load`](crate::Machine::load) builds the same machine from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// Counters, time, settings.
    Meta(MetaRow),
    /// A tube.
    Tube(TubeRow),
    /// A job.
    Job(JobRow),
    /// A node's origins.
    Origin(OriginRow),
    /// A parked reserve.
    Wait(WaitRow),
}

/// What is there once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaRow {
    /// Cluster time of the last entry.
    pub now: Timestamp,
    /// The id that the next put gets.
    pub next_job: u64,
    /// The id that the next new tube gets.
    pub next_tube: u64,
    /// Next number for burials, reservations and waits: what orders them.
    pub next_sequence: u64,
    /// Accepted puts since the cluster was formed.
    pub total_jobs: u64,
    /// TTR expiries since the cluster was formed.
    pub job_timeouts: u64,
    /// See [`Setting`](crate::Setting).
    pub puts_refused: bool,
    /// See [`Setting`](crate::Setting).
    pub jobs_max: u64,
    /// See [`Setting`](crate::Setting).
    pub job_bytes_max: u64,
    /// See [`Setting`](crate::Setting).
    pub tubes_max: u64,
    /// See [`Setting`](crate::Setting).
    pub watch_names_max: u32,
    /// See [`Setting`](crate::Setting).
    pub feature_level: u32,
    /// Node ids that are never accepted again, ascending.
    pub retired: Vec<NodeId>,
}

/// A tube that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TubeRow {
    /// Its key.
    pub id: TubeId,
    /// Its name, unique among tubes.
    pub name: TubeName,
    /// Origins that have sessions using or watching it, ascending.
    pub references: Vec<OriginId>,
    /// Length of the running pause; 0 if none.
    pub pause: Seconds,
    /// When the running pause ends; meaningless without one.
    pub pause_until: Timestamp,
    /// Accepted puts since the tube was created.
    pub total_jobs: u64,
    /// Deleted jobs since the tube was created.
    pub deletes: u64,
    /// Successful pauses since the tube was created.
    pub pauses: u64,
}

/// A job's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Its key.
    pub id: JobId,
    /// Its place among jobs of equal priority: its id for a put.
    pub order: u64,
    /// Its tube, for ever.
    pub tube: TubeId,
    /// Urgency.
    pub priority: Priority,
    /// The delay last requested.
    pub delay: Seconds,
    /// How long a worker may hold it, at least 1 s.
    pub ttr: Seconds,
    /// When it was put.
    pub created: Timestamp,
    /// Where it is in its life.
    pub state: JobState,
    /// Reservations so far: the fencing token of a hold.
    pub reserves: u32,
    /// TTR expiries so far.
    pub timeouts: u32,
    /// Releases so far.
    pub releases: u32,
    /// Burials so far.
    pub buries: u32,
    /// Kicks so far.
    pub kicks: u32,
    /// Length of the body.
    pub body_bytes: u32,
    /// CRC-32C of the body.
    pub body_crc: u32,
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// May be reserved.
    Ready,
    /// Becomes ready at `until`.
    Delayed {
        /// When.
        until: Timestamp,
    },
    /// Held.
    Reserved {
        /// By whom.
        holder: SessionId,
        /// Its TTR is over when now > deadline.
        deadline: Timestamp,
        /// Orders the holds of one session.
        sequence: u64,
    },
    /// Laid aside.
    Buried {
        /// Orders the burials of one tube.
        sequence: u64,
    },
}

/// What is known of one node's origins. Stays when an origin ends, so that runs never repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginRow {
    /// Its key.
    pub node: NodeId,
    /// The highest run ever opened.
    pub highest_run: Run,
    /// Whether that run is open.
    pub open: bool,
    /// The last batch of the open run that was carried out.
    pub last_seq: u64,
    /// Whether its waiters are passed over.
    pub suspended: bool,
}

/// A parked reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// Its key.
    pub session: SessionId,
    /// Its place in line.
    pub sequence: u64,
    /// What it watches. A tube that does not exist (any more) is waited for by name.
    pub tubes: Vec<TubeName>,
    /// When it times out; `None` is never.
    pub until: Option<Timestamp>,
}

impl Row {
    /// The key of this row.
    pub fn key(&self) -> Key {
        match self {
            Self::Meta(_) => Key::Meta,
            Self::Tube(row) => Key::Tube(row.id),
            Self::Job(row) => Key::Job(row.id),
            Self::Origin(row) => Key::Origin(row.node),
            Self::Wait(row) => Key::Wait(row.session),
        }
    }
}
