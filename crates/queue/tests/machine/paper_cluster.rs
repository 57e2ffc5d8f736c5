//! A cluster on paper: several machines fed one log, with restarts from an image at random points
//! and replays; no network, no disk, exact.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};
use trellis_queue::{Change, Content, Entry, Event, Fate, Key, Machine, Outcome, Row};
use trellis_types::JobId;

use crate::random::{self, Author};

/// What a node keeps on disk: the rows that changes named, and nothing else.
#[derive(Default)]
struct Mirror {
    rows: BTreeMap<Key, Row>,
    bodies: BTreeMap<JobId, usize>,
}

impl Mirror {
    fn follow(&mut self, machine: &Machine, outcome: &Outcome) {
        for change in &outcome.changes {
            match change {
                Change::Body { job, body } => {
                    self.bodies.insert(*job, body.len());
                }
                Change::Row(key) => match machine.row(*key) {
                    Some(row) => {
                        assert_eq!(row.key(), *key);
                        self.rows.insert(*key, row);
                    }
                    None => {
                        self.rows.remove(key);
                        if let Key::Job(job) = key {
                            self.bodies.remove(job);
                        }
                    }
                },
            }
        }
    }
}

/// A node that stops now and then and starts again from its mirror.
struct Replica {
    machine: Machine,
    mirror: Mirror,
}

impl Replica {
    fn apply(&mut self, entry: &Entry) -> Outcome {
        let outcome = self.machine.apply(entry);
        self.mirror.follow(&self.machine, &outcome);
        outcome
    }

    fn restart(&mut self) {
        self.machine = Machine::load(self.mirror.rows.values().cloned()).expect("a sound mirror");
    }
}

proptest! {
    /// P7: the same applied index means the same state, by whatever way it was reached.
    #[test]
    fn replicas_that_restart_stay_equal(
        log in random::log(1..60),
        restarts in vec(0..6_u32, 60),
    ) {
        let mut steady = Machine::new();
        let mut restless = Replica { machine: Machine::new(), mirror: Mirror::default() };
        let mut author = Author::default();
        let mut entries = vec![random::opening()];
        steady.apply(&entries[0]);
        restless.apply(&entries[0]);
        for (draft, luck) in log.iter().zip(&restarts) {
            let entry = author.write(draft, &steady);
            if *luck == 0 {
                restless.restart();
            }
            prop_assert_eq!(steady.apply(&entry), restless.apply(&entry), "{:?}", entry);
            prop_assert_eq!(steady.digest(), restless.machine.digest(), "{:?}", entry);
            prop_assert_eq!(&steady, &restless.machine);
            entries.push(entry);
        }
        prop_assert_eq!(restless.machine.check(), Ok(()));

        // The disk has a body for every job and a row for everything.
        for row in steady.rows() {
            if let Row::Job(job) = &row {
                prop_assert_eq!(
                    restless.mirror.bodies.get(&job.id),
                    Some(&(job.body_bytes as usize))
                );
            }
            let untouched_default = matches!(&row, Row::Tube(tube) if tube.name.is_default());
            if !untouched_default {
                prop_assert_eq!(restless.mirror.rows.get(&row.key()), Some(&row));
            }
        }
        prop_assert!(restless.mirror.rows.len() as u64 <= steady.rows().count() as u64);

        // A third node joins late with a snapshot, the rows in another order.
        let mut rows: Vec<Row> = steady.rows().collect();
        rows.reverse();
        let late = Machine::load(rows).expect("a sound snapshot");
        prop_assert_eq!(&steady, &late);
        prop_assert_eq!(steady.digest(), late.digest());

        // And a fourth reads the whole log from the start.
        let mut patient = Machine::new();
        for entry in &entries {
            patient.apply(entry);
        }
        prop_assert_eq!(&steady, &patient);
    }

    /// P4: after a doubt a node sends again everything not yet applied, and more than that does no
    /// harm: a batch is carried out once.
    #[test]
    fn a_batch_sent_again_changes_nothing(log in random::log(1..40)) {
        let mut machine = Machine::new();
        let mut author = Author::default();
        machine.apply(&random::opening());
        for draft in &log {
            let entry = author.write(draft, &machine);
            machine.apply(&entry);
            let Content::Batches(batches) = &entry.content else { continue };
            // What else is due comes first, so that only the batches could change anything.
            while machine.next_due().is_some_and(|at| at <= machine.now()) {
                machine.apply(&Entry { at: machine.now(), content: Content::Batches(vec![]) });
            }
            let (before, digest) = (machine.clone(), machine.digest());
            let holes = batches
                .iter()
                .filter(|batch| {
                    machine.origin(batch.origin.node).is_some_and(|known| {
                        known.open == Some(batch.origin) && batch.seq > known.last_seq
                    })
                })
                .count();
            if holes > 0 {
                continue;
            }
            let again = machine.apply(&Entry { at: machine.now(), content: entry.content.clone() });
            for event in &again.events {
                prop_assert!(
                    matches!(event, Event::Batch { fate: Fate::Duplicate | Fate::NotOpen, .. }),
                    "{:?}", event
                );
            }
            prop_assert_eq!(&machine, &before);
            prop_assert_eq!(machine.digest(), digest);
        }
    }
}
