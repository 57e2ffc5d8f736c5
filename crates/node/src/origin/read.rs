use std::time::Instant;

use trellis_types::{ConnectionId, JobId, TubeName};

use crate::Call;

/// A read that a connection waits for.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub(crate) connection: ConnectionId,
    pub(crate) slot: u64,
    pub(crate) read: Read,
    /// When it could first be made.
    pub(crate) since: Instant,
}

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Whether these tubes have nothing for a `reserve-with-timeout 0`.
    Poll(Vec<TubeName>),
    Peek(JobId),
    PeekReady(TubeName),
    PeekDelayed(TubeName),
    PeekBuried(TubeName),
    StatsJob(JobId),
    StatsTube(TubeName),
    Stats,
    ListTubes,
}

impl Read {
    /// What a read call reads when `used` is the used tube.
    pub(crate) fn of(call: &Call, used: &TubeName) -> Self {
        match call {
            Call::Peek(job) => Self::Peek(*job),
            Call::PeekReady => Self::PeekReady(used.clone()),
            Call::PeekDelayed => Self::PeekDelayed(used.clone()),
            Call::PeekBuried => Self::PeekBuried(used.clone()),
            Call::StatsJob(job) => Self::StatsJob(*job),
            Call::StatsTube(tube) => Self::StatsTube(tube.clone()),
            Call::ListTubes => Self::ListTubes,
            _ => Self::Stats,
        }
    }
}
