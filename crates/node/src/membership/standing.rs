use std::{
    fmt, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::{error, info};
use trellis_consensus::{Consensus, Member, Membership, Role, blocking};
use trellis_rpc::{ClusterId, Peers, SharedIdentity};
use trellis_types::{NodeId, Run};

use super::{CoreView, Disk, DiskMark, Forming, HelloStop, Identity, Jury, MemberTable, Witnessed};

/// A leader that no majority has acknowledged for longer counts for nobody (architecture, 7).
pub(crate) const LEADER_COUNTS_FOR: Duration = Duration::from_secs(1);

/// A leader that was heard longer ago than this is not said to be heard in answers to hellos.
pub(crate) const LEADER_HEARD_WITHIN: Duration = Duration::from_millis(1_500);

/// A leader whose pings have not come for so long may be gone, if others say so, too: three
/// heartbeats.
pub(crate) const LEADER_UNHEARD: Duration = Duration::from_millis(300);

/// How long a difference that nobody can decide is borne: the next reports usually decide it.
const DOUBT_BEARABLE: Duration = Duration::from_secs(2);

/// Why the doors of a node are closed whose state is wrong.
const QUARANTINED: &str = "quarantined";

/// Why the doors of a follower are closed whose state may be.
const IN_DOUBT: &str = "the state differs from the leader's";

/// What is waited for is logged again after this time.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The highest feature level that this binary understands.
pub const FEATURE_LEVEL: u32 = 1;

/// How far a node has come. Only `Running` takes part in Raft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has no log entry and looks for a cluster, or forms one.
    Forming(String),
    /// It asks the others whether it may take part.
    Hello(String),
    /// It takes part.
    Running,
    /// It never will with this folder and configuration.
    Stopped(NodeStop),
}

/// Why a node has to stop for good. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeStop {
    /// Others know better than its disk.
    #[error(transparent)]
    Hello(#[from] HelloStop),
    /// The cluster speaks of things that this binary does not understand.
    #[error(
        "the cluster uses feature level {cluster}, this version understands {own} at most; install \
         a newer version (docs/errors/feature-level.md)"
    )]
    Level {
        /// In use.
        cluster: u32,
        /// Understood.
        own: u32,
    },
    /// A person unbound it while it took part in forming.
    #[error("this node was unbound from its cluster; start it again to form or join another")]
    Unbound,
    /// Its consensus can't go on.
    #[error("{0}")]
    Failed(String),
}

/// What the tasks around membership share: who this node is, what it knows, how far it has come.
pub(crate) struct Standing {
    pub(crate) identity: Arc<dyn Identity>,
    pub(crate) peers: Peers,
    pub(crate) forming: Forming,
    /// The peer address that goes into the membership.
    pub(crate) address: String,
    pub(crate) version: String,
    pub(crate) consensus: OnceLock<Consensus>,
    pub(crate) core: OnceLock<Arc<dyn CoreView>>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) disk_mark: DiskMark,
    pub(crate) table: MemberTable,
    pub(crate) witnessed: Arc<Witnessed>,
    /// Differences between two replicas' digests, counted once each.
    pub(crate) digest_mismatches: AtomicU64,
    /// What the digests of all members say; of a follower, only its own and the leader's.
    pub(crate) jury: Mutex<Jury>,
    /// Why this node's state can't be relied upon: it is out, for good.
    pub(crate) quarantined: OnceLock<String>,
    /// Since when, and how, the state differs from another's while nobody can tell which is right.
    pub(crate) doubt: Mutex<Option<(Instant, String)>>,
    /// One binding, unbinding or joining at a time.
    pub(crate) binding: tokio::sync::Mutex<()>,
    /// Rung when the node was bound or invited.
    pub(crate) bell: Notify,
    /// Where an existing cluster has asked this node to join.
    pub(crate) invited: Mutex<Vec<String>>,
    pub(crate) stage: watch::Sender<Stage>,
    pub(crate) draining: watch::Sender<bool>,
    /// The own log or apply does not move although there is work.
    pub(crate) stalled: AtomicBool,
    /// What learners wait for, as the leader's council last said.
    pub(crate) councils: Mutex<Vec<String>>,
    /// One change of members at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Whose disks are below the mark, as the leader last saw.
    pub(crate) short_of_disk: Mutex<Vec<String>>,
    /// The last run that was used before this start.
    pub(crate) run_at_start: Run,
    /// When it was last said what is waited for.
    pub(crate) said: Mutex<Instant>,
    pub(crate) started: Instant,
    /// When the runtime last proved that it turns.
    pub(crate) heartbeat: Mutex<Instant>,
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing")
            .field("name", &self.forming.name)
            .finish_non_exhaustive()
    }
}

/// A cluster's id for people, if there is one.
pub(crate) fn shown(cluster: Option<ClusterId>) -> String {
    cluster.map_or_else(|| "none".to_owned(), |cluster| cluster.to_string())
}

impl Standing {
    pub(crate) fn id(&self) -> NodeId {
        self.forming.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.forming.name
    }

    pub(crate) fn me(&self) -> Member {
        let (id, name) = (self.id(), self.name().to_owned());
        Member {
            id,
            name,
            address: self.address.clone(),
        }
    }

    pub(crate) fn shared(&self) -> &SharedIdentity {
        self.peers.identity()
    }

    /// The cluster that this node is bound to.
    pub(crate) fn cluster(&self) -> Option<ClusterId> {
        Some(self.shared().get().cluster).filter(|cluster| *cluster != ClusterId::NONE)
    }

    /// The same, for the log.
    pub(crate) fn shown_cluster(&self) -> String {
        shown(self.cluster())
    }

    /// The newest membership in the own log; empty if there is none.
    pub(crate) fn membership(&self) -> Membership {
        self.consensus
            .get()
            .map(Consensus::membership)
            .unwrap_or_default()
    }

    /// Whether the node has a log entry: the first of every log is a membership.
    pub(crate) fn formed(&self) -> bool {
        !self.membership().voters.is_empty()
    }

    pub(crate) fn role(&self) -> Role {
        self.consensus
            .get()
            .map_or(Role::Stopped, |consensus| *consensus.role().borrow())
    }

    /// The term in which this node leads with a majority behind it.
    pub(crate) fn leads(&self) -> Option<u64> {
        let consensus = self.consensus.get()?;
        let Role::Leader { term } = self.role() else {
            return None;
        };
        consensus
            .quorum_ack_age()
            .filter(|age| *age <= LEADER_COUNTS_FOR)
            .map(|_| term)
    }

    /// The leader that this node hears, itself included.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        if self.leads().is_some() {
            return Some(self.id());
        }
        let heard = self.core.get().and_then(|core| core.leader_heard());
        heard.filter(|age| *age <= LEADER_HEARD_WITHIN)?;
        match self.role() {
            Role::Follower { leader, .. } | Role::Learner { leader, .. } => leader,
            Role::Leader { .. } | Role::Candidate { .. } | Role::Stopped => None,
        }
    }

    /// This node's state is not what the cluster agreed on: it takes itself out, for good. Its log
    /// and vote are good, so it goes on as a follower; nobody is answered from its state.
    pub(crate) async fn quarantine(&self, why: String) {
        if self.quarantined.set(why.clone()).is_err() {
            return;
        }
        error!(
            why,
            "this node is quarantined: it serves no clients and does not lead; its data folder is \
             kept as it is. `trellis rebuild` on it gets the state anew from the others \
             (docs/errors/quarantined.md)"
        );
        self.keep_out();
        let disk = self.disk.clone();
        if let Err(error) = blocking(move || disk.quarantine(&why)).await {
            error!(%error, "the quarantine can't be noted: a restart would forget it");
        }
    }

    /// What a quarantine means for the rest of the node.
    pub(crate) fn keep_out(&self) {
        if let Some(consensus) = self.consensus.get() {
            consensus.distrust_state();
        }
        if let Some(core) = self.core.get() {
            core.shut(Some(QUARANTINED));
        }
    }

    /// The state differs from another's, and nobody can tell which is right. A follower that goes on
    /// differing gives way to the leader: one story is told, even if it may be the wrong one.
    pub(crate) fn doubt(&self, why: Option<String>) {
        if self.quarantined.get().is_some() {
            return;
        }
        let mut doubt = self.doubt.lock();
        let news = match (why, doubt.take()) {
            (None, before) => before.is_some(),
            (Some(why), Some((since, _))) => {
                *doubt = Some((since, why));
                false
            }
            (Some(why), None) => {
                error!(
                    why,
                    "two replicas differ and no majority tells which is right: bring the other \
                     members back (docs/errors/quarantined.md)"
                );
                *doubt = Some((crate::now(), why));
                false
            }
        };
        if news {
            info!("the state equals the others' again, or a majority says that it is right");
        }
        let lasting = doubt.as_ref().is_some_and(|(since, _)| {
            crate::now().saturating_duration_since(*since) >= DOUBT_BEARABLE
        });
        let gives_way = lasting && self.role().leads().is_none();
        drop(doubt);
        if let Some(core) = self.core.get() {
            core.shut(gives_way.then_some(IN_DOUBT));
        }
    }

    /// Whether this node would lead: not on its way out, and not with a disk that stands still.
    pub(crate) fn is_willing(&self) -> bool {
        !*self.draining.borrow()
            && !self.stalled.load(Ordering::Relaxed)
            && self.quarantined.get().is_none()
    }

    /// Whether the leader has been silent for three heartbeats.
    pub(crate) fn unheard(&self) -> bool {
        let heard = self.core.get().and_then(|core| core.leader_heard());
        heard.is_none_or(|age| age > LEADER_UNHEARD)
    }

    /// Says what is waited for, and logs it: when it is something else, and from time to time.
    pub(crate) fn wait_in(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let mut said = self.said.lock();
            if matches!(now, Stage::Stopped(_))
                || (*now == stage && crate::since(*said) < SAY_AGAIN_AFTER)
            {
                return false;
            }
            *said = crate::now();
            match &stage {
                Stage::Forming(why) => info!(why, "not part of a cluster yet"),
                Stage::Hello(why) => info!(why, "not taking part yet"),
                Stage::Running => info!("taking part"),
                Stage::Stopped(why) => error!(%why, "this node stops"),
            }
            *now = stage;
            true
        });
    }

    pub(crate) fn stop(&self, why: NodeStop) {
        self.wait_in(Stage::Stopped(why));
    }

    /// Resolves when the node has to stop.
    pub(crate) async fn stopped(&self) -> NodeStop {
        let mut stage = self.stage.subscribe();
        let stopped = stage
            .wait_for(|stage| matches!(stage, Stage::Stopped(_)))
            .await;
        match stopped.as_deref() {
            Ok(Stage::Stopped(why)) => why.clone(),
            // The sender lives as long as `self`.
            _ => NodeStop::Failed("the node is gone".into()),
        }
    }

    /// Binds to `cluster`, synced, and speaks in its name from then on.
    pub(crate) async fn bind(self: &Arc<Self>, cluster: ClusterId) -> io::Result<()> {
        if self.identity.cluster() != Some(cluster) {
            let identity = self.identity.clone();
            blocking(move || identity.bind(cluster)).await?;
            info!(%cluster, "bound to a cluster");
        }
        self.shared().set_cluster(cluster);
        self.bell.notify_one();
        Ok(())
    }
}
