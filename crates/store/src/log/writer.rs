use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use openraft::storage::IOFlushed;
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::{Notify, oneshot};
use trellis_consensus::raft::TypeConfig;
use trellis_types::seeded::{Bug, planted};

use super::engine::{LogEngine, Step};
use super::view::{View, end_of};
use super::{Entry, LogId, Vote, names};
use crate::codec;
use crate::failure::Failure;
use crate::gate::Gate;
use crate::metrics::LogMetrics;
use crate::options::LogOptions;

/// What the store, its readers and its writer thread share.
pub(super) struct Shared {
    pub(super) options: LogOptions,
    pub(super) engine: Arc<dyn LogEngine>,
    pub(super) failure: Failure,
    pub(super) gate: Arc<Gate>,
    pub(super) metrics: LogMetrics,
    pub(super) view: RwLock<View>,
    queue: Mutex<Queue>,
    work: Condvar,
    room: Notify,
}

/// What waits for the writer, in order: votes, appends, truncations and purges share it.
#[derive(Default)]
struct Queue {
    ops: VecDeque<Op>,
    bytes: usize,
    /// Since when a write is under way, if there is one.
    writing: Option<Instant>,
    /// No more work comes; what is there is still written.
    closed: bool,
    /// The writer is gone: nothing would ever be written.
    dead: bool,
}

struct Op {
    since: Instant,
    bytes: usize,
    what: What,
}

/// One thing to write, and whom to tell when it is on disk.
pub(super) enum What {
    Append {
        entries: Vec<Entry>,
        done: IOFlushed<TypeConfig>,
    },
    Vote {
        vote: Vote,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Removes what is behind `after` and below `end`.
    Truncate {
        after: Option<LogId>,
        end: u64,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Removes what is from `start` up to `upto`.
    Purge { start: u64, upto: LogId },
}

impl Shared {
    pub(super) fn new(
        options: LogOptions,
        engine: Arc<dyn LogEngine>,
        failure: Failure,
        gate: Arc<Gate>,
        view: View,
    ) -> Self {
        Self {
            options,
            engine,
            failure,
            gate,
            metrics: LogMetrics::default(),
            view: RwLock::new(view),
            queue: Mutex::default(),
            work: Condvar::new(),
            room: Notify::new(),
        }
    }

    /// Queues one thing; it is written with everything else that waits then.
    pub(super) fn submit(&self, bytes: usize, what: What) -> io::Result<()> {
        self.failure.check()?;
        let mut queue = self.queue.lock();
        if queue.dead || queue.closed {
            return Err(io::Error::other("the log is closed"));
        }
        queue.bytes += bytes;
        queue.ops.push_back(Op {
            since: Instant::now(),
            bytes,
            what,
        });
        self.work.notify_one();
        Ok(())
    }

    /// Waits until the queue has room. One item of any size is let in when it is empty.
    pub(super) async fn room(&self) -> io::Result<()> {
        loop {
            let freed = self.room.notified();
            self.failure.check()?;
            if self.queue.lock().bytes < self.options.queue_bytes {
                return Ok(());
            }
            freed.await;
        }
    }

    /// For how long nothing has come onto the disk although something waits for it. A long queue
    /// before a disk that moves is no hang.
    pub(super) fn outstanding(&self) -> Option<Duration> {
        let queue = self.queue.lock();
        let since = queue
            .writing
            .or_else(|| queue.ops.front().map(|op| op.since))?;
        Some(since.elapsed())
    }

    /// Something failed: those who wait for room should not go on.
    pub(super) fn wake(&self) {
        self.room.notify_waiters();
        self.gate.wake();
    }

    /// What waits is still written; then the writer ends.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.work.notify_all();
    }

    /// Takes what waits, as much as goes with one sync. `None` when there will be nothing more.
    fn take(&self) -> Option<VecDeque<Op>> {
        let mut queue = self.queue.lock();
        queue.writing = None;
        while queue.ops.is_empty() {
            if queue.closed {
                queue.dead = true;
                return None;
            }
            self.work.wait(&mut queue);
        }
        let mut bytes = 0;
        let mut count = 0;
        for op in &queue.ops {
            if count > 0 && bytes + op.bytes > self.options.batch_bytes {
                break;
            }
            bytes += op.bytes;
            count += 1;
        }
        let rest = queue.ops.split_off(count);
        let taken = std::mem::replace(&mut queue.ops, rest);
        queue.writing = taken.front().map(|_| Instant::now());
        queue.bytes -= bytes;
        self.room.notify_waiters();
        Some(taken)
    }

    /// Nothing will be written any more: says so to everybody who waits.
    fn give_up(&self, ops: VecDeque<Op>, reason: &str) {
        let waiting = {
            let mut queue = self.queue.lock();
            queue.dead = true;
            queue.bytes = 0;
            std::mem::take(&mut queue.ops)
        };
        for op in ops.into_iter().chain(waiting) {
            let error = io::Error::other(reason.to_owned());
            match op.what {
                What::Append { done, .. } => done.io_completed(Err(error)),
                // Who does not listen any more does not need to know.
                What::Vote { done, .. } | What::Truncate { done, .. } => {
                    let _ = done.send(Err(error));
                }
                What::Purge { .. } => {}
            }
        }
    }
}

/// The only one who writes. Everything that was queued while the previous sync ran goes with the
/// next one.
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// The last entry on disk.
    flushed: Option<LogId>,
    /// What the disk says is committed.
    committed: Option<LogId>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        flushed: Option<LogId>,
        committed: Option<LogId>,
    ) -> Self {
        Self {
            shared,
            flushed,
            committed,
        }
    }

    pub(super) fn run(mut self) {
        let shared = self.shared.clone();
        while let Some(ops) = shared.take() {
            if shared.failure.happened() {
                shared.give_up(ops, "an earlier write failed");
                break;
            }
            let mut written = self.write(&ops);
            if written.is_err() && planted(Bug::FsyncErrorTrusted) {
                written = self.write(&ops);
            }
            match written {
                Ok(()) => self.acknowledge(ops),
                Err(error) => {
                    let error = shared
                        .failure
                        .because("the raft log can't be written", &error);
                    shared.give_up(ops, &error.to_string());
                    break;
                }
            }
        }
    }

    /// One write with one sync for all of `ops`.
    fn write(&mut self, ops: &VecDeque<Op>) -> io::Result<()> {
        let frames: Vec<(u64, Bytes)> = ops
            .iter()
            .filter_map(|op| match &op.what {
                What::Append { entries, .. } => Some(entries),
                _ => None,
            })
            .flatten()
            .map(|entry| (codec::index(entry), entry.to_bytes()))
            .collect();
        let mut next_frame = frames.iter();

        let mut steps = Vec::with_capacity(frames.len() + 4);
        let mut last = self.flushed;
        let mut truncated = false;
        for op in ops {
            match &op.what {
                What::Append { entries, .. } => {
                    for (index, frame) in next_frame.by_ref().take(entries.len()) {
                        steps.push(Step::Put {
                            index: *index,
                            frame,
                        });
                    }
                    if let Some(entry) = entries.last() {
                        last = Some(codec::log_id(entry));
                    }
                }
                What::Vote { vote, .. } => steps.push(Step::Name {
                    name: names::VOTE,
                    value: codec::encode_vote(vote),
                }),
                What::Truncate { after, end, .. } => {
                    truncated = true;
                    last = *after;
                    steps.push(Step::Remove {
                        range: end_of(after)..*end,
                    });
                }
                What::Purge { start, upto } => {
                    if upto.index >= end_of(&last) {
                        last = Some(*upto);
                    }
                    if *start <= upto.index {
                        steps.push(Step::Remove {
                            range: *start..upto.index + 1,
                        });
                    }
                    steps.push(Step::Name {
                        name: names::PURGED,
                        value: codec::encode_log_id(upto),
                    });
                }
            }
        }
        if !truncated
            && let Some(committed) = self.committed_upto(&last)
            && self.committed.as_ref() != Some(&committed)
        {
            steps.push(Step::Name {
                name: names::COMMITTED,
                value: codec::encode_log_id(&committed),
            });
            self.committed = Some(committed);
        }
        if !steps.is_empty() {
            let began = Instant::now();
            self.shared.engine.write(&steps)?;
            let metrics = &self.shared.metrics;
            metrics.sync_seconds.observe(began.elapsed().as_secs_f64());
            metrics.entries_per_sync.observe(frames.len() as f64);
            metrics.entries.inc_by(frames.len() as u64);
            metrics
                .bytes
                .inc_by(frames.iter().map(|(_, frame)| frame.len() as u64).sum());
        }
        self.flushed = last;
        Ok(())
    }

    /// What may be stored as committed together with a log that ends with `last`: a node that
    /// starts with a `committed` beyond its log can't start at all.
    ///
    /// A truncation returns only when it is on disk and nothing is committed that is truncated
    /// later, so below `committed` the log on disk is the committed one.
    fn committed_upto(&self, last: &Option<LogId>) -> Option<LogId> {
        let committed = self.shared.view.read().committed?;
        let last = (*last)?;
        Some(if committed.index <= last.index {
            committed
        } else {
            last
        })
    }

    /// Tells everybody in order that what they asked for is on disk.
    fn acknowledge(&self, ops: VecDeque<Op>) {
        let shared = self.shared.clone();
        let end = end_of(&self.flushed);
        {
            let mut view = shared.view.write();
            view.tail.evict(shared.options.tail_bytes, end);
            for op in &ops {
                if let What::Vote { vote, .. } = &op.what {
                    view.vote = Some(*vote);
                }
            }
            shared
                .metrics
                .tail_bytes
                .set(as_gauge(view.tail.bytes() as u64));
        }
        shared.gate.set_flushed(end.checked_sub(1));
        shared
            .metrics
            .flushed_index
            .set(as_gauge(end.saturating_sub(1)));
        for op in ops {
            match op.what {
                What::Append { done, .. } => done.io_completed(Ok(())),
                // Who does not listen any more does not need to know.
                What::Vote { done, .. } | What::Truncate { done, .. } => {
                    let _ = done.send(Ok(()));
                }
                What::Purge { .. } => {}
            }
        }
        shared
            .metrics
            .held_bytes
            .set(as_gauge(shared.gate.held_bytes()));
    }
}

/// Gauges are signed.
fn as_gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
