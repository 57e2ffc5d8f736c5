//! The life of a job: put, delay, hold, expiry, and what is counted.

use trellis_queue::{Answer, Change, Command};
use trellis_types::{JobId, Priority, Seconds};

use crate::story::{Story, put};

/// 36.
#[test]
fn the_first_job_is_number_1_and_ids_rise_by_1_over_all_tubes() {
    let mut story = Story::begins();
    let ann = story.person();
    assert_eq!(story.put(ann, "mail"), JobId(1));
    assert_eq!(story.put(ann, "fax"), JobId(2));
    assert_eq!(story.put(ann, "mail"), JobId(3));
}

/// 138: an id is never used again, not even when nothing is left.
#[test]
fn a_deleted_jobs_id_does_not_come_back() {
    let mut story = Story::begins();
    let ann = story.person();
    for id in 1..=3 {
        assert_eq!(story.put(ann, "mail"), JobId(id));
        assert_eq!(story.delete(ann, JobId(id)), Answer::Deleted);
    }
    assert_eq!(story.put(ann, "mail"), JobId(4));
}

/// 37, 38: a body may be empty and is opaque; it leaves the machine once, as a copy of its own.
#[test]
fn a_body_goes_out_with_its_put() {
    let mut story = Story::begins();
    let ann = story.person();
    story.batch(vec![
        (ann, put("mail", 0, 0, 1, "")),
        (ann, put("mail", 0, 0, 1, "\r\n\0")),
    ]);
    let bodies: Vec<(JobId, Vec<u8>)> = story
        .last
        .changes
        .iter()
        .filter_map(|change| match change {
            Change::Body { job, body } => Some((*job, body.to_vec())),
            Change::Row(_) => None,
        })
        .collect();
    assert_eq!(bodies, [(JobId(1), vec![]), (JobId(2), b"\r\n\0".to_vec())]);
    let empty = Answer::Reserved {
        job: JobId(1),
        attempt: 1,
        body_bytes: 0,
    };
    assert_eq!(story.poll(ann, &["mail"]), empty);
    assert_eq!(story.job(JobId(2)).body_bytes, 3);
    assert_eq!(story.job(JobId(2)).body_crc, crc32c::crc32c(b"\r\n\0"));
}

/// A slice would keep the whole entry in memory for as long as the body is known.
#[test]
fn a_body_does_not_pin_the_entry_that_brought_it() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = put("mail", 0, 0, 1, "a letter");
    let Command::Put { body: said, .. } = letter.clone() else {
        panic!()
    };
    story.batch(vec![(ann, letter)]);
    let kept = story.last.changes.iter().find_map(|change| match change {
        Change::Body { body, .. } => Some(body.clone()),
        Change::Row(_) => None,
    });
    let kept = kept.expect("a put brings a body");
    assert_eq!(kept, said);
    assert_ne!(kept.as_ptr(), said.as_ptr());
}

/// 25: the largest numbers are taken as they are.
#[test]
fn priority_delay_and_ttr_go_up_to_the_end_of_32_bits() {
    let mut story = Story::begins();
    let ann = story.person();
    let far = story.put_as(ann, "mail", u32::MAX, u32::MAX, u32::MAX);
    let view = story.job(far);
    assert_eq!(
        (view.priority, view.ttr),
        (Priority(u32::MAX), Seconds(u32::MAX))
    );
    assert_eq!(view.time_left_seconds, u64::from(u32::MAX));
}

/// 24: an id that never was is simply not found.
#[test]
fn there_is_no_job_0_and_none_from_the_future() {
    let mut story = Story::begins();
    let ann = story.person();
    for id in [0, 1, u64::MAX].map(JobId) {
        assert_eq!(story.delete(ann, id), Answer::NotFound);
        assert_eq!(story.reserves_job(ann, id), Answer::NotFound);
        assert_eq!(story.release(ann, id, 0, 0), Answer::NotFound);
        assert_eq!(story.bury(ann, id, 0), Answer::NotFound);
        assert_eq!(story.touch(ann, id), Answer::NotFound);
        assert_eq!(story.kick_job(ann, id), Answer::NotFound);
        assert_eq!(story.state(id), "gone");
    }
}

/// 52.
#[test]
fn a_ttr_of_0_is_a_ttr_of_1() {
    let mut story = Story::begins();
    let ann = story.person();
    let hasty = story.put_as(ann, "mail", 0, 0, 0);
    assert_eq!(story.job(hasty).ttr, Seconds(1));
}

/// 46.
#[test]
fn total_jobs_counts_accepted_puts_ready_or_delayed() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put(ann, "mail");
    story.put_as(ann, "mail", 0, 9, 60);
    story.put(ann, "fax");
    assert_eq!(story.tube("mail").total_jobs, 2);
    assert_eq!(story.server().total_jobs, 3);
    story.takes(ann, &["fax"]);
    story.release(ann, JobId(3), 0, 0);
    assert_eq!(story.server().total_jobs, 3, "coming back is no put");
}

/// 54, 55.
#[test]
fn the_smaller_priority_number_comes_first_then_the_older_job() {
    let mut story = Story::begins();
    let ann = story.person();
    let last = story.put_as(ann, "mail", u32::MAX, 0, 60);
    let late = story.put_as(ann, "mail", 1 << 31, 0, 60);
    let old = story.put_as(ann, "mail", 5, 0, 60);
    let young = story.put_as(ann, "mail", 5, 0, 60);
    let urgent = story.put_as(ann, "mail", 0, 0, 60);
    for job in [urgent, old, young, late, last] {
        assert_eq!(story.takes(ann, &["mail"]), Some(job));
    }
}

/// 56.
#[test]
fn over_several_tubes_the_best_job_wins_whatever_the_order_of_the_watch_list() {
    let mut story = Story::begins();
    let ann = story.person();
    let dull = story.put_as(ann, "a", 9, 0, 60);
    let best = story.put_as(ann, "c", 1, 0, 60);
    let tied = story.put_as(ann, "b", 1, 0, 60);
    assert_eq!(story.takes(ann, &["a", "b", "c"]), Some(best));
    assert_eq!(
        story.takes(ann, &["a", "b", "c"]),
        Some(tied),
        "the same priority, a later id"
    );
    assert_eq!(story.takes(ann, &["c", "a"]), Some(dull));
}

/// 57.
#[test]
fn a_released_job_goes_back_ahead_of_younger_ones() {
    let mut story = Story::begins();
    let ann = story.person();
    let old = story.put(ann, "mail");
    story.put(ann, "mail");
    assert_eq!(story.takes(ann, &["mail"]), Some(old));
    assert_eq!(story.release(ann, old, 0, 0), Answer::Released);
    assert_eq!(story.takes(ann, &["mail"]), Some(old));
}

/// P2 and I3: one hold at a time, and each with a larger attempt number than the one before.
#[test]
fn a_held_job_is_nobody_elses() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let letter = story.put_as(ann, "mail", 0, 0, 10);
    let first = Answer::Reserved {
        job: letter,
        attempt: 1,
        body_bytes: 4,
    };
    assert_eq!(story.at(0).poll(ann, &["mail"]), first);
    assert_eq!(story.poll(bob, &["mail"]), Answer::TimedOut);
    assert_eq!(
        story.at_ms(10_000).poll(bob, &["mail"]),
        Answer::TimedOut,
        "her last moment"
    );
    let second = Answer::Reserved {
        job: letter,
        attempt: 2,
        body_bytes: 4,
    };
    assert_eq!(story.at_ms(10_001).poll(bob, &["mail"]), second);
    assert_eq!(
        story.delete(ann, letter),
        Answer::NotFound,
        "it is not hers any more"
    );
    assert_eq!(story.delete(bob, letter), Answer::Deleted);
}

/// 77.
#[test]
fn a_ttr_that_runs_out_makes_the_job_ready_and_counts_a_timeout() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let letter = story.put_as(ann, "mail", 7, 0, 1);
    story.at(5).takes(ann, &["mail"]);
    story.waits(bob, &["mail"]);
    story.at_ms(6_000).tick();
    assert_eq!(
        story.gets(bob),
        None,
        "the deadline itself is still in time"
    );
    story.at_ms(6_001).tick();
    assert_eq!(story.gets(bob), Some(letter));
    let view = story.job(letter);
    assert_eq!((view.timeouts, view.releases, view.reserves), (1, 0, 2));
    assert_eq!(view.priority, Priority(7));
    assert_eq!(story.server().job_timeouts, 1);
}

/// 78.
#[test]
fn the_late_owner_can_only_delete_what_nobody_else_has_taken() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put_as(ann, "mail", 0, 0, 1);
    story.takes(ann, &["mail"]);
    story.at(2);
    assert_eq!(story.touch(ann, letter), Answer::NotFound);
    assert_eq!(story.release(ann, letter, 0, 0), Answer::NotFound);
    assert_eq!(story.bury(ann, letter, 0), Answer::NotFound);
    assert_eq!(story.delete(ann, letter), Answer::Deleted);
}

/// 79, 80.
#[test]
fn a_touch_starts_the_ttr_again_and_time_left_is_truncated() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let letter = story.put_as(ann, "mail", 0, 0, 3);
    story.takes(ann, &["mail"]);
    assert_eq!(story.at_ms(1).job(letter).time_left_seconds, 2, "2.999 s");
    assert_eq!(story.at_ms(1_200).job(letter).time_left_seconds, 1);
    assert_eq!(story.touch(bob, letter), Answer::NotFound);
    assert_eq!(story.touch(ann, letter), Answer::Touched);
    assert_eq!(story.at_ms(1_300).job(letter).time_left_seconds, 2);
    story.at_ms(4_200).tick();
    assert_eq!(story.state(letter), "reserved", "3 s from the touch");
    story.at_ms(4_201).tick();
    assert_eq!(story.state(letter), "ready");
    assert_eq!(story.job(letter).time_left_seconds, 0);
}

/// 51, 81.
#[test]
fn a_delayed_job_is_delivered_when_its_time_has_come_and_not_before() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.waits(bob, &["mail"]);
    let letter = story.at_ms(500).put_as(ann, "mail", 0, 1, 60);
    assert_eq!(story.job(letter).time_left_seconds, 1);
    story.at_ms(1_499).tick();
    assert_eq!((story.gets(bob), story.state(letter)), (None, "delayed"));
    story.at_ms(1_500).tick();
    assert_eq!(story.gets(bob), Some(letter));
    assert_eq!(story.at_ms(2_499).job(letter).age_seconds, 1);
}

/// 82: whoever matures first is served first, though another would have been better.
#[test]
fn jobs_that_mature_in_one_step_do_so_one_by_one() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.waits(bob, &["mail"]);
    story.at_ms(0).put_as(ann, "mail", 0, 2, 60);
    let sooner = story.at_ms(500).put_as(ann, "mail", 9, 1, 60);
    story.at(10).tick();
    assert_eq!(story.gets(bob), Some(sooner));
}

/// 96.
#[test]
fn reserve_job_takes_ready_delayed_and_buried_jobs_of_any_tube() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let ready = story.put(ann, "a");
    let delayed = story.put_as(ann, "b", 0, 9, 60);
    let buried = story.put(ann, "c");
    story.takes(ann, &["c"]);
    story.bury(ann, buried, 0);
    story.pause(ann, "a", 60);
    for (job, attempt) in [(ready, 1), (delayed, 1), (buried, 2)] {
        let reserved = Answer::Reserved {
            job,
            attempt,
            body_bytes: 4,
        };
        assert_eq!(story.reserves_job(bob, job), reserved);
        assert_eq!(story.job(job).holder, Some(bob));
    }
    assert_eq!(story.server().reserved, 3);
    assert_eq!(
        story.machine.next_due().map(|at| at.0),
        Some(60_000),
        "no delay is left over"
    );
}

/// 97.
#[test]
fn reserve_job_gets_no_held_job_and_a_delay_is_over_once_it_was_taken() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let letter = story.put_as(ann, "mail", 0, 9, 60);
    story.reserves_job(bob, letter);
    assert_eq!(
        story.reserves_job(bob, letter),
        Answer::NotFound,
        "not even one's own"
    );
    assert_eq!(story.reserves_job(ann, letter), Answer::NotFound);
    story.leaves(bob);
    assert_eq!(story.state(letter), "ready");
    assert_eq!(story.job(letter).delay, Seconds(9));
}

/// 100.
#[test]
fn a_peek_shows_the_best_ready_the_soonest_delayed_and_the_first_buried() {
    let mut story = Story::begins();
    let ann = story.person();
    let mail = crate::story::name("mail");
    assert_eq!(story.machine.peek_ready(&mail), None, "no tube, no job");
    story.put_as(ann, "mail", 5, 0, 60);
    let best = story.put_as(ann, "mail", 1, 0, 60);
    story.put_as(ann, "mail", 0, 9, 60);
    let soonest = story.put_as(ann, "mail", 9, 3, 60);
    story.put_as(ann, "fax", 0, 0, 60);
    story.pause(ann, "mail", 60);
    let before = story.machine.clone();
    assert_eq!(
        story.machine.peek_ready(&mail),
        Some(best),
        "a pause is ignored"
    );
    assert_eq!(story.machine.peek_delayed(&mail), Some(soonest));
    assert_eq!(story.machine.peek_buried(&mail), None);
    assert_eq!(story.machine, before);
}

/// 127.
#[test]
fn urgent_means_ready_with_a_priority_below_1024() {
    let mut story = Story::begins();
    let ann = story.person();
    let urgent = story.put_as(ann, "mail", 1023, 0, 60);
    story.put_as(ann, "mail", 1024, 0, 60);
    story.put_as(ann, "mail", 0, 9, 60);
    assert_eq!((story.tube("mail").urgent, story.server().urgent), (1, 1));
    assert_eq!(story.takes(ann, &["mail"]), Some(urgent));
    assert_eq!((story.tube("mail").urgent, story.server().urgent), (0, 0));
    story.release(ann, urgent, 5_000, 0);
    assert_eq!(story.server().urgent, 0, "it counts as what it is now");
    story.delete(ann, urgent);
    assert_eq!((story.server().urgent, story.server().ready), (0, 1));
}

/// I10: counters are the number of jobs in each state.
#[test]
fn every_job_is_counted_in_the_one_state_that_it_is_in() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put(ann, "mail");
    story.put_as(ann, "mail", 0, 9, 60);
    for _ in 0..2 {
        let job = story.put(ann, "mail");
        story.reserves_job(ann, job);
    }
    story.bury(ann, JobId(3), 0);
    let tube = story.tube("mail");
    assert_eq!(
        (tube.ready, tube.delayed, tube.reserved, tube.buried),
        (1, 1, 1, 1)
    );
    let server = story.server();
    assert_eq!(
        (server.ready, server.delayed, server.reserved, server.buried),
        (1, 1, 1, 1)
    );
    assert_eq!(server.job_bytes, 16);
}

/// P8 and I12: a clock that is behind takes nothing back.
#[test]
fn time_never_runs_backwards() {
    let mut story = Story::begins();
    let ann = story.person();
    story.at(100).tick();
    let letter = story.at(40).put_as(ann, "mail", 0, 10, 60);
    assert_eq!(story.machine.now().0, 100_000);
    story.at(109).tick();
    assert_eq!(
        story.state(letter),
        "delayed",
        "10 s from the newest moment known"
    );
    story.at(110).tick();
    assert_eq!(story.state(letter), "ready");
}
