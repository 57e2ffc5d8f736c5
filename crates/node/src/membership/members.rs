use std::{sync::Arc, time::Duration};

use tracing::{info, warn};
use trellis_consensus::{Consensus, blocking};
use trellis_rpc::{ClusterId, pb, pb::change_request::Change};

use super::{
    HOPS_MAX, Health, NodeStop, Refused, Stage, Standing, Status, changes, health, status,
};

/// How often a change is passed on again when leadership moves in between.
const CHANGE_ATTEMPTS: usize = 5;

const CHANGE_AGAIN: Duration = Duration::from_millis(500);

/// How often a leader that drains tries to hand over. A new leader knows nobody yet.
const STEP_DOWN_ATTEMPTS: usize = 10;

const STEP_DOWN_AGAIN: Duration = Duration::from_millis(200);

/// How long a snapshot that was asked for is waited for: a large state takes minutes.
const SNAPSHOT_AWAITED: Duration = Duration::from_secs(45);

const SNAPSHOT_LOOK: Duration = Duration::from_millis(50);

/// How long stopping Raft may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The node as an operator sees it: how it is, and what can be changed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Members(pub(crate) Arc<Standing>);

impl Members {
    /// How this node is, for probes. Quick; may be asked from any thread.
    pub fn health(&self) -> Health {
        health::health(&self.0)
    }

    /// How this node and its cluster are.
    pub fn status(&self) -> Status {
        status::status(&self.0)
    }

    /// Resolves when this node has to stop for good; the text says why and what to do.
    pub async fn stopped(&self) -> NodeStop {
        self.0.stopped().await
    }

    /// Invites the waiting node whose peer port is at `address`; it then joins by itself.
    ///
    /// # Errors
    ///
    /// Why not, and what to do.
    pub async fn add(&self, address: &str) -> Result<String, Refused> {
        self.change(Change::Add(address.to_owned())).await
    }

    /// Removes the member of that name or id for ever.
    ///
    /// # Errors
    ///
    /// Why not, and what to do: among others if too few would be present without it, or, unless
    /// `force`, if two voters would be left.
    pub async fn remove(&self, name_or_id: &str, force: bool) -> Result<String, Refused> {
        let member = name_or_id.to_owned();
        self.change(Change::Remove(pb::change_request::Removal {
            member,
            force,
        }))
        .await
    }

    /// Hands leadership to the member of that name or id, or to the most advanced voter.
    ///
    /// # Errors
    ///
    /// Why not, and what to do.
    pub async fn transfer_leader(&self, name_or_id: Option<&str>) -> Result<String, Refused> {
        self.change(Change::TransferLeader(
            name_or_id.unwrap_or_default().to_owned(),
        ))
        .await
    }

    /// Any node takes a change and passes it on to the leader, again when that moves meanwhile.
    async fn change(&self, change: Change) -> Result<String, Refused> {
        let mut last = Refused {
            why: "not tried".to_owned(),
            again: true,
        };
        for attempt in 0..CHANGE_ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(CHANGE_AGAIN).await;
            }
            let request = pb::ChangeRequest {
                change: Some(change.clone()),
                hops: HOPS_MAX,
            };
            last = match changes::change(&self.0, request).await {
                Ok(pb::ChangeReply {
                    refused: None,
                    done,
                    ..
                }) => return Ok(done),
                Ok(pb::ChangeReply {
                    refused: Some(why),
                    again,
                    ..
                }) => Refused { why, again },
                Err(status) => Refused {
                    why: status.message().to_owned(),
                    again: true,
                },
            };
            if !last.again {
                break;
            }
        }
        Err(last)
    }

    /// Forgets the cluster that this node has bound itself to. Only while it has no log entry.
    ///
    /// # Errors
    ///
    /// Why not, and what to do.
    pub async fn unbind(&self) -> Result<String, Refused> {
        let standing = &self.0;
        let _one = standing.binding.lock().await;
        let never = |why: String| Refused { why, again: false };
        let Some(cluster) = standing.cluster() else {
            return Err(never("this node is not bound to a cluster".to_owned()));
        };
        if standing.formed() {
            return Err(never(format!(
                "this node is a member of cluster {cluster}; to take it out, run `trellis member \
                 remove` there and start it with an empty data folder"
            )));
        }
        let identity = standing.identity.clone();
        blocking(move || identity.unbind())
            .await
            .map_err(|error| never(error.to_string()))?;
        standing.shared().set_cluster(ClusterId::NONE);
        info!(%cluster, "unbound");
        if !matches!(*standing.stage.borrow(), Stage::Forming(_)) {
            // It may have voted in the name of that cluster: only a fresh start is clean.
            standing.stop(NodeStop::Unbound);
        }
        standing.bell.notify_one();
        Ok(format!("unbound from cluster {cluster}"))
    }

    /// Takes a snapshot soon, whatever the log's size.
    ///
    /// # Errors
    ///
    /// That the node is starting, or part of no cluster yet.
    pub async fn snapshot(&self) -> Result<String, Refused> {
        let consensus = self.with_state()?;
        consensus.snapshot().await;
        let applied = consensus.metrics().applied.unwrap_or_default();
        Ok(format!(
            "a snapshot up to index {applied} or later is on its way"
        ))
    }

    fn consensus(&self) -> Result<&Consensus, Refused> {
        self.0.consensus.get().ok_or_else(|| Refused {
            why: "this node is still starting".to_owned(),
            again: true,
        })
    }

    /// Raft, once there is a state to speak of: a node that still forms has none.
    fn with_state(&self) -> Result<&Consensus, Refused> {
        let consensus = self.consensus()?;
        if self.0.formed() {
            return Ok(consensus);
        }
        Err(Refused {
            why: "this node is not part of a cluster yet".to_owned(),
            again: true,
        })
    }

    /// The same, and waits for it, within a bound.
    ///
    /// # Errors
    ///
    /// That the node is starting, or part of no cluster yet.
    pub async fn snapshot_written(&self) -> Result<String, Refused> {
        let consensus = self.with_state()?;
        let wanted = consensus.metrics().applied.unwrap_or_default();
        consensus.snapshot().await;
        let begin = crate::now();
        loop {
            let newest = consensus.metrics().snapshot.map(|position| position.index);
            if let Some(newest) = newest.filter(|newest| *newest >= wanted) {
                info!(upto = newest, "a snapshot that was asked for is written");
                return Ok(format!("a snapshot up to index {newest} is written"));
            }
            if crate::since(begin) > SNAPSHOT_AWAITED {
                return Ok(format!(
                    "a snapshot up to index {wanted} or later is still on its way; `snapshot` in \
                     `trellis status` says when it is there"
                ));
            }
            tokio::time::sleep(SNAPSHOT_LOOK).await;
        }
    }

    /// Makes this node ready to be stopped: not ready any more, leadership handed to a level voter,
    /// doors closed in good order. Bounded. Raft goes on, so that the cluster misses no vote
    /// before the process ends.
    ///
    /// Clients of other nodes see nothing of it.
    pub async fn drain(&self) {
        let standing = &self.0;
        standing.draining.send_replace(true);
        if let Some(consensus) = standing.consensus.get() {
            consensus.may_stand(false);
            self.step_down().await;
        }
        if let Some(core) = standing.core.get() {
            core.close_doors().await;
        }
        info!("drained");
    }

    /// Hands leadership over, tried for a bounded time; not at all where nobody could take it.
    async fn step_down(&self) {
        let standing = &self.0;
        let others = standing.membership().all_voters().len() > 1;
        for attempt in 1..=STEP_DOWN_ATTEMPTS {
            if standing.role().leads().is_none() || !others {
                return;
            }
            match changes::transfer(standing, "").await {
                Ok(done) => info!(done, "draining"),
                Err(refused) => {
                    if attempt == 1 {
                        warn!(%refused, "draining, but nobody can take over yet: trying for 2 s");
                    }
                    tokio::time::sleep(STEP_DOWN_AGAIN).await;
                }
            }
        }
    }

    /// Stops Raft: the last thing to do before storage is closed. Bounded.
    pub async fn stop(&self) {
        if let Some(consensus) = self.0.consensus.get()
            && tokio::time::timeout(SHUTDOWN_TIMEOUT, consensus.shutdown())
                .await
                .is_err()
        {
            warn!("consensus did not stop in time");
        }
    }

    /// Whether a drain has begun.
    pub fn draining(&self) -> bool {
        *self.0.draining.borrow()
    }

    /// How often two replicas were found not to be equal at one index, since the start.
    pub fn digest_mismatches(&self) -> u64 {
        self.0
            .digest_mismatches
            .load(std::sync::atomic::Ordering::Relaxed)
    }
}
