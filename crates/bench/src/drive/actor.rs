use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use trellis_types::{Priority, Seconds, TubeName};
use trellis_wire::beanstalk::{Reply, Request};

use super::connection::{Connection, Expected};
use super::tally::{Step, Tally};
use crate::plan::Mix;

/// Everybody's jobs are alike. The time to run is long, so that none is delivered twice.
const PRIORITY: Priority = Priority(1024);
const TTR: Seconds = Seconds(600);
/// Longer than any patience: a reserve that waits so long has found out that a job is lost.
const RESERVE_SECONDS: Seconds = Seconds(600);

/// One client, or a producer with its worker: what it has under way, and what it does next.
#[derive(Debug)]
pub(super) struct Actor {
    mix: Mix,
    /// Where it puts (and, in a cycle, reserves).
    pub(super) producer: usize,
    /// Where its jobs are delivered, with [`Mix::Delivery`].
    pub(super) worker: Option<usize>,
    depth: usize,
    body: Bytes,
    roaming: Option<Roaming>,
    in_flight: usize,
    /// In an open loop: due, and not sent since `depth` operations are under way.
    backlog: VecDeque<u64>,
    /// When the puts that were not yet delivered began; delivered in this order.
    undelivered: VecDeque<u64>,
    inserted: u64,
    finished_by_worker: u64,
    begun: u64,
}

/// The tubes that an actor goes through.
#[derive(Clone, Debug)]
pub(super) struct Roaming {
    tubes: Arc<[TubeName]>,
    at: usize,
}

impl Roaming {
    /// Begins at place `at` of some tubes, at least one.
    pub(super) fn new(tubes: Arc<[TubeName]>, at: usize) -> Self {
        Self { tubes, at }
    }

    fn next(&mut self) -> TubeName {
        // A step that meets all of them, since it has no divisor in common with a round number.
        self.at = (self.at + 7_919) % self.tubes.len();
        self.tubes[self.at].clone()
    }
}

/// What an actor may see and change while it acts.
pub(super) struct Stage<'a> {
    pub(super) connections: &'a mut [Connection],
    pub(super) tally: &'a mut Tally,
    /// Nanoseconds.
    pub(super) now: u64,
    pub(super) measured_from: u64,
    pub(super) until: u64,
    /// In an open loop an operation counts by when it was due, else by when it ended.
    pub(super) open_loop: bool,
}

impl Stage<'_> {
    fn counts(&self, begun: u64) -> bool {
        let moment = if self.open_loop { begun } else { self.now };
        (self.measured_from..self.until).contains(&moment)
    }

    fn record(&mut self, step: Step, since: u64, begun: u64) {
        if self.counts(begun) {
            self.tally.record(step, self.now.saturating_sub(since));
        }
    }

    fn operation_ended(&mut self) {
        if (self.measured_from..self.until).contains(&self.now) {
            self.tally.operations += 1;
        }
    }
}

impl Actor {
    pub(super) fn new(
        mix: Mix,
        producer: usize,
        worker: Option<usize>,
        depth: usize,
        body: Bytes,
        roaming: Option<Roaming>,
    ) -> Self {
        Self {
            mix,
            producer,
            worker,
            depth,
            body,
            roaming,
            in_flight: 0,
            backlog: VecDeque::new(),
            undelivered: VecDeque::new(),
            inserted: 0,
            finished_by_worker: 0,
            begun: 0,
        }
    }

    /// A worker waits before the first job comes.
    pub(super) fn prepare(&mut self, stage: &mut Stage<'_>) {
        if let Some(worker) = self.worker {
            let expected = Expected {
                step: Step::Delivery,
                since: stage.now,
                begun: stage.now,
            };
            stage.connections[worker].send(&Request::Reserve, expected);
        }
    }

    /// Closed loop: as many operations as may be under way.
    pub(super) fn fill(&mut self, stage: &mut Stage<'_>) {
        while self.in_flight < self.depth {
            self.begin(stage.now, stage);
        }
    }

    /// Open loop: an operation is due, or was a moment ago.
    pub(super) fn intend(&mut self, due: u64, stage: &mut Stage<'_>) {
        if self.in_flight < self.depth {
            self.begin(due, stage);
        } else {
            self.backlog.push_back(due);
        }
    }

    /// True if every operation that was begun has ended.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.backlog.is_empty()
    }

    /// Operations that were begun or due and have not ended.
    pub(super) fn unfinished(&self) -> usize {
        self.in_flight + self.backlog.len()
    }

    fn begin(&mut self, since: u64, stage: &mut Stage<'_>) {
        self.in_flight += 1;
        self.begun += 1;
        if let Some(roaming) = &mut self.roaming {
            let expected = Expected {
                step: Step::Use,
                since,
                begun: since,
            };
            stage.connections[self.producer].send(&Request::Use(roaming.next()), expected);
        }
        let put = Request::Put {
            priority: PRIORITY,
            delay: Seconds(0),
            ttr: TTR,
            body: self.body.clone(),
        };
        stage.connections[self.producer].send(
            &put,
            Expected {
                step: Step::Put,
                since,
                begun: since,
            },
        );
        if self.worker.is_some() {
            self.undelivered.push_back(since);
        }
    }

    /// An operation has ended, well or not; the next one begins if it may.
    fn end(&mut self, stage: &mut Stage<'_>) {
        self.in_flight -= 1;
        if stage.open_loop {
            if let Some(due) = self.backlog.pop_front() {
                self.begin(due, stage);
            }
        } else if stage.now < stage.until {
            self.begin(stage.now, stage);
        }
    }

    /// Takes the reply that was awaited as `expected`.
    pub(super) fn take(&mut self, reply: &Reply, expected: Expected, stage: &mut Stage<'_>) {
        let Expected { step, since, begun } = expected;
        match (step, reply) {
            (Step::Use, Reply::Using(_)) => stage.record(Step::Use, since, begun),
            (Step::Put, Reply::Inserted(_)) => {
                stage.record(Step::Put, since, begun);
                match self.mix {
                    Mix::Put => {
                        stage.operation_ended();
                        self.end(stage);
                    }
                    Mix::Cycle => {
                        let expected = Expected {
                            step: Step::Reserve,
                            since: stage.now,
                            begun,
                        };
                        let reserve = Request::ReserveWithTimeout(RESERVE_SECONDS);
                        stage.connections[self.producer].send(&reserve, expected);
                    }
                    Mix::Delivery => {
                        self.inserted += 1;
                        self.end_if_delivered(stage);
                    }
                }
            }
            (Step::Reserve, Reply::Reserved { job, .. }) => {
                stage.record(Step::Reserve, since, begun);
                let expected = Expected {
                    step: Step::Delete,
                    since: stage.now,
                    begun,
                };
                stage.connections[self.producer].send(&Request::Delete(*job), expected);
            }
            (Step::Delivery, Reply::Reserved { job, .. }) => {
                let (Some(worker), Some(put)) = (self.worker, self.undelivered.pop_front()) else {
                    return stage
                        .tally
                        .fail(|| format!("job {} was delivered and never put here", job.0));
                };
                stage.record(Step::Delivery, put, put);
                // It waits for the next one at once, so that the next put finds it waiting.
                let expected = |step| Expected {
                    step,
                    since: stage.now,
                    begun: put,
                };
                let (delete, reserve) = (expected(Step::Delete), expected(Step::Delivery));
                stage.connections[worker].send(&Request::Delete(*job), delete);
                stage.connections[worker].send(&Request::Reserve, reserve);
            }
            (Step::Delete, Reply::Deleted) => {
                stage.record(Step::Delete, since, begun);
                if self.worker.is_some() {
                    self.finished_by_worker += 1;
                    self.end_if_delivered(stage);
                } else {
                    stage.record(Step::Cycle, begun, begun);
                    stage.operation_ended();
                    self.end(stage);
                }
            }
            (step, other) => {
                let name = step.name();
                stage
                    .tally
                    .fail(|| format!("{name} was answered with {other:?}"));
                if step == Step::Use {
                    return;
                }
                // A pair whose put or delivery failed can't tell which job comes next; it stops.
                if self.worker.is_none() {
                    self.end(stage);
                }
            }
        }
    }

    /// With a worker, an operation has ended when both sides have their answer.
    fn end_if_delivered(&mut self, stage: &mut Stage<'_>) {
        if self.inserted.min(self.finished_by_worker) + self.in_flight as u64 > self.begun {
            stage.operation_ended();
            self.end(stage);
        }
    }
}
