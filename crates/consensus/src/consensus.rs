use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use openraft::storage::RaftLogStorage;
use tokio::sync::watch;
use trellis_queue::Machine;
use trellis_rpc::pb;
use trellis_types::NodeId;

use crate::{
    ConsensusSettings, Listener, Member, Membership, Payload, Position, Role, StateStore,
    Transport, raft::TypeConfig,
};

/// Why Raft could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The timings contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The log or the state cannot be read, or do not fit together.
    #[error("the log and the state cannot be loaded: {0}")]
    Storage(String),
}

/// Why a proposal has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This node does not lead in that term, or a majority has not acknowledged it lately: surely
    /// nothing was appended.
    #[error("not the leader")]
    NotLeader {
        /// Who leads, as far as this node knows.
        leader: Option<NodeId>,
    },
    /// It was appended and leadership was lost: it may still be committed.
    #[error("the fate of the proposal is unknown")]
    Unknown,
    /// Raft does not run.
    #[error("raft has stopped")]
    Stopped,
}

/// Why there is no read index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Ask the leader.
    #[error("not the leader")]
    NotLeader {
        /// Who leads, as far as this node knows.
        leader: Option<NodeId>,
    },
    /// No majority confirmed the leadership in time.
    #[error("no majority answered")]
    NoMajority,
    /// Raft does not run.
    #[error("raft has stopped")]
    Stopped,
}

/// Why the membership did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Ask the leader.
    #[error("not the leader")]
    NotLeader {
        /// Who leads, as far as this node knows.
        leader: Option<NodeId>,
    },
    /// Another change is under way, or it makes no sense now.
    #[error("{0}")]
    Refused(String),
    /// Leadership was lost meanwhile: it may still happen.
    #[error("the fate of the change is unknown")]
    Unknown,
    /// Raft does not run.
    #[error("raft has stopped")]
    Stopped,
}

/// The time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not in time")]
pub struct Elapsed;

/// The fate of one proposal: the index at which this node has applied it.
#[derive(Debug)]
pub struct Receipt;

impl Future for Receipt {
    type Output = Result<u64, ProposeError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        unimplemented!()
    }
}

/// How far Raft is. Indexes are `None` before the first entry.
#[derive(Clone, Debug)]
pub struct RaftMetrics {
    /// The newest term that this node knows.
    pub term: u64,
    /// What it is in it.
    pub role: Role,
    /// The last entry in its log, durable or not.
    pub last_log: Option<u64>,
    /// The last entry that it knows to be committed.
    pub committed: Option<u64>,
    /// The last entry that it has applied.
    pub applied: Option<u64>,
    /// The last entry in its newest snapshot.
    pub snapshot: Option<Position>,
    /// The last entry that is gone from its log.
    pub purged: Option<u64>,
    /// While it leads: every other member.
    pub peers: Vec<PeerProgress>,
}

/// How far a leader knows a member to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgress {
    /// Which.
    pub node: NodeId,
    /// The last entry that surely lies on its disk as on the leader's.
    pub matched: Option<u64>,
    /// How long ago the newest message was sent that it has acknowledged.
    pub acked_age: Option<Duration>,
}

/// Raft on this node. Cheap to clone.
#[derive(Clone)]
pub struct Consensus {
    _inner: Arc<()>,
}

/// Tells what this node knows of time, for its answers to vote requests.
pub type ClockSource = Arc<dyn Fn() -> pb::Clock + Send + Sync>;

#[allow(unused_variables, clippy::unused_async)]
impl Consensus {
    /// Loads state and log, and replays what is committed and not yet in the state. No task of Raft
    /// runs yet and no message of Raft is answered.
    pub async fn build(
        settings: ConsensusSettings,
        me: NodeId,
        log: impl RaftLogStorage<TypeConfig>,
        state: Arc<dyn StateStore>,
        transport: Arc<dyn Transport>,
        listener: Box<dyn Listener>,
    ) -> Result<Self, BuildError> {
        unimplemented!()
    }

    /// Starts Raft. From now on its messages are answered.
    pub fn run(&self) {
        unimplemented!()
    }

    /// What this node is.
    pub fn role(&self) -> watch::Receiver<Role> {
        unimplemented!()
    }

    /// The index of the last applied entry, published after every round of applies. 0 before the
    /// first entry as well as after entry 0, which carries no commands.
    pub fn applied(&self) -> watch::Receiver<u64> {
        unimplemented!()
    }

    /// The last entry in the log, durable or not.
    pub fn last_log(&self) -> Option<Position> {
        unimplemented!()
    }

    /// The index of the last entry that this node knows to be committed; 0 before the first.
    pub fn committed(&self) -> u64 {
        unimplemented!()
    }

    /// The index up to which the local log is durable; 0 before the first entry.
    pub fn flushed(&self) -> u64 {
        unimplemented!()
    }

    /// While this node leads: how long ago it sent the newest message that a majority has
    /// acknowledged. `None` if it does not lead, or nothing was acknowledged yet.
    pub fn quorum_ack_age(&self) -> Option<Duration> {
        unimplemented!()
    }

    /// Appends one entry if this node leads in `term` and a majority has acknowledged it within a
    /// lease. Calls one after the other are appended in that order. The receipt resolves when this
    /// node has applied the entry.
    pub async fn propose(&self, term: u64, payload: Payload) -> Result<Receipt, ProposeError> {
        unimplemented!()
    }

    /// Leader only: the index from which the state may be read. Callers share rounds: one joins
    /// only a round that has not started yet.
    pub async fn read_index(&self) -> Result<u64, ReadError> {
        unimplemented!()
    }

    /// Waits until the entry at `index` is applied.
    pub async fn wait_applied(&self, index: u64, timeout: Duration) -> Result<(), Elapsed> {
        unimplemented!()
    }

    /// Looks at the state between two entries. Short: applies wait.
    pub fn with_machine<R>(&self, look: impl FnOnce(&Machine) -> R) -> R {
        unimplemented!()
    }

    /// The newest membership in the log, committed or not.
    pub fn membership(&self) -> Membership {
        unimplemented!()
    }

    /// Forms a cluster of `members`, this node among them, if its log is empty.
    pub async fn initialize(&self, members: Vec<Member>) -> Result<(), ChangeError> {
        unimplemented!()
    }

    /// Leader only: `member` gets the log from now on but no vote.
    pub async fn add_learner(&self, member: Member) -> Result<(), ChangeError> {
        unimplemented!()
    }

    /// Leader only: the learner `new` votes from now on, in place of `dead` if given.
    pub async fn replace_voter(
        &self,
        dead: Option<NodeId>,
        new: NodeId,
    ) -> Result<(), ChangeError> {
        unimplemented!()
    }

    /// Leader only: `node` is no member any more.
    pub async fn remove(&self, node: NodeId) -> Result<(), ChangeError> {
        unimplemented!()
    }

    /// Leader only: completes a change that a former leader has left half done.
    pub async fn finish_joint(&self) -> Result<(), ChangeError> {
        unimplemented!()
    }

    /// Leader only: hands over to `to`. Returns when it is under way.
    pub async fn transfer_leader(&self, to: NodeId) -> Result<(), ChangeError> {
        unimplemented!()
    }

    /// Stands for election at once, as if the leader had asked for it: no lease protects the
    /// leader. Only for when it is known to be gone (architecture, section 14).
    pub async fn stand_with_transfer_flag(&self) -> Result<(), ChangeError> {
        unimplemented!()
    }

    /// Makes a snapshot soon.
    pub async fn snapshot(&self) {
        unimplemented!()
    }

    /// Removes entries up to `upto` from the log as far as the newest snapshot has them.
    pub async fn purge(&self, upto: u64) {
        unimplemented!()
    }

    /// How far everything is.
    pub fn metrics(&self) -> RaftMetrics {
        unimplemented!()
    }

    /// Answers to vote requests carry what `clock` tells. Set it before [`Self::run`].
    pub fn tell_time_with(&self, clock: ClockSource) {
        unimplemented!()
    }

    /// What the voters told of time when they answered this node's requests for votes in `term`.
    pub fn clocks_of_voters(&self, term: u64) -> Vec<(NodeId, pb::Clock)> {
        unimplemented!()
    }

    /// Stops Raft and waits until it has stopped.
    pub async fn shutdown(&self) {
        unimplemented!()
    }
}
