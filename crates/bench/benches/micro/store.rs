//! What the log costs for each entry, with and without the disk's part, and what apply costs with the mirror behind it.
//! Allocations are those of the whole process, the log's and the mirror's own threads among them.

use std::sync::Arc;

use bytes::Bytes;
use criterion::Criterion;
use openraft::entry::RaftEntry;
use openraft::storage::IOFlushed;
use openraft::type_config::TypeConfigExt;
use trellis_consensus::raft::{Entry as Line, RaftLogStorage, TypeConfig};
use trellis_consensus::{Payload, Position, StateStore};
use trellis_queue::{Command, Content, Entry, Machine};
use trellis_rpc::queue::encode_batch;
use trellis_store::{LogStore, Opened, Store, StoreOptions};
use trellis_types::{JobId, NodeId, Timestamp};

use crate::costs::{BATCH, Cost, batch, open, per_command, put};

/// A store in a folder of its own.
struct Place {
    opened: Opened,
    runtime: tokio::runtime::Runtime,
    next: u64,
    /// Removed last.
    _dir: tempfile::TempDir,
}

impl Place {
    fn new(sync: bool) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut options = StoreOptions {
            fail_stop: Arc::new(|why| panic!("{why}")),
            damaged: Arc::new(|why| panic!("{why}")),
            ..StoreOptions::default()
        };
        options.log.sync = sync;
        Self {
            opened: Store::open(&dir.path().join("data"), options).expect("an empty store opens"),
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime"),
            next: 0,
            _dir: dir,
        }
    }

    fn position(&mut self) -> Position {
        self.next += 1;
        Position {
            term: 1,
            leader: NodeId(7),
            index: self.next - 1,
        }
    }

    fn line(&mut self, frame: &Bytes) -> Line {
        let position = self.position();
        let payload = Payload {
            at: Timestamp(position.index),
            batches: vec![frame.clone()],
            leader: Vec::new(),
        };
        Line::new_normal(position.into(), payload)
    }

    /// Appends one entry and waits until it is on the disk.
    fn append(&mut self, line: Line) {
        append(&self.runtime, &mut self.opened.log, line);
    }
}

fn append(runtime: &tokio::runtime::Runtime, log: &mut LogStore, line: Line) {
    runtime.block_on(async {
        let (done, on_disk) = TypeConfig::oneshot();
        log.append(vec![line], IOFlushed::signal(done))
            .await
            .expect("the log takes it");
        on_disk
            .await
            .expect("the log answers")
            .expect("the disk holds");
    });
}

pub(crate) fn log(c: &mut Criterion) {
    for (name, sync, commands) in [
        ("log: append an entry of 1 put and sync", true, 1),
        ("log: append an entry of 256 puts and sync", true, BATCH),
        ("log: append an entry of 1 put, no sync", false, 1),
        ("log: append an entry of 256 puts, no sync", false, BATCH),
    ] {
        let mut place = Place::new(sync);
        let frame = encode_batch(&batch(1, &vec![(1, put(0)); commands]));
        per_command(c, name, |count| {
            let mut whole = Cost::default();
            // Fewer than are asked for, and counted up: an entry is large and a sync slow.
            let entries = count.min(200);
            for _ in 0..entries {
                let line = place.line(&frame);
                let (cost, ()) = Cost::of(|| place.append(line));
                whole.add(cost);
            }
            let scale = count as f64 / entries as f64;
            Cost {
                time: whole.time.mul_f64(scale),
                allocations: (whole.allocations as f64 * scale) as usize,
            }
        });
    }
}

pub(crate) fn mirror(c: &mut Criterion) {
    per_command(c, "apply and mirror: put", |count| {
        mirrored(count, |_, _| ())
    });
    per_command(c, "apply and mirror: put and later delete", |count| {
        mirrored(count, |apply, count| {
            let deletes: Vec<_> = (1..=count)
                .map(|number| (1, Command::Delete { job: JobId(number) }))
                .collect();
            apply(&deletes);
        })
    });
}

/// Puts, and what comes then, applied and recorded in the mirror; waits as apply does when two windows are full.
fn mirrored(count: u64, then: impl Fn(&mut dyn FnMut(&[(u64, Command)]), u64)) -> Cost {
    let mut place = Place::new(true);
    let frame = Bytes::from_static(b"x");
    let mut machine = Machine::new();
    machine.apply(&open());
    let mut seq = 0;
    let mut whole = Cost::default();
    let mut apply = |items: &[(u64, Command)]| {
        for items in items.chunks(BATCH) {
            seq += 1;
            let entry = Entry {
                at: Timestamp(seq),
                content: Content::Batches(vec![batch(seq, items)]),
            };
            // A window is written only when the log holds what is in it.
            let line = place.line(&frame);
            let position = Position {
                term: 1,
                leader: NodeId(7),
                index: place.next - 1,
            };
            place.append(line);
            let state = Arc::clone(&place.opened.state);
            let (cost, ()) = Cost::of(|| {
                let outcome = machine.apply(&entry);
                state
                    .record(position, None, &machine, outcome.changes)
                    .expect("the mirror takes it");
                if !state.has_room() {
                    place.runtime.block_on(state.room()).expect("room is made");
                }
            });
            whole.add(cost);
        }
    };
    let puts: Vec<_> = (0..count).map(|_| (1, put(0))).collect();
    apply(&puts);
    then(&mut apply, count);
    whole
}
