use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use openraft::{
    Instant, Raft, RaftLogReader, ReadPolicy, StorageHelper,
    async_runtime::watch::WatchReceiver,
    errors::{LinearizableReadError, RaftError},
    storage::{RaftLogStorage, RaftStateMachine},
};
use tokio::{sync::watch, time::timeout};
use trellis_queue::Machine;
use trellis_rpc::pb::raft_server::RaftServer;
use trellis_types::NodeId;

use crate::{
    BuildError, ClockSource, ConsensusSettings, Elapsed, Front, Listener, Membership, Payload,
    PeerProgress, Position, ProposeError, RaftMetrics, RaftService, ReadError, Receipt, Role,
    StateStore, Transport, VoterClock,
    acks::Acks,
    clocks::Clocks,
    raft::{Addresses, Applied, LeaderId, Network, Responder, StateMachine, TypeConfig, VoteOf},
    reads::Reads,
};

mod change;
mod watchers;

/// Raft on this node. Cheap to clone.
#[derive(Clone)]
pub struct Consensus(Arc<Inner>);

struct Inner {
    me: NodeId,
    settings: ConsensusSettings,
    raft: Raft<TypeConfig, StateMachine>,
    front: Front,
    applied: Arc<Applied>,
    store: Arc<dyn StateStore>,
    clocks: Arc<Clocks>,
    acks: Arc<Acks>,
    addresses: Addresses,
    reads: Reads,
    role: watch::Sender<Role>,
    /// What log and state held before Raft ran; openraft tells nothing until it runs.
    at_rest: AtRest,
    started: AtomicBool,
    distrusted: Arc<AtomicBool>,
}

/// What a node that has not started holds.
struct AtRest {
    vote: Option<VoteOf>,
    last_log: Option<Position>,
    applied: Option<Position>,
    purged: Option<Position>,
    membership: Membership,
}

impl Consensus {
    /// Loads state and log, and replays what is committed and not yet in the state. No task of Raft
    /// runs yet and no message of Raft is answered.
    ///
    /// # Errors
    ///
    /// [`BuildError`].
    pub async fn build(
        settings: ConsensusSettings,
        me: NodeId,
        mut log: impl RaftLogStorage<TypeConfig>,
        state: Arc<dyn StateStore>,
        transport: Arc<dyn Transport>,
        listener: Box<dyn Listener>,
    ) -> Result<Self, BuildError> {
        let storage = |error: &dyn std::fmt::Display| BuildError::Storage(error.to_string());
        let config = Arc::new(settings.to_raft().map_err(BuildError::Settings)?);

        let mut machine =
            StateMachine::open(state.clone(), listener).map_err(|error| storage(&error))?;
        let at_rest = read_at_rest(me, &mut log, &mut machine).await?;
        // Whatever the log holds now has survived, so windows may be written up to it.
        if let Some(last) = at_rest.last_log {
            state.log_flushed(last.index);
        }

        let applied = machine.applied();
        let clocks = Arc::new(Clocks::default());
        let acks = Arc::new(Acks::default());
        let addresses = Addresses::default();
        let distrusted = Arc::new(AtomicBool::new(false));
        let network = Network {
            me,
            settings,
            transport,
            clocks: clocks.clone(),
            acks: acks.clone(),
            addresses: addresses.clone(),
            distrusted: distrusted.clone(),
        };
        let raft = Raft::build(me, config, network, log, machine)
            .await
            .map_err(|error| storage(&error))?;
        let front = Front::new(
            me,
            raft.clone(),
            state.clone(),
            clocks.clone(),
            distrusted.clone(),
            settings.snapshot_stall,
        );
        Ok(Self(Arc::new(Inner {
            me,
            settings,
            raft,
            front,
            applied,
            store: state,
            clocks,
            acks,
            addresses,
            reads: Reads::default(),
            role: watch::Sender::new(Role::Stopped),
            at_rest,
            started: AtomicBool::new(false),
            distrusted,
        })))
    }

    /// Starts Raft, once. From now on its messages are answered.
    pub fn run(&self) {
        if self.0.started.swap(true, Ordering::AcqRel) {
            return;
        }
        self.0.raft.run();
        self.0.front.set_running(true);
        tokio::spawn(watchers::watch_role(self.clone()));
        tokio::spawn(watchers::show_leader(
            self.0.raft.clone(),
            self.0.role.subscribe(),
            self.0.settings.heartbeat,
        ));
        tokio::spawn(watchers::watch_log(
            self.0.raft.clone(),
            self.0.store.clone(),
        ));
    }

    /// The member `id` says that it is at `address` (host:port), whatever the membership says: Raft
    /// looks for it there until a newer membership has its address. True if that is news.
    pub fn moved(&self, id: NodeId, address: &str) -> bool {
        self.0.addresses.moved(id, address)
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.0.me
    }

    /// Nobody answers before Raft runs, so nothing may be asked.
    fn check_started(&self) -> Option<()> {
        self.0.started.load(Ordering::Acquire).then_some(())
    }

    /// What this node is.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.0.role.subscribe()
    }

    /// The index of the last applied entry, published after every round of applies. 0 before the
    /// first entry as well as after entry 0, which carries no commands.
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.0.applied.index.subscribe()
    }

    /// The last entry in the log, durable or not.
    pub fn last_log(&self) -> Option<Position> {
        let last = self.0.raft.data_metrics().borrow_watched().last_log;
        last.map(Into::into).or(self.0.at_rest.last_log)
    }

    /// The index of the last entry that this node knows to be committed; 0 before the first.
    pub fn committed(&self) -> u64 {
        let committed = self.0.raft.data_metrics().borrow_watched().local_committed;
        committed.map_or_else(|| *self.0.applied.index.borrow(), |id| id.index)
    }

    /// An entry up to which the local log is durable; the last one, unless only a vote was written
    /// since the start.
    pub fn flushed(&self) -> Option<Position> {
        let flushed = self
            .0
            .raft
            .watch_log_progress()
            .get()
            .and_then(|point| point.last_log_id);
        // Of what lay in the log at the start, only what was applied can't be truncated any more.
        flushed.map(Into::into).or(self.0.at_rest.applied)
    }

    /// How far the writes of the log have come, for whoever watches whether they move. No proof that
    /// an entry is durable: that is [`Self::flushed`].
    ///
    /// Raft tells of the last thing written, and of no entry if that was a vote. But a vote is
    /// written behind all entries before it, and an entry behind it will tell of itself.
    pub fn written(&self) -> Option<Position> {
        match self.0.raft.watch_log_progress().get() {
            Some(point) => point.last_log_id.map(Into::into).or(self.last_log()),
            // Nothing since the start.
            None => self.0.at_rest.last_log,
        }
    }

    /// While this node leads: how long ago it sent the newest message that a majority has
    /// acknowledged. `None` if it does not lead, or nothing was acknowledged yet. The only voter
    /// acknowledges itself all the time.
    pub fn quorum_ack_age(&self) -> Option<Duration> {
        let leader = self.0.raft.as_leader().ok()?;
        let membership = self
            .0
            .raft
            .server_metrics()
            .borrow_watched()
            .membership_config
            .clone();
        if membership.voter_ids().eq([self.0.me]) {
            return Some(Duration::ZERO);
        }
        leader.last_quorum_acked().map(|sent| sent.elapsed())
    }

    /// Appends one entry if this node leads in `term` and a majority has acknowledged it within a
    /// lease. Calls one after the other are appended in that order. Waits only for a place in
    /// openraft's queue; the receipt resolves when this node has applied the entry, or with the
    /// reason why it was not appended.
    ///
    /// # Errors
    ///
    /// [`ProposeError::Stopped`]; everything else is told by the receipt.
    pub async fn propose(&self, term: u64, payload: Payload) -> Result<Receipt, ProposeError> {
        self.check_started().ok_or(ProposeError::Stopped)?;
        let (responder, receiver) = Responder::pair();
        self.0
            .raft
            .write(payload)
            .with_leader(LeaderId {
                term,
                node_id: self.0.me,
            })
            .responder(responder)
            .await
            .map_err(|_| ProposeError::Stopped)?;
        Ok(Receipt::new(receiver))
    }

    /// Leader only: the index from which the state may be read. Callers share rounds: one joins
    /// only a round that has not started yet.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; no answer within [`ConsensusSettings::read_timeout`] is
    /// [`ReadError::NoMajority`].
    pub async fn read_index(&self) -> Result<u64, ReadError> {
        self.check_started().ok_or(ReadError::Stopped)?;
        let this = self.clone();
        self.0
            .reads
            .join(move || {
                let this = this.clone();
                async move { this.ask_read_index().await }
            })
            .await
    }

    async fn ask_read_index(&self) -> Result<u64, ReadError> {
        let asked = tokio::time::Instant::now();
        let supported = async {
            loop {
                let answer = self.ask_openraft().await;
                // In nearly all cases at once. Else openraft took an old answer for a new one, and
                // finds out with the next: that it is supported all the same, or that it leads no more.
                if answer.is_err() || self.is_supported_since(asked) {
                    return answer;
                }
            }
        };
        timeout(self.0.settings.read_timeout, supported)
            .await
            .map_err(|_| ReadError::NoMajority)?
    }

    /// Whether a majority has accepted something that was sent not before `asked`, in the present
    /// term.
    fn is_supported_since(&self, asked: tokio::time::Instant) -> bool {
        let metrics = self.0.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let voters = metrics.membership_config.membership().get_joint_config();
        let term = metrics.vote.leader_id.term;
        self.0.acks.has_majority(voters, self.0.me, term, asked)
    }

    async fn ask_openraft(&self) -> Result<u64, ReadError> {
        match self.0.raft.get_read_log_id(ReadPolicy::ReadIndex).await {
            Ok((read, _)) => Ok(read.index()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                Err(ReadError::NotLeader {
                    leader: forward.leader_id,
                })
            }
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => {
                Err(ReadError::NoMajority)
            }
            Err(RaftError::Fatal(_)) => Err(ReadError::Stopped),
        }
    }

    /// Waits until the entry at `index` is applied.
    ///
    /// # Errors
    ///
    /// [`Elapsed`] after `limit`.
    pub async fn wait_applied(&self, index: u64, limit: Duration) -> Result<(), Elapsed> {
        let mut applied = self.applied();
        if *applied.borrow() >= index {
            return Ok(());
        }
        let reached = timeout(limit, applied.wait_for(|applied| *applied >= index)).await;
        reached.map_err(|_| Elapsed)?.map(drop).map_err(|_| Elapsed)
    }

    /// Looks at the state between two entries. Short: applies wait.
    pub fn with_machine<R>(&self, look: impl FnOnce(&Machine) -> R) -> R {
        look(&self.0.applied.machine.read())
    }

    /// As [`Self::with_machine`], with the index of the last entry that the machine has taken in, of the
    /// same moment. It may be ahead of [`Self::applied`], which moves at the end of a round.
    pub fn with_machine_at<R>(&self, look: impl FnOnce(&Machine, u64) -> R) -> R {
        let machine = self.0.applied.machine.read();
        look(&machine, self.0.applied.taken_in.load(Ordering::Relaxed))
    }

    /// The newest membership in the log, committed or not.
    pub fn membership(&self) -> Membership {
        let newest = self
            .0
            .raft
            .server_metrics()
            .borrow_watched()
            .membership_config
            .clone();
        match newest.log_id() {
            Some(_) => Membership::from(&*newest),
            // Raft has not told yet.
            None => self.0.at_rest.membership.clone(),
        }
    }

    /// Makes a snapshot soon.
    pub async fn snapshot(&self) {
        // Fails only when Raft has stopped, and then there is nothing to do.
        let _ = self.0.raft.trigger().snapshot().await;
    }

    /// Removes entries up to `upto` from the log as far as the newest snapshot has them.
    pub async fn purge(&self, upto: u64) {
        let _ = self.0.raft.trigger().purge_log(upto).await;
    }

    /// Forbids (or allows again) that this node stands for election: while its own log does not
    /// move (architecture, section 10, rule 7).
    pub fn may_stand(&self, may: bool) {
        let may = may && !self.0.distrusted.load(Ordering::Relaxed);
        self.0.raft.runtime_config().elect(may);
    }

    /// The state of this node is found to be wrong, though its log is good: it never again stands
    /// for election, and gives its state to nobody. It goes on taking entries in and voting for
    /// others.
    pub fn distrust_state(&self) {
        self.0.distrusted.store(true, Ordering::Relaxed);
        self.may_stand(false);
    }

    /// How far everything is.
    pub fn metrics(&self) -> RaftMetrics {
        let metrics = self.0.raft.metrics().borrow_watched().clone();
        let at_rest = &self.0.at_rest;
        let acked = metrics.heartbeat.unwrap_or_default();
        let peers = metrics.replication.unwrap_or_default().into_iter();
        RaftMetrics {
            term: metrics
                .current_term
                .max(at_rest.vote.map_or(0, |vote| vote.leader_id.term)),
            role: *self.0.role.borrow(),
            last_log: self.last_log().map(|last| last.index),
            committed: metrics.local_committed.map(|id| id.index),
            applied: metrics
                .last_applied
                .map(|id| id.index)
                .or_else(|| Some(*self.0.applied.index.borrow()).filter(|index| *index > 0)),
            snapshot: metrics.snapshot.map(Into::into),
            purged: metrics
                .purged
                .map(|id| id.index)
                .or(at_rest.purged.map(|last| last.index)),
            peers: peers
                .filter(|(node, _)| *node != self.0.me)
                .map(|(node, matched)| PeerProgress {
                    node,
                    matched: matched.map(|id| id.index),
                    acked_age: acked
                        .get(&node)
                        .copied()
                        .flatten()
                        .map(|sent| sent.elapsed()),
                })
                .collect(),
        }
    }

    /// Answers to vote requests carry what `clock` tells. Set it before [`Self::run`].
    pub fn tell_time_with(&self, clock: ClockSource) {
        self.0.clocks.tell_with(clock);
    }

    /// What the voters told of time when they answered this node's requests for votes in `term`.
    pub fn clocks_of_voters(&self, term: u64) -> Vec<VoterClock> {
        self.0.clocks.of_term(term)
    }

    /// What answers Raft's messages, for transports other than gRPC.
    pub fn front(&self) -> Front {
        self.0.front.clone()
    }

    /// The gRPC service that answers Raft's messages.
    pub fn service(&self) -> RaftServer<RaftService> {
        RaftService::server(self.front())
    }

    /// Stops Raft and waits until it has stopped. Nothing is answered any more.
    pub async fn shutdown(&self) {
        self.0.front.set_running(false);
        // An error means that it had ended before.
        let _ = self.0.raft.shutdown().await;
        self.0.role.send_replace(Role::Stopped);
    }
}

/// What log and state hold together, before openraft takes them.
async fn read_at_rest(
    me: NodeId,
    log: &mut impl RaftLogStorage<TypeConfig>,
    machine: &mut StateMachine,
) -> Result<AtRest, BuildError> {
    let storage = |error: &dyn std::fmt::Display| BuildError::Storage(error.to_string());
    let state = log.get_log_state().await.map_err(|error| storage(&error))?;
    let mut reader = log.get_log_reader().await;
    let vote = reader.read_vote().await.map_err(|error| storage(&error))?;
    let membership = StorageHelper::new(log, machine)
        .with_id(me)
        .get_membership()
        .await
        .map_err(|error| storage(&error))?;
    let (applied, _) = machine
        .applied_state()
        .await
        .map_err(|error| storage(&error))?;
    Ok(AtRest {
        vote,
        last_log: state.last_log_id.map(Into::into),
        applied: applied.map(Into::into),
        purged: state.last_purged_log_id.map(Into::into),
        membership: Membership::from(&**membership.effective()),
    })
}
