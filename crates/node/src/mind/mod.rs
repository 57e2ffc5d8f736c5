mod doors;
mod tasks;
mod view;

use std::{
    io,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot, watch},
    task::JoinSet,
};
use tonic::Status;
use tracing::{error, info, warn};
use trellis_consensus::{Bodies, Consensus};
use trellis_queue::LeaderCommand;
use trellis_rpc::pb;
use trellis_types::{NodeId, OriginId, Run, Timestamp, TubeName};

use crate::{
    Budget, Clocks, CloseReason, CoreListener, Counters, Line, NodeMetrics, NodeSettings, Outlet,
    Refused, Session, WallClock,
    leader::{Office, OfficeEvent, serve_forward, watch_role},
    neighbours::Neighbours,
    origin::{Effects, Origin, Phase, forward},
    reads::{ReadQueue, serve_reads, submit_ready_polls},
};
use tasks::{draw_runs, look_after};

pub use doors::DoorState;

/// How often leases and overdue commands are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The same while nobody waits for a leader: whoever comes then waits for seconds before it matters.
const IDLE_LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How exactly the end of the lease is looked at.
const FENCE_LOOK: Duration = Duration::from_millis(10);

/// The mind of a node that takes part in a cluster: its sessions, its side of the protocol with
/// the leader, and the leader's side whenever it leads.
///
/// It is made first, so that its [`listener`](Self::listener) can be given to consensus, and
/// started when Raft runs.
#[derive(Clone)]
pub struct Core(pub(crate) Arc<Inner>);

/// What a core needs to run.
pub struct CoreParts {
    /// Of this node, built with [`Core::listener`] and running.
    pub consensus: Consensus,
    /// The other nodes.
    pub neighbours: Arc<dyn Neighbours>,
    /// Raises the run counter on disk and syncs it: called before every new origin, where blocking
    /// is allowed. An error is a failed disk: the process stops.
    pub next_run: Arc<dyn Fn() -> io::Result<Run> + Send + Sync>,
}

/// Why the leader did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeadError {
    /// This node does not lead.
    #[error("this node does not lead")]
    NotLeader,
    /// It may or may not have been done.
    #[error("the proposal failed: {0}")]
    Failed(String),
}

pub(crate) struct Inner {
    pub(crate) me: NodeId,
    pub(crate) settings: NodeSettings,
    pub(crate) origin: Mutex<Origin>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) bodies: Arc<dyn Bodies>,
    pub(crate) clocks: Clocks,
    /// Wakes the forwarder.
    pub(crate) forward_wake: Notify,
    /// Wakes who looks after leases and the like: something is due earlier than it was.
    look: Notify,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) reads: ReadQueue,
    pub(crate) office: Mutex<Option<Office>>,
    pub(crate) started: Instant,
    running: OnceLock<Running>,
    doors: watch::Sender<DoorState>,
    /// When a leader that counts was last heard.
    heard: Mutex<Option<Instant>>,
    /// No new origin after this one.
    stopping: Mutex<bool>,
    /// Why no client may be served, as long as that is so.
    shut: watch::Sender<Option<&'static str>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) consensus: Consensus,
    pub(crate) neighbours: Arc<dyn Neighbours>,
}

impl Core {
    /// A core that does not serve yet. `bodies` are those of the state store.
    pub fn new(me: NodeId, settings: NodeSettings, bodies: Arc<dyn Bodies>) -> Self {
        Self::beside(WallClock::default(), me, settings, bodies)
    }

    /// As [`Self::new`], on a machine whose wall clock is `wall`.
    pub fn beside(
        wall: WallClock,
        me: NodeId,
        settings: NodeSettings,
        bodies: Arc<dyn Bodies>,
    ) -> Self {
        let budget = Arc::new(Budget::default());
        let origin = Origin::new(
            budget.clone(),
            settings.commit_timeout,
            settings.connections_max,
        );
        Self(Arc::new(Inner {
            me,
            settings,
            origin: Mutex::new(origin),
            budget,
            bodies,
            clocks: Clocks::beside(wall),
            forward_wake: Notify::new(),
            look: Notify::new(),
            phase: watch::Sender::new(Phase::Fenced),
            reads: ReadQueue::default(),
            office: Mutex::new(None),
            started: crate::now(),
            running: OnceLock::new(),
            doors: watch::Sender::new(DoorState::Closed { why: "starting" }),
            heard: Mutex::new(None),
            stopping: Mutex::new(false),
            shut: watch::Sender::new(None),
            tasks: Mutex::new(JoinSet::new()),
        }))
    }

    /// What consensus is to be built with.
    pub fn listener(&self) -> CoreListener {
        CoreListener::new(self.0.clone())
    }

    /// Starts everything; to be called once, inside a runtime. Clients are served when this node
    /// has applied its own OpenOrigin.
    pub fn start(&self, parts: CoreParts) {
        let CoreParts {
            consensus,
            neighbours,
            next_run,
        } = parts;
        let running = Running {
            consensus: consensus.clone(),
            neighbours: neighbours.clone(),
        };
        if self.0.running.set(running.clone()).is_err() {
            error!("the core was started twice");
            return;
        }
        let mut tasks = self.0.tasks.lock();
        tasks.spawn(draw_runs(self.0.clone(), next_run));
        tasks.spawn(forward(self.0.clone(), consensus.clone(), neighbours));
        tasks.spawn(watch_role(self.0.clone(), consensus));
        tasks.spawn(serve_reads(self.0.clone(), running));
        tasks.spawn(look_after(self.0.clone()));
    }

    /// Ends all tasks. Sessions are not told.
    pub async fn shutdown(&self) {
        let mut tasks = std::mem::take(&mut *self.0.tasks.lock());
        tasks.shutdown().await;
    }

    /// Whether clients are served.
    pub fn doors(&self) -> watch::Receiver<DoorState> {
        self.0.doors.subscribe()
    }

    /// A new client.
    ///
    /// # Errors
    ///
    /// [`Refused`]: the node does not serve, or has as many clients as it may have.
    pub fn connect(&self, outlet: Arc<dyn Outlet>) -> Result<Session, Refused> {
        let line = Line::new(outlet);
        let id = self.0.with_origin(|origin| origin.connect(line.clone()))?;
        Ok(Session::new(id, line, self.0.clone()))
    }

    /// Whether puts of this node's clients get `DRAINING` (SIGUSR1).
    pub fn drain_puts(&self, on: bool) {
        self.0.with_origin(|origin| origin.draining = on);
    }

    /// Lets go of all clients in good order: no new ones, what is under way is answered, then
    /// every session is closed. Returns when all are gone and the cluster knows, or after
    /// `timeout`. There is no way back.
    pub async fn release_clients(&self, timeout: Duration) {
        *self.0.stopping.lock() = true;
        let deadline = tokio::time::Instant::now() + timeout;
        let now = crate::now();
        self.0.with_origin(|origin| origin.leave(now));
        let half = tokio::time::Instant::now() + timeout / 2;
        let mut applied = self
            .0
            .running
            .get()
            .map(|running| running.consensus.applied());
        loop {
            let (sessions, batches) = self.0.with_origin(|origin| origin.left());
            if sessions == 0 && batches == 0 {
                break;
            }
            let now = tokio::time::Instant::now();
            if now >= half {
                self.0
                    .with_origin(|origin| origin.close_all(CloseReason::Drained));
            }
            if now >= deadline {
                warn!(sessions, batches, "not all sessions ended in time");
                break;
            }
            let change = async {
                match &mut applied {
                    Some(applied) => drop(applied.changed().await),
                    None => std::future::pending().await,
                }
            };
            // Whatever comes first.
            let _ = tokio::time::timeout(LOOK_INTERVAL, change).await;
        }
        self.0
            .with_origin(|origin| origin.fence(CloseReason::Drained));
    }

    /// Lets no client in for as long as there is a reason, and gives up those who are there.
    pub fn shut(&self, why: Option<&'static str>) {
        let news = self
            .0
            .shut
            .send_if_modified(|known| std::mem::replace(known, why) != why);
        if !news {
            return;
        }
        if let Some(why) = why {
            self.0.doors.send_if_modified(|doors| {
                let closed = matches!(doors, DoorState::Closed { .. });
                if closed {
                    *doors = DoorState::Closed { why };
                }
                closed
            });
            self.0.with_origin(|origin| {
                if origin.phase() != Phase::Fenced {
                    origin.fence(CloseReason::Fenced);
                }
            });
        }
    }

    /// How long ago a leader that counts was heard; `None` if none was since the start.
    pub fn leader_heard(&self) -> Option<Duration> {
        let heard = *self.0.heard.lock();
        heard.map(|heard| crate::now().saturating_duration_since(heard))
    }

    /// Ready means: listeners open and a counting leader heard lately enough.
    pub fn is_ready(&self) -> bool {
        matches!(*self.0.doors.borrow(), DoorState::Open { .. })
            && self
                .leader_heard()
                .is_some_and(|age| age <= self.0.settings.ready_within())
    }

    /// What this node measures by itself. Cloning shares the histograms.
    pub fn metrics(&self) -> NodeMetrics {
        self.0.with_origin(|origin| origin.metrics.clone())
    }

    /// What the front end of this node counts.
    pub fn counters(&self) -> Counters {
        self.0.with_origin(|origin| origin.counters)
    }

    /// A short look at the replicated state as this node has applied it; `None` before the start.
    /// Apply waits meanwhile.
    pub fn look<R>(&self, look: impl FnOnce(&trellis_queue::Machine) -> R) -> Option<R> {
        self.0
            .running
            .get()
            .map(|running| running.consensus.with_machine(look))
    }

    /// This node's clock, for answers to hello and to requests for votes.
    pub fn clock_report(&self) -> pb::Clock {
        self.0.clocks.reading().into()
    }

    /// What another node said of its clock in an answer to hello, just now.
    pub fn learn_clock(&self, node: NodeId, clock: pb::Clock) {
        self.0.clocks.heard(node, clock.into());
    }

    /// Forgets the clocks of nodes for which `keep` is false.
    pub fn retain_clocks(&self, keep: impl Fn(NodeId) -> bool) {
        self.0.clocks.retain(keep);
    }

    /// Cluster time as this node estimates it.
    pub fn cluster_time(&self) -> Option<Timestamp> {
        self.0.clocks.now()
    }

    /// Leader only: whether an open origin of `node` is present. `false` on any other node.
    pub fn is_present(&self, node: NodeId) -> bool {
        let office = self.0.office.lock().clone();
        office.is_some_and(|office| office.present().iter().any(|origin| origin.node == node))
    }

    /// Leader only: proposes commands of the leader itself as one entry; the index at which this
    /// node has applied it.
    ///
    /// # Errors
    ///
    /// [`LeadError`]; after `Failed` it may have been done all the same.
    pub async fn propose(&self, commands: Vec<LeaderCommand>) -> Result<u64, LeadError> {
        let office = self.0.office.lock().clone();
        let office = office.ok_or(LeadError::NotLeader)?;
        let (done, result) = oneshot::channel();
        office
            .events
            .send(OfficeEvent::Lead { commands, done })
            .await
            .map_err(|_| LeadError::NotLeader)?;
        match result.await {
            Ok(result) => result.map_err(LeadError::Failed),
            Err(_) => Err(LeadError::Failed("the term of office ended".to_owned())),
        }
    }

    /// Serves a `Forward` call. `from` is who sends it, if the caller knows.
    pub fn forward(
        &self,
        from: Option<NodeId>,
        up: impl futures::Stream<Item = Result<pb::ForwardUp, Status>> + Send + 'static,
    ) -> BoxStream<'static, Result<pb::ForwardDown, Status>> {
        serve_forward(self.0.clone(), from, up)
    }

    /// Serves the `ReadIndex` call.
    ///
    /// # Errors
    ///
    /// FAILED_PRECONDITION if this node does not lead, UNAVAILABLE if no majority acknowledges it.
    pub async fn read_index(&self) -> Result<pb::ReadIndexReply, Status> {
        let (index, at) = self.0.read_index().await?;
        Ok(pb::ReadIndexReply { index, at: at.0 })
    }

    /// Serves the `Census` call.
    ///
    /// # Errors
    ///
    /// INVALID_ARGUMENT if the tube has no tube's name.
    pub fn census(&self, request: &pb::CensusRequest) -> Result<pb::CensusReply, Status> {
        let tube = request
            .tube
            .as_ref()
            .map(|name| TubeName::parse(name))
            .transpose()
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(self.0.census(tube.as_ref()))
    }
}

impl Inner {
    /// Does something to the origin under its lock, and what follows from it outside.
    pub(crate) fn with_origin<R>(&self, act: impl FnOnce(&mut Origin) -> R) -> R {
        let (result, effects) = {
            let mut origin = self.origin.lock();
            (act(&mut origin), origin.take_effects())
        };
        if !effects.is_empty() {
            self.perform(effects);
        }
        result
    }

    pub(crate) fn perform(&self, effects: Effects) {
        // Before any client hears that it is over: one that comes back at once finds closed doors.
        if effects.phase.is_some() {
            // As it is now, and nobody changes it meanwhile: these effects may have been taken a while
            // ago, and somebody else may have fenced since.
            let origin = self.origin.lock();
            let phase = origin.phase();
            self.doors.send_if_modified(|doors| {
                let new = match phase {
                    Phase::Open(origin) => DoorState::Open { origin },
                    Phase::Opening(_) => DoorState::Closed {
                        why: "waiting for the cluster",
                    },
                    Phase::Fenced => DoorState::Closed {
                        why: self.shut.borrow().unwrap_or(if self.is_stopping() {
                            "this node is on its way out"
                        } else {
                            "out of touch with the cluster"
                        }),
                    },
                };
                let changed = *doors != new;
                if changed {
                    info!("{new}");
                    *doors = new;
                }
                changed
            });
            self.phase.send_replace(phase);
        }
        for line in effects.lines {
            line.deliver();
        }
        let mut tickets = effects.tickets;
        if let Some(running) = self.running.get() {
            submit_ready_polls(self, running, &mut tickets);
        }
        if !tickets.is_empty() {
            self.reads.push(tickets);
        }
        if effects.wake {
            self.forward_wake.notify_one();
        }
        if effects.rests {
            self.look.notify_one();
        }
    }

    /// A ping of a leader that counts has come.
    pub(crate) fn leader_counts(&self, at: Timestamp) {
        let now = crate::now();
        self.clocks.sample(at, now);
        *self.heard.lock() = Some(now);
    }

    /// The leader says that the machine has ended this origin.
    pub(crate) fn origin_is_over(&self, over: OriginId) {
        self.with_origin(|origin| {
            if matches!(origin.phase(), Phase::Open(own) | Phase::Opening(own) if own == over) {
                warn!(origin = %over, "the cluster has ended this node's sessions");
                origin.fence(CloseReason::Fenced);
            }
        });
    }

    /// Only a leader that a majority acknowledges answers.
    pub(crate) async fn read_index(&self) -> Result<(u64, Timestamp), Status> {
        let running = self
            .running
            .get()
            .ok_or_else(|| Status::unavailable("starting"))?;
        let office = self.office.lock().clone();
        let office = office.ok_or_else(|| Status::failed_precondition("not the leader"))?;
        let index = running
            .consensus
            .read_index()
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let at = office
            .clock(crate::now())
            .ok_or_else(|| Status::unavailable("no majority acknowledges this leader"))?;
        Ok((index, at))
    }

    pub(crate) fn census(&self, tube: Option<&TubeName>) -> pb::CensusReply {
        self.with_origin(|origin| {
            let interest = tube.map_or((0, 0), |tube| origin.interest(tube));
            origin.counters.reply(interest)
        })
    }

    /// Whether this node was elected in `term` and nobody after it, as far as it knows.
    pub(crate) fn leads(&self, term: u64) -> bool {
        self.running
            .get()
            .is_some_and(|running| running.consensus.role().borrow().leads() == Some(term))
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.lock()
    }
}
