#[cfg(feature = "model")]
mod model;

use std::{collections::VecDeque, time::Instant};

use bytes::Bytes;
use trellis_queue::{Command, Item};
use trellis_rpc::queue::BatchBuilder;
use trellis_types::{ConnectionId, OriginId, TubeName, limits};

/// Who is to be told what becomes of one item of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rider {
    /// A call of a client: the slot of that number.
    Call { connection: ConnectionId, slot: u64 },
    /// A reference of the origin itself; perhaps a `use` or `watch` waits for it.
    TubeRef {
        tube: TubeName,
        set: bool,
        waiter: Option<(ConnectionId, u64)>,
    },
    /// A half-closed client waits no longer.
    EndWait(ConnectionId),
    /// A session is over.
    CloseSession(ConnectionId),
}

/// A batch that has been handed to no leader yet: it may still grow or lose riders.
#[derive(Clone)]
pub(crate) struct Waiting {
    /// Its local name. Batches are handed in this order, and a name is never used again.
    pub(crate) number: u64,
    pub(crate) riders: Vec<Rider>,
    /// When the command that waits longest could first be submitted.
    pub(crate) oldest: Option<Instant>,
    builder: BatchBuilder,
    /// What it takes of the node-wide budget.
    budget: usize,
}

/// A batch that has been handed to a leader: its seq and bytes never change again.
#[derive(Clone)]
pub(crate) struct Handed {
    pub(crate) number: u64,
    pub(crate) seq: u64,
    pub(crate) bytes: Bytes,
    pub(crate) riders: Vec<Rider>,
    pub(crate) oldest: Option<Instant>,
    pub(crate) budget: usize,
}

/// The batches of one origin that are not applied yet, in order.
#[derive(Clone, Default)]
pub(crate) struct Batches {
    pub(crate) waiting: VecDeque<Waiting>,
    pub(crate) flight: VecDeque<Handed>,
    last_number: u64,
    last_seq: u64,
    /// All batches up to this number have been handed to some leader.
    handed: u64,
}

impl Batches {
    /// The number of the batch that an item of about `bytes` would travel in.
    pub(crate) fn number_for(&self, bytes: usize) -> u64 {
        match self.waiting.back() {
            Some(batch) if batch.admits(bytes) => batch.number,
            _ => self.last_number + 1,
        }
    }

    /// Puts an item into the growing batch, or into a new one if it does not fit.
    pub(crate) fn push(
        &mut self,
        item: &Item,
        rider: Rider,
        since: Option<Instant>,
        bytes: usize,
    ) -> u64 {
        if !self.waiting.back().is_some_and(|batch| batch.admits(bytes)) {
            self.last_number += 1;
            self.waiting.push_back(Waiting::new(self.last_number));
        }
        let Some(batch) = self.waiting.back_mut() else {
            return self.last_number;
        };
        batch.push(item, rider, since, bytes);
        batch.number
    }

    /// Whether a leader may have that batch: its fate is then not ours to decide.
    pub(crate) fn is_handed(&self, number: u64) -> bool {
        number <= self.handed
    }

    /// Whether what waits has to wait for one in flight: there are as many as may be, or what waits
    /// is small beside them and had better grow meanwhile.
    pub(crate) fn is_flight_full(&self) -> bool {
        let full = self.flight.len() >= limits::BATCHES_IN_FLIGHT_MAX;
        full || (self.waiting.len() < 2
            && self.waiting.front().is_some_and(|batch| {
                !batch.is_large() && batch.riders.len() < self.commands_in_flight()
            }))
    }

    fn commands_in_flight(&self) -> usize {
        self.flight.iter().map(|batch| batch.riders.len()).sum()
    }

    /// Closes the oldest waiting batch and gives it its seq.
    pub(crate) fn hand(&mut self, origin: OriginId) -> Option<&Handed> {
        if self.is_flight_full() {
            return None;
        }
        let batch = self.waiting.pop_front()?;
        self.last_seq += 1;
        self.handed = batch.number;
        self.flight.push_back(Handed {
            number: batch.number,
            seq: self.last_seq,
            bytes: batch.builder.finish(origin, self.last_seq),
            riders: batch.riders,
            oldest: batch.oldest,
            budget: batch.budget,
        });
        self.flight.back()
    }

    /// Makes the waiting batches again without the calls for which `keep` has nothing. The rest
    /// stays in the batch it was in: what travels together behind a reserve must not be parted.
    /// Returns the bytes that are free again.
    pub(crate) fn rebuild(
        &mut self,
        mut keep: impl FnMut(u64, ConnectionId, u64) -> Option<(Command, Option<Instant>, usize)>,
    ) -> usize {
        let mut freed = 0;
        for batch in &mut self.waiting {
            freed += batch.budget;
            let mut again = Waiting::new(batch.number);
            for rider in batch.riders.drain(..) {
                let (item, since, bytes) = match &rider {
                    Rider::Call { connection, slot } => {
                        match keep(batch.number, *connection, *slot) {
                            Some((command, since, bytes)) => (
                                Item {
                                    connection: *connection,
                                    command,
                                },
                                since,
                                bytes,
                            ),
                            None => continue,
                        }
                    }
                    own => (own_item(own), None, OWN_BYTES),
                };
                again.push(&item, rider, since, bytes);
            }
            freed -= again.budget;
            *batch = again;
        }
        self.waiting.retain(|batch| !batch.riders.is_empty());
        freed
    }

    /// What all of them take of the budget.
    pub(crate) fn budget(&self) -> usize {
        self.waiting.iter().map(|batch| batch.budget).sum::<usize>()
            + self.flight.iter().map(|batch| batch.budget).sum::<usize>()
    }

    /// Forgets everything but the numbers, for a new origin.
    pub(crate) fn begin_again(&mut self) {
        self.waiting.clear();
        self.flight.clear();
        self.last_seq = 0;
        self.handed = self.last_number;
    }
}

/// Bytes of an item of the origin itself, roughly.
pub(crate) const OWN_BYTES: usize = 64;

/// The item of a rider that is no call.
pub(crate) fn own_item(rider: &Rider) -> Item {
    match rider {
        Rider::TubeRef { tube, set, .. } => Item {
            connection: ConnectionId(0),
            command: Command::TubeRef {
                tube: tube.clone(),
                set: *set,
            },
        },
        Rider::EndWait(connection) => Item {
            connection: *connection,
            command: Command::EndWait,
        },
        Rider::CloseSession(connection) | Rider::Call { connection, .. } => Item {
            connection: *connection,
            command: Command::CloseSession,
        },
    }
}

impl Waiting {
    fn new(number: u64) -> Self {
        Self {
            number,
            riders: Vec::new(),
            oldest: None,
            builder: BatchBuilder::new(),
            budget: 0,
        }
    }

    fn admits(&self, bytes: usize) -> bool {
        self.riders.is_empty()
            || (self.riders.len() < limits::BATCH_COMMANDS_MAX
                && self.builder.bytes() + bytes <= limits::BATCH_BYTES_MAX)
    }

    fn is_large(&self) -> bool {
        self.riders.len() >= limits::LARGE_BATCH_COMMANDS_MIN
            || self.builder.bytes() >= limits::LARGE_BATCH_BYTES_MIN
    }

    fn push(&mut self, item: &Item, rider: Rider, since: Option<Instant>, bytes: usize) {
        self.builder.push(item);
        self.riders.push(rider);
        self.budget += bytes;
        if let Some(since) = since {
            self.oldest = Some(self.oldest.map_or(since, |oldest| oldest.min(since)));
        }
    }
}
