use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tracing::debug;
use trellis_consensus::{Consensus, Role};
use trellis_rpc::pb::{self, forward_down::Down, forward_up::Up};
use trellis_types::{NodeId, OriginId, Timestamp};

use super::Phase;
use crate::{leader::serve_forward, mind::Inner, neighbours::Neighbours};

/// Messages that wait in a stream: all batches in flight, and room for pongs.
const UP_MAX: usize = 64;
/// A stream that says nothing for so long is not trusted.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// How long a stream may take to come up.
const OPEN_MAX: Duration = Duration::from_secs(1);
const BACK_OFF_MIN: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_millis(250);
/// A ping whose leader was acknowledged longer ago counts for nobody.
const QUORUM_AGE_MAX_MS: u64 = 1_000;

type Answers = BoxStream<'static, Result<pb::ForwardDown, Status>>;

/// Hands this node's batches to whoever leads, for as long as the process lives.
///
/// A stream belongs to one (leader, term). Any doubt ends it; the next one starts by sending
/// everything again that is not applied here. Source: architecture, section 5.
pub(crate) async fn forward(
    core: Arc<Inner>,
    consensus: Consensus,
    neighbours: Arc<dyn Neighbours>,
) {
    let mut role = consensus.role();
    let mut phase = core.phase.subscribe();
    let mut back_off = BACK_OFF_MIN;
    loop {
        let target = target_of(*role.borrow_and_update());
        let origin = origin_of(*phase.borrow_and_update());
        let (Some((leader, term)), Some(origin)) = (
            target.map(|(leader, term)| (leader.unwrap_or(core.me), term)),
            origin,
        ) else {
            tokio::select! {
                changed = role.changed() => if changed.is_err() { return },
                changed = phase.changed() => if changed.is_err() { return },
            }
            continue;
        };
        let stream = ForwardStream {
            core: &core,
            consensus: &consensus,
            origin,
            leader,
            term,
        };
        if stream
            .run(&neighbours, &mut role.clone(), &mut phase.clone())
            .await
        {
            back_off = BACK_OFF_MIN;
        } else {
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
        // A change is news; else whoever leads is given a little time.
        tokio::select! {
            changed = role.changed() => if changed.is_err() { return },
            changed = phase.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(back_off) => {}
        }
    }
}

/// Who leads in which term; `None` instead of a node for this one.
fn target_of(role: Role) -> Option<(Option<NodeId>, u64)> {
    match role {
        Role::Leader { term } => Some((None, term)),
        Role::Follower {
            term,
            leader: Some(leader),
        }
        | Role::Learner {
            term,
            leader: Some(leader),
        } => Some((Some(leader), term)),
        _ => None,
    }
}

fn origin_of(phase: Phase) -> Option<OriginId> {
    match phase {
        Phase::Opening(origin) | Phase::Open(origin) => Some(origin),
        Phase::Fenced => None,
    }
}

struct ForwardStream<'a> {
    core: &'a Arc<Inner>,
    consensus: &'a Consensus,
    origin: OriginId,
    leader: NodeId,
    term: u64,
}

impl ForwardStream<'_> {
    /// Opens the stream and lives with it; whether it came to anything.
    async fn run(
        &self,
        neighbours: &Arc<dyn Neighbours>,
        role: &mut watch::Receiver<Role>,
        phase: &mut watch::Receiver<Phase>,
    ) -> bool {
        let (up, messages) = mpsc::channel(UP_MAX);
        let mut answers = match self.open(neighbours, messages).await {
            Ok(answers) => answers,
            Err(error) => {
                debug!(leader = %self.leader, %error, "no stream to the leader");
                return false;
            }
        };
        let doubt = self.core.with_origin(|origin| origin.doubt());
        let open = Up::Open(pb::ForwardOpen {
            origin: Some(pb::Origin {
                node: self.origin.node.0,
                run: self.origin.run.0,
            }),
            term: self.term,
        });
        if !send(&up, open) {
            return false;
        }
        for (_, batch) in self.core.with_origin(|origin| origin.resend(self.origin)) {
            if !send(&up, Up::Batch(batch)) {
                return false;
            }
        }
        let mut came_to_something = false;
        // Counts from the last word of the leader, however much this node has to say meanwhile.
        let mut silent_at = tokio::time::Instant::now() + SILENCE_MAX;
        loop {
            while let Some((_, batch)) = self.core.with_origin(|origin| origin.hand(self.origin)) {
                if !send(&up, Up::Batch(batch)) {
                    return came_to_something;
                }
            }
            if self.core.with_origin(|origin| origin.doubt()) != doubt {
                return came_to_something;
            }
            tokio::select! {
                answer = tokio::time::timeout_at(silent_at, answers.next()) => {
                    let ping = match answer {
                        Ok(Some(Ok(pb::ForwardDown { down: Some(Down::Ping(ping)) }))) => ping,
                        Ok(end) => {
                            debug!(leader = %self.leader, ?end, "the stream to the leader ended");
                            return came_to_something;
                        }
                        Err(_) => {
                            debug!(leader = %self.leader, "the leader says nothing");
                            return came_to_something;
                        }
                    };
                    came_to_something = true;
                    silent_at = tokio::time::Instant::now() + SILENCE_MAX;
                    let number = ping.number;
                    self.hear(&ping);
                    if ping.ended {
                        return true;
                    }
                    let applied = *self.consensus.applied().borrow();
                    if !send(&up, Up::Pong(pb::Pong { number, applied })) {
                        return true;
                    }
                }
                // Whoever else has something to say at this moment rides along: this task is
                // polled again when all that are ready now have been.
                () = self.core.forward_wake.notified() => tokio::task::yield_now().await,
                changed = role.changed() => {
                    let target = target_of(*role.borrow_and_update());
                    let leader = target.map(|(leader, term)| (leader.unwrap_or(self.core.me), term));
                    if changed.is_err() || leader != Some((self.leader, self.term)) {
                        return came_to_something;
                    }
                }
                changed = phase.changed() => {
                    if changed.is_err() || origin_of(*phase.borrow_and_update()) != Some(self.origin) {
                        return came_to_something;
                    }
                }
            }
        }
    }

    async fn open(
        &self,
        neighbours: &Arc<dyn Neighbours>,
        messages: mpsc::Receiver<pb::ForwardUp>,
    ) -> Result<Answers, Status> {
        if self.leader == self.core.me {
            let up = ReceiverStream::new(messages).map(Ok);
            return Ok(serve_forward(self.core.clone(), Some(self.core.me), up));
        }
        tokio::time::timeout(OPEN_MAX, neighbours.forward(self.leader, messages))
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("no stream in time")))
    }

    fn hear(&self, ping: &pb::Ping) {
        if ping.quorum_age_ms <= QUORUM_AGE_MAX_MS {
            self.core.leader_counts(Timestamp(ping.at));
        }
        if ping.ended {
            self.core.origin_is_over(self.origin);
        }
    }
}

/// Whether the message went on its way; if not, the stream is of no use.
fn send(up: &mpsc::Sender<pb::ForwardUp>, message: Up) -> bool {
    up.try_send(pb::ForwardUp { up: Some(message) }).is_ok()
}
