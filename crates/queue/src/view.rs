use trellis_types::{JobId, NodeId, OriginId, Priority, Run, Seconds, SessionId, TubeName};

/// What `stats-job` tells (protocol specification, 7.4); times are relative to the `now` asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// The job.
    pub id: JobId,
    /// Its tube.
    pub tube: TubeName,
    /// `ready`, `delayed`, `reserved` or `buried`.
    pub state: &'static str,
    /// Who holds it.
    pub holder: Option<SessionId>,
    /// Its urgency.
    pub priority: Priority,
    /// Whole seconds since the put.
    pub age_seconds: u64,
    /// The delay last requested.
    pub delay: Seconds,
    /// Its TTR.
    pub ttr: Seconds,
    /// Whole seconds to the TTR deadline or to maturity, else 0.
    pub time_left_seconds: u64,
    /// Reservations.
    pub reserves: u32,
    /// TTR expiries.
    pub timeouts: u32,
    /// Releases.
    pub releases: u32,
    /// Burials.
    pub buries: u32,
    /// Kicks.
    pub kicks: u32,
    /// Length of its body.
    pub body_bytes: u32,
    /// CRC-32C of its body.
    pub body_crc: u32,
}

/// The replicated part of `stats-tube` (7.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TubeView {
    /// The tube.
    pub name: TubeName,
    /// Ready jobs with priority < 1024.
    pub urgent: u64,
    /// Ready jobs.
    pub ready: u64,
    /// Held jobs.
    pub reserved: u64,
    /// Delayed jobs.
    pub delayed: u64,
    /// Buried jobs.
    pub buried: u64,
    /// Accepted puts since the tube was created.
    pub total_jobs: u64,
    /// Parked reserves that watch it.
    pub waiting: u64,
    /// Deleted jobs since the tube was created.
    pub deletes: u64,
    /// Successful pauses since the tube was created.
    pub pauses: u64,
    /// Length of the running pause; 0 if none.
    pub pause: Seconds,
    /// Whole seconds to its end; 0 if none.
    pub pause_left_seconds: u64,
}

/// The replicated part of `stats` (7.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerView {
    /// Ready jobs with priority < 1024.
    pub urgent: u64,
    /// Ready jobs.
    pub ready: u64,
    /// Held jobs.
    pub reserved: u64,
    /// Delayed jobs.
    pub delayed: u64,
    /// Buried jobs.
    pub buried: u64,
    /// Body bytes of all jobs.
    pub job_bytes: u64,
    /// TTR expiries.
    pub job_timeouts: u64,
    /// Accepted puts.
    pub total_jobs: u64,
    /// Existing tubes.
    pub tubes: u64,
    /// Parked reserves.
    pub waiting: u64,
    /// Whether puts are refused for want of disk.
    pub puts_refused: bool,
    /// The replicated feature level.
    pub feature_level: u32,
}

/// What is known of a node's origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginView {
    /// The node.
    pub node: NodeId,
    /// The highest run ever opened.
    pub highest_run: Run,
    /// The open origin, if there is one.
    pub open: Option<OriginId>,
    /// The last batch of it that was carried out.
    pub last_seq: u64,
    /// Whether its waiters are passed over.
    pub suspended: bool,
}
