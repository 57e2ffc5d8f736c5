//! What the benchmarks of the floors below share: every allocation of the process is counted, and a command's cost is
//! its share of an entry's.

use std::alloc::System;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::Criterion;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use trellis_queue::{Batch, Command, Content, Entry, Item, LeaderCommand};
use trellis_types::{ConnectionId, NodeId, OriginId, Priority, Run, Seconds, Timestamp, TubeName};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Commands of one batch: what travels together under load.
pub(crate) const BATCH: usize = 256;
/// Commands of one measured run: what is prepared for it grows with it.
const RUN: u64 = 8_192;
/// Bytes of a job's body.
pub(crate) const BODY_BYTES: usize = 256;

/// The only origin.
pub(crate) const ORIGIN: OriginId = OriginId {
    node: NodeId(7),
    run: Run(1),
};

/// What one run took: time, and how often memory was asked for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) time: Duration,
    pub(crate) allocations: usize,
}

impl Cost {
    /// Of `act` alone; what it returns is thrown away later.
    pub(crate) fn of<T>(act: impl FnOnce() -> T) -> (Self, T) {
        let region = Region::new(ALLOCATOR);
        let begun = Instant::now();
        let done = act();
        let time = begun.elapsed();
        let change = region.change();
        let cost = Self {
            time,
            allocations: change.allocations + change.reallocations,
        };
        (cost, done)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.time += other.time;
        self.allocations += other.allocations;
    }
}

/// Reports what one of `count` commands costs, as `run` does them: criterion says the time, and a line of its own how
/// often memory is asked for.
pub(crate) fn per_command(criterion: &mut Criterion, name: &str, mut run: impl FnMut(u64) -> Cost) {
    let once = run(RUN);
    println!(
        "{name}: {:.2} allocations for each command",
        once.allocations as f64 / RUN as f64
    );
    criterion.bench_function(name, |bencher| {
        bencher.iter_custom(|commands| {
            let mut left = commands;
            let mut whole = Cost::default();
            while left > 0 {
                let portion = left.min(RUN);
                whole.add(run(portion));
                left -= portion;
            }
            whole.time
        });
    });
}

/// Short, so that all of them take a minute or two.
pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .without_plots()
        .configure_from_args()
}

pub(crate) fn tube(name: &str) -> TubeName {
    TubeName::parse(name.as_bytes()).expect("a name of a benchmark is a tube's")
}

pub(crate) fn put(delay: u32) -> Command {
    put_into("work", delay)
}

pub(crate) fn put_into(name: &str, delay: u32) -> Command {
    Command::Put {
        tube: tube(name),
        priority: Priority(1024),
        delay: Seconds(delay),
        ttr: Seconds(3600),
        body: Bytes::from(vec![b'x'; BODY_BYTES]),
    }
}

pub(crate) fn reserve() -> Command {
    Command::Reserve {
        tubes: vec![tube("work")],
        timeout: None,
    }
}

/// The leader's word that the origin may send batches.
pub(crate) fn open() -> Entry {
    Entry {
        at: Timestamp(1),
        content: Content::Leader(vec![LeaderCommand::OpenOrigin(ORIGIN)]),
    }
}

/// A batch of commands, each with its connection.
pub(crate) fn batch(seq: u64, items: &[(u64, Command)]) -> Batch {
    Batch {
        origin: ORIGIN,
        seq,
        items: items
            .iter()
            .map(|(connection, command)| Item {
                connection: ConnectionId(*connection),
                command: command.clone(),
            })
            .collect(),
    }
}
