use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::MissedTickBehavior,
};
use tracing::{debug, info, warn};
use trellis_consensus::{Consensus, Payload, Role};
use trellis_queue::LeaderCommand;
use trellis_rpc::{
    pb::{self, forward_down::Down, forward_end::Reason},
    queue::encode_leader,
};
use trellis_types::{
    OriginId, Timestamp,
    seeded::{Bug, planted},
};

use super::{Merger, OfficeEvent, Presence, acknowledged::Acknowledged, office::Shared};
use crate::mind::Inner;

/// How often the leader looks at its own acknowledgement, at ages and flags.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Pings are sent at every second look.
const CHECKS_PER_PING: u64 = 2;
/// Pings of a stream that are remembered until they are answered: a minute of them.
const PINGS_KEPT: usize = 300;
/// Consensus takes a proposal within this time, or it is stuck and the proposal a doubt.
const PROPOSE_MAX: Duration = Duration::from_secs(1);
/// A Tick that failed is proposed again after this time: openraft refuses at once while no majority
/// acknowledges the leader, and may notice that sooner than [`TermOfOffice::look`] does.
const TICK_AGAIN: Duration = Duration::from_millis(20);
/// While others work, the leader rests after a Tick that has left something over: so many times as
/// long as the Tick took, at most so long. A million jobs that fall due at once then share the
/// nodes with everybody instead of taking them.
const STORM_REST_FACTOR: u32 = 2;
const STORM_REST_MAX: Duration = Duration::from_millis(20);
/// What is late by more than this gets Ticks of its own even if clients' entries, which take some of
/// it along, never let the leader come to rest.
const LATE_MAX: Duration = Duration::from_millis(250);
/// An OpenOrigin is proposed again after this time.
const OPEN_INTERVAL: Duration = Duration::from_millis(300);

type Settled = (What, Result<u64, String>);

/// What a receipt is for.
enum What {
    Batches(Vec<OriginId>),
    Tick,
    Commands(Option<oneshot::Sender<Result<u64, String>>>),
}

struct Stream {
    origin: OriginId,
    down: mpsc::Sender<Down>,
    pings: u64,
    /// Number, sent when, with which commit.
    sent: VecDeque<(u64, Instant, u64)>,
}

/// One node's leading in one term.
pub(super) struct TermOfOffice {
    core: Arc<Inner>,
    consensus: Consensus,
    term: u64,
    shared: Arc<Shared>,
    /// The last `at` that was stamped.
    last: Timestamp,
    merger: Merger,
    presence: Presence,
    streams: BTreeMap<u64, Stream>,
    receipts: FuturesUnordered<BoxFuture<'static, Settled>>,
    /// A Tick is outstanding.
    tick: bool,
    /// When the last one failed.
    tick_failed: Option<Instant>,
    /// When the last one was proposed, and when the next may be if there was more to do.
    tick_began: Instant,
    tick_rests: Instant,
    /// When an entry of clients was proposed last.
    others: Option<Instant>,
    proposed_open: BTreeMap<OriginId, Instant>,
    checks: u64,
    took_office: Instant,
    acknowledged: Acknowledged,
}

impl TermOfOffice {
    /// The log is known to its end: `last` is its last `at`.
    pub(super) fn new(
        core: Arc<Inner>,
        consensus: Consensus,
        term: u64,
        shared: Arc<Shared>,
        last: Timestamp,
        now: Instant,
    ) -> Self {
        Self {
            core,
            consensus,
            term,
            shared,
            last,
            merger: Merger::default(),
            presence: Presence::new(now),
            streams: BTreeMap::new(),
            receipts: FuturesUnordered::new(),
            tick: planted(Bug::TtrLostAtFailover) && last > Timestamp(0),
            tick_failed: None,
            tick_began: now,
            tick_rests: now,
            others: None,
            proposed_open: BTreeMap::new(),
            checks: 0,
            took_office: now,
            acknowledged: Acknowledged::new(now),
        }
    }

    /// Leads until the role is another.
    pub(super) async fn serve(
        mut self,
        mut events: mpsc::Receiver<OfficeEvent>,
        mut role: watch::Receiver<Role>,
    ) {
        let mut applied = self.consensus.applied();
        let mut looks = tokio::time::interval(CHECK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = self.fall_due().await;
            tokio::select! {
                changed = role.changed() => {
                    if changed.is_err() || role.borrow_and_update().leads() != Some(self.term) {
                        break;
                    }
                }
                Some(event) = events.recv() => {
                    self.hear(event).await;
                    self.hear_all(&mut events).await;
                    self.propose_batches().await;
                }
                Some(settled) = self.receipts.next() => {
                    self.settle(settled);
                    self.hear_all(&mut events).await;
                    self.propose_batches().await;
                }
                _ = looks.tick() => self.look().await,
                () = tokio::time::sleep(due.unwrap_or(Duration::MAX)), if due.is_some() => {}
                changed = applied.changed(), if !self.tick => {
                    if changed.is_err() {
                        break;
                    }
                }
            }
        }
        self.end_all(Reason::NotLeader);
    }

    /// Hears what is at hand, and what those who are about to run have to say: it rides together.
    async fn hear_all(&mut self, events: &mut mpsc::Receiver<OfficeEvent>) {
        tokio::task::yield_now().await;
        while let Ok(event) = events.try_recv() {
            self.hear(event).await;
        }
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now(crate::now())
    }

    /// How long ago it sent what a majority acknowledged last.
    fn quorum_age(&self, now: Instant) -> Duration {
        if planted(Bug::IsolatedLeaderServes) {
            return Duration::ZERO;
        }
        self.consensus
            .quorum_ack_age()
            .unwrap_or_else(|| now.saturating_duration_since(self.took_office))
    }

    fn silent(&self) -> bool {
        *self.shared.silent.lock()
    }

    /// Proposes a Tick if something is due; else how long until something is.
    async fn fall_due(&mut self) -> Option<Duration> {
        if self.tick || self.silent() {
            return None;
        }
        let (next, applied) = self
            .consensus
            .with_machine(|machine| (machine.next_due(), machine.now()));
        let (next, now) = (next?, self.now());
        let mut rest = self
            .tick_failed
            .map(|failed| TICK_AGAIN.saturating_sub(crate::since(failed)))
            .unwrap_or_default();
        if next <= applied {
            // The bound of an entry has left it over.
            let late = Duration::from_millis(now.ms_since(next));
            if self.merger.is_busy() && late <= LATE_MAX {
                // What is on its way takes some of it along, and this is asked again when it is applied.
                return None;
            }
            rest = rest.max(self.tick_rests.saturating_duration_since(crate::now()));
        }
        if next > now || !rest.is_zero() {
            return Some(rest.max(Duration::from_millis(next.ms_since(now))));
        }
        self.tick = true;
        self.tick_began = crate::now();
        self.propose(Vec::new(), vec![LeaderCommand::Tick], What::Tick)
            .await;
        None
    }

    async fn hear(&mut self, event: OfficeEvent) {
        match event {
            OfficeEvent::Open {
                stream,
                origin,
                down,
            } => {
                if self.silent() {
                    end(&down, Reason::NotLeader);
                    return;
                }
                if let Some(before) = self.merger.open(origin, stream)
                    && let Some(before) = self.streams.remove(&before)
                {
                    end(&before.down, Reason::Doubt);
                }
                debug!(%origin, stream, "stream opened");
                self.streams.insert(
                    stream,
                    Stream {
                        origin,
                        down,
                        pings: 0,
                        sent: VecDeque::new(),
                    },
                );
                self.ping(stream);
                self.open_origin(origin).await;
            }
            OfficeEvent::Batch {
                stream,
                origin,
                seq,
                commands,
                bytes,
            } => {
                if self.streams.contains_key(&stream)
                    && let Err(reason) = self.merger.take(origin, stream, seq, commands, bytes)
                {
                    self.end_stream(stream, reason);
                }
            }
            OfficeEvent::Pong {
                stream,
                number,
                applied,
            } => {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    while let Some((sent, at, committed)) = stream.sent.front().copied()
                        && sent <= number
                    {
                        if sent == number {
                            self.presence
                                .answered(stream.origin, at, committed, applied);
                        }
                        stream.sent.pop_front();
                    }
                }
            }
            OfficeEvent::Closed { stream } => {
                if let Some(gone) = self.streams.remove(&stream) {
                    self.merger.close(gone.origin);
                }
            }
            OfficeEvent::Lead { commands, done } => {
                self.propose(Vec::new(), commands, What::Commands(Some(done)))
                    .await;
            }
        }
    }

    async fn propose_batches(&mut self) {
        while !self.silent()
            && let Some(merged) = self.merger.merge()
        {
            self.others = Some(crate::now());
            self.propose(merged.batches, Vec::new(), What::Batches(merged.origins))
                .await;
        }
    }

    async fn propose(&mut self, batches: Vec<Bytes>, leader: Vec<LeaderCommand>, what: What) {
        self.last = self.last.max(self.now());
        let payload = Payload {
            at: self.last,
            batches,
            leader: leader.iter().map(encode_leader).collect(),
        };
        let proposing = self.consensus.propose(self.term, payload);
        let proposed = tokio::time::timeout(PROPOSE_MAX, proposing)
            .await
            .map_err(|_| "consensus takes nothing".to_owned())
            .and_then(|proposed| proposed.map_err(|error| error.to_string()));
        match proposed {
            Ok(receipt) => self.receipts.push(Box::pin(async move {
                let result = receipt.await.map_err(|error| error.to_string());
                (what, result)
            })),
            // It may be in the log all the same; whoever sends it again is recognised.
            Err(error) => self.settle((what, Err(error))),
        }
    }

    fn settle(&mut self, (what, result): Settled) {
        match what {
            What::Batches(origins) => {
                self.merger.settled();
                if let Err(error) = result {
                    debug!(error, "a proposal failed; its origins send again");
                    let doubtful: Vec<u64> = self
                        .streams
                        .iter()
                        .filter(|(_, stream)| origins.contains(&stream.origin))
                        .map(|(id, _)| *id)
                        .collect();
                    for stream in doubtful {
                        self.end_stream(stream, Reason::Doubt);
                    }
                }
            }
            What::Tick => {
                self.tick = false;
                let now = crate::now();
                self.tick_failed = result.is_err().then_some(now);
                if crate::others_work(self.others, now) {
                    let took = now.saturating_duration_since(self.tick_began);
                    self.tick_rests = now + (took * STORM_REST_FACTOR).min(STORM_REST_MAX);
                }
            }
            What::Commands(done) => {
                if let Err(error) = &result {
                    debug!(error, "a leader's command failed");
                }
                if let Some(done) = done {
                    // Nobody may wait for it any more.
                    let _ = done.send(result);
                }
            }
        }
    }

    async fn look(&mut self) {
        let now = crate::now();
        self.checks += 1;
        let age = self.quorum_age(now);
        self.acknowledged.seen(age, now);
        if age > self.core.settings.election_timeout_max {
            if !std::mem::replace(&mut *self.shared.silent.lock(), true) {
                warn!(
                    term = self.term,
                    age = ?self.acknowledged.age(now),
                    "no majority acknowledges this leader"
                );
            }
            self.end_all(Reason::NotLeader);
            return;
        }
        if std::mem::replace(&mut *self.shared.silent.lock(), false) {
            info!(
                term = self.term,
                "a majority acknowledges this leader again"
            );
            self.presence.start_again(now);
        }
        let views: Vec<_> = self
            .consensus
            .with_machine(|machine| machine.origins().collect());
        let commands =
            self.presence
                .check(now, CHECK_INTERVAL, self.core.settings.node_lease, views);
        *self.shared.present.lock() = self.presence.present(now);
        if !commands.is_empty() {
            info!(?commands, "origins");
            self.propose(Vec::new(), commands, What::Commands(None))
                .await;
        }
        let wanting: Vec<OriginId> = self.streams.values().map(|stream| stream.origin).collect();
        self.proposed_open
            .retain(|origin, _| wanting.contains(origin));
        for origin in wanting {
            self.open_origin(origin).await;
        }
        if self.checks.is_multiple_of(CHECKS_PER_PING) {
            let streams: Vec<u64> = self.streams.keys().copied().collect();
            for stream in streams {
                self.ping(stream);
            }
        }
    }

    /// Proposes to open an origin that has a stream and that the machine does not know yet.
    async fn open_origin(&mut self, origin: OriginId) {
        let (new, retired) = self.consensus.with_machine(|machine| {
            let known = machine.origin(origin.node).map(|view| view.highest_run);
            (
                known.is_none_or(|run| run < origin.run),
                machine.is_retired(origin.node),
            )
        });
        let now = crate::now();
        if !new || retired {
            self.proposed_open.remove(&origin);
            return;
        }
        if self
            .proposed_open
            .get(&origin)
            .is_none_or(|at| now.saturating_duration_since(*at) >= OPEN_INTERVAL)
        {
            self.proposed_open.insert(origin, now);
            self.propose(
                Vec::new(),
                vec![LeaderCommand::OpenOrigin(origin)],
                What::Commands(None),
            )
            .await;
        }
    }

    fn ping(&mut self, id: u64) {
        let at = self.now();
        let now = crate::now();
        let Some(origin) = self.streams.get(&id).map(|stream| stream.origin) else {
            return;
        };
        let ended = self.consensus.with_machine(|machine| {
            machine
                .origin(origin.node)
                .is_some_and(|view| view.highest_run >= origin.run && view.open != Some(origin))
        });
        let committed = self.consensus.committed();
        let age = self.quorum_age(now);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.pings += 1;
        stream.sent.push_back((stream.pings, now, committed));
        if stream.sent.len() > PINGS_KEPT {
            stream.sent.pop_front();
        }
        let ping = pb::Ping {
            number: stream.pings,
            at: at.0,
            quorum_age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            committed,
            accepted: self.merger.accepted(origin),
            ended,
        };
        if stream.down.try_send(Down::Ping(ping)).is_err() {
            // It is gone, or takes nothing.
            self.end_stream(id, Reason::Doubt);
        }
    }

    fn end_stream(&mut self, id: u64, reason: Reason) {
        if let Some(stream) = self.streams.remove(&id) {
            debug!(origin = %stream.origin, stream = id, ?reason, "stream ends");
            self.merger.close(stream.origin);
            end(&stream.down, reason);
        }
    }

    fn end_all(&mut self, reason: Reason) {
        let all: Vec<u64> = self.streams.keys().copied().collect();
        for stream in all {
            self.end_stream(stream, reason);
        }
    }
}

/// Says why, if there is room to say it; the end itself comes with the dropped sender.
fn end(down: &mpsc::Sender<Down>, reason: Reason) {
    let _ = down.try_send(Down::End(pb::ForwardEnd {
        reason: reason.into(),
    }));
}
