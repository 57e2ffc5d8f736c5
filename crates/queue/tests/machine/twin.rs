//! The machine beside its naive twin: whatever the log, both say the same and look the same.

use proptest::prelude::*;
use trellis_queue::Machine;
use trellis_types::{JobId, NodeId};

use crate::{
    naive::Naive,
    random::{self, Author},
};

proptest! {
    #[test]
    fn the_machine_does_what_its_naive_twin_does(log in random::log(1..80)) {
        let (mut machine, mut naive) = (Machine::new(), Naive::new());
        let mut author = Author::default();
        machine.apply(&random::opening());
        naive.apply(&random::opening());
        for draft in &log {
            let entry = author.write(draft, &machine);
            let events = machine.apply(&entry).events;
            prop_assert_eq!(events, naive.apply(&entry), "after {:?}", entry);
            prop_assert_eq!(machine.check(), Ok(()), "after {:?}", entry);
            compare(&machine, &naive)?;
        }
    }
}

fn compare(machine: &Machine, naive: &Naive) -> Result<(), TestCaseError> {
    prop_assert_eq!(machine.now(), naive.now);
    prop_assert_eq!(machine.next_due(), naive.next_due());
    prop_assert_eq!(machine.server(), naive.server());
    prop_assert_eq!(machine.tubes().cloned().collect::<Vec<_>>(), naive.tubes());
    prop_assert_eq!(machine.origins().collect::<Vec<_>>(), naive.origins());
    // The reader's clock may be ahead of the last entry.
    let now = machine.now().after_ms(700);
    for id in 0..=naive.jobs_put + 1 {
        prop_assert_eq!(machine.job(JobId(id), now), naive.job(JobId(id), now));
    }
    for tube in random::tubes() {
        prop_assert_eq!(machine.tube(&tube, now), naive.tube(&tube, now));
        prop_assert_eq!(machine.peek_ready(&tube), naive.first_ready(&tube));
        prop_assert_eq!(machine.peek_delayed(&tube), naive.first_delayed(&tube));
        prop_assert_eq!(machine.peek_buried(&tube), naive.first_buried(&tube));
        let watched = std::slice::from_ref(&tube);
        prop_assert_eq!(machine.would_reserve(watched), naive.would_reserve(watched));
        for known in machine.origins() {
            let Some(origin) = known.open else { continue };
            prop_assert_eq!(
                machine.has_reference(origin, &tube),
                naive.has_reference(origin, &tube)
            );
        }
    }
    for session in random::sessions(machine) {
        prop_assert_eq!(machine.holds_any(session), naive.holds_any(session));
        prop_assert_eq!(machine.is_waiting(session), naive.is_waiting(session));
    }
    for node in [1, 2, 3, 9].map(NodeId) {
        prop_assert_eq!(machine.is_retired(node), naive.is_retired(node));
    }
    Ok(())
}
