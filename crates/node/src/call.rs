use bytes::Bytes;
use trellis_types::{JobId, Priority, Seconds, TubeName};
use trellis_wire::beanstalk::Counted;

/// One command of a client as a door hands it in. Commands of one connection take effect, and are
/// answered, in the order in which they were submitted.
///
/// Source: protocol specification, section 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A new job into the used tube.
    Put {
        /// Its urgency.
        priority: Priority,
        /// How long it stays delayed; 0 makes it ready at once.
        delay: Seconds,
        /// How long a worker may hold it; 0 becomes 1.
        ttr: Seconds,
        /// Its opaque content.
        body: Bytes,
    },
    /// Makes a tube the used one.
    Use(TubeName),
    /// Adds a tube to the watch list.
    Watch(TubeName),
    /// Takes a tube off the watch list.
    Ignore(TubeName),
    /// The best ready job of the watched tubes, or a wait for one.
    Reserve {
        /// How long to wait: so many seconds, or for ever (`None`).
        timeout: Option<Seconds>,
    },
    /// That very job.
    ReserveJob(JobId),
    /// Ends a job.
    Delete(JobId),
    /// Gives a held job back.
    Release {
        /// Which.
        job: JobId,
        /// Its new urgency.
        priority: Priority,
        /// How long it stays delayed.
        delay: Seconds,
    },
    /// Lays a held job aside.
    Bury {
        /// Which.
        job: JobId,
        /// Its new urgency.
        priority: Priority,
    },
    /// Starts a hold's TTR again.
    Touch(JobId),
    /// Makes buried, else delayed, jobs of the used tube ready.
    Kick {
        /// At most so many.
        bound: u32,
    },
    /// Makes one buried or delayed job ready.
    KickJob(JobId),
    /// Shows a job.
    Peek(JobId),
    /// Shows the next ready job of the used tube.
    PeekReady,
    /// Shows the delayed job of the used tube that matures first.
    PeekDelayed,
    /// Shows the job of the used tube that was buried first.
    PeekBuried,
    /// What is known of a job.
    StatsJob(JobId),
    /// What is known of a tube.
    StatsTube(TubeName),
    /// What is known of the cluster and this node.
    Stats,
    /// All tubes.
    ListTubes,
    /// The watch list.
    ListTubesWatched,
    /// The used tube.
    ListTubeUsed,
    /// Holds back a tube's ready jobs.
    PauseTube {
        /// Which.
        tube: TubeName,
        /// For how long; 0 ends a pause.
        delay: Seconds,
    },
    /// Ends the connection when everything before it is answered.
    Quit,
    /// A refusal that the codec decided: answered in order with
    /// [`Answer::Refused`](crate::Answer::Refused) and the same tag.
    Refused {
        /// The door's own word for it.
        tag: u32,
        /// The counter that it raises all the same (4.5).
        counts: Option<Counted>,
        /// Whether it makes the connection a producer (edge 47).
        producer: bool,
    },
}

impl Call {
    /// The counter that this call raises when its turn comes, whatever its outcome.
    pub fn counted(&self) -> Option<Counted> {
        Some(match self {
            Self::Put { .. } => Counted::Put,
            Self::Use(_) => Counted::Use,
            Self::Watch(_) => Counted::Watch,
            Self::Ignore(_) => Counted::Ignore,
            Self::Reserve { timeout: None } => Counted::Reserve,
            Self::Reserve { timeout: Some(_) } => Counted::ReserveWithTimeout,
            Self::Delete(_) => Counted::Delete,
            Self::Release { .. } => Counted::Release,
            Self::Bury { .. } => Counted::Bury,
            Self::Touch(_) => Counted::Touch,
            Self::Kick { .. } => Counted::Kick,
            Self::Peek(_) => Counted::Peek,
            Self::PeekReady => Counted::PeekReady,
            Self::PeekDelayed => Counted::PeekDelayed,
            Self::PeekBuried => Counted::PeekBuried,
            Self::StatsJob(_) => Counted::StatsJob,
            Self::StatsTube(_) => Counted::StatsTube,
            Self::Stats => Counted::Stats,
            Self::ListTubes => Counted::ListTubes,
            Self::ListTubesWatched => Counted::ListTubesWatched,
            Self::ListTubeUsed => Counted::ListTubeUsed,
            Self::PauseTube { .. } => Counted::PauseTube,
            Self::Refused { counts, .. } => return *counts,
            Self::ReserveJob(_) | Self::KickJob(_) | Self::Quit => return None,
        })
    }

    /// Bytes that this call keeps in memory while it is not answered, roughly.
    pub(crate) fn bytes(&self) -> usize {
        const FIXED: usize = 64;
        match self {
            Self::Put { body, .. } => FIXED + body.len(),
            _ => FIXED,
        }
    }
}
