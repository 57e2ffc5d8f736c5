use trellis_types::{ConnectionId, JobId, Priority, Seconds, TubeName};

use bytes::Bytes;
use trellis_node::Call;

use super::Rule;

/// Nodes of a world.
pub const NODES: usize = 2;
/// Clients of each node.
pub const CLIENTS: usize = 2;
/// Time-outs of reserves start here, so that each names its command; a leap of time is longer.
pub(crate) const TIMEOUT_BASE: u32 = 10_000;
/// Longer than any TTR or time-out of a world, in milliseconds.
pub(crate) const LEAP_MS: u64 = 100_000_000;

/// What a client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// A put.
    Put,
    /// A reserve that may park.
    Reserve,
    /// A `reserve-with-timeout 0`.
    Poll,
    /// A `reserve-job`.
    ReserveJob(u64),
    /// A delete.
    Delete(u64),
    /// A release.
    Release(u64),
    /// A `use` of another tube.
    Use,
    /// A `quit`.
    Quit,
}

impl Word {
    /// As a call of the client's command number `index`, which it carries where there is room.
    pub(crate) fn call(self, node: usize, client: usize, index: usize) -> Call {
        match self {
            Self::Put => Call::Put {
                priority: Priority(0),
                delay: Seconds(0),
                ttr: Seconds(TIMEOUT_BASE * 4),
                body: Bytes::from(vec![node as u8, client as u8, index as u8]),
            },
            Self::Reserve => Call::Reserve {
                timeout: Some(Seconds(TIMEOUT_BASE + index as u32)),
            },
            Self::Poll => Call::Reserve {
                timeout: Some(Seconds(0)),
            },
            Self::ReserveJob(job) => Call::ReserveJob(JobId(job)),
            Self::Delete(job) => Call::Delete(JobId(job)),
            Self::Release(job) => Call::Release {
                job: JobId(job),
                priority: Priority(0),
                delay: Seconds(0),
            },
            Self::Use => Call::Use(other_tube()),
            Self::Quit => Call::Quit,
        }
    }

    /// Whether it always goes through the log as a command of its session.
    pub(crate) fn is_logged(self) -> bool {
        !matches!(self, Self::Poll | Self::Use | Self::Quit)
    }
}

/// The tube of [`Word::Use`].
pub(crate) fn other_tube() -> TubeName {
    TubeName::parse(b"a").unwrap_or_else(|_| TubeName::default_tube())
}

/// The session of an origin's own commands.
pub(crate) const NOBODY: ConnectionId = ConnectionId(0);

/// How often each fault may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Elections although there is a leader.
    pub elections: u8,
    /// Crashes of a node.
    pub crashes: u8,
    /// Breaks of a stream.
    pub breaks: u8,
    /// Proposals that fail, in the log or not.
    pub refusals: u8,
    /// Snapshots that replace a node's state.
    pub snapshots: u8,
    /// Times that a leader loses sight of an origin.
    pub absences: u8,
    /// Suspensions of an absent origin.
    pub suspensions: u8,
    /// Expiries of an absent origin.
    pub expiries: u8,
    /// Fences for want of a leader.
    pub fences: u8,
    /// Leaps of time, over all TTRs and time-outs.
    pub leaps: u8,
    /// Disconnects.
    pub hang_ups: u8,
    /// Half-closes, whether the input is used up or not.
    pub half_closes: u8,
    /// Late OpenOrigins.
    pub late_opens: u8,
    /// Commit time-outs on a node.
    pub overdue: u8,
}

/// A small world to be explored.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// What each client of each node says.
    pub scripts: [[Vec<Word>; CLIENTS]; NODES],
    /// What may go wrong.
    pub faults: Faults,
    /// Commands of one client that may be unanswered.
    pub pipeline: usize,
    /// Entries of one node that may be uncommitted.
    pub log: usize,
    /// The rule that is dropped, if any.
    pub dropped: Option<Rule>,
}

impl Setup {
    pub(crate) fn drops(&self, rule: Rule) -> bool {
        self.dropped == Some(rule)
    }

    /// Whether nothing can happen to sessions of that node.
    pub(crate) fn is_idle(&self, node: usize) -> bool {
        self.scripts[node].iter().all(Vec::is_empty) && self.faults.snapshots == 0
    }
}
