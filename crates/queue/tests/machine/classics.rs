//! What other systems got wrong, each in a story of its own: `cargo xtask seeded-bugs` plants these and
//! looks here first.

use trellis_queue::{Fate, Machine};
use trellis_types::JobId;

use crate::story::{Story, put};

/// A process that was started again and has nothing but its rows.
fn restart(story: &mut Story) {
    let rows: Vec<_> = story.machine.rows().collect();
    story.machine = Machine::load(rows).expect("a sound image");
}

#[test]
fn what_was_carried_out_before_a_restart_is_not_carried_out_again_behind_it() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = || vec![(ann, put("mail", 0, 0, 60, "letter"))];
    assert!(matches!(
        story.send(ann.origin, 1, letter()),
        Fate::Applied(_)
    ));
    restart(&mut story);
    assert_eq!(story.send(ann.origin, 1, letter()), Fate::Duplicate);
    assert_eq!(story.server().total_jobs, 1);
}

#[test]
fn the_id_of_a_deleted_job_does_not_come_back_behind_a_restart() {
    let mut story = Story::begins();
    let ann = story.person();
    for id in 1..=3 {
        assert_eq!(story.put(ann, "mail"), JobId(id));
    }
    story.delete(ann, JobId(3));
    restart(&mut story);
    assert_eq!(story.put(ann, "mail"), JobId(4));
}

#[test]
fn a_ttr_ends_behind_a_restart_as_it_would_have_before() {
    let mut story = Story::begins();
    let ann = story.person();
    story.at(1);
    let letter = story.put_as(ann, "mail", 0, 0, 10);
    assert_eq!(story.takes(ann, &["mail"]), Some(letter));
    restart(&mut story);
    story.at(11).tick();
    assert_eq!(story.state(letter), "reserved");
    story.at_ms(11_001).tick();
    assert_eq!(story.state(letter), "ready");
}

#[test]
fn who_hung_up_gets_nothing_any_more() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.waits(bob, &["mail"]);
    story.leaves(bob);
    let letter = story.put(ann, "mail");
    assert_eq!(story.state(letter), "ready");
    assert_eq!(story.takes(ann, &["mail"]), Some(letter));
}

#[test]
fn what_a_closed_session_held_goes_out_in_the_order_of_reservation() {
    let mut story = Story::begins();
    let ann = story.person();
    // So many that no accident brings them into this order.
    let jobs: Vec<JobId> = (0..12).map(|_| story.put(ann, "mail")).collect();
    for job in &jobs {
        assert_eq!(story.takes(ann, &["mail"]), Some(*job));
    }
    let waiting: Vec<_> = jobs.iter().map(|_| story.person()).collect();
    for who in &waiting {
        story.waits(*who, &["mail"]);
    }
    story.leaves(ann);
    let got: Vec<_> = waiting.iter().filter_map(|who| story.gets(*who)).collect();
    assert_eq!(got, jobs);
}
