//! Exactly once: sequence numbers, and what is skipped behind a parked reserve.

use trellis_queue::{Answer, Batch, Command, Content, Event, Fate, Item, LeaderCommand, Verdict};
use trellis_types::{ConnectionId, JobId};

use crate::story::{Story, origin, put, reserve};

fn letter() -> Command {
    put("mail", 0, 0, 60, "letter")
}

#[test]
fn a_batch_that_was_carried_out_is_not_carried_out_again() {
    let mut story = Story::begins();
    let ann = story.person();
    let done = Fate::Applied(vec![Verdict::Answer(Answer::Inserted(JobId(1)))]);
    assert_eq!(story.send(ann.origin, 1, vec![(ann, letter())]), done);
    for _ in 0..2 {
        assert_eq!(
            story.send(ann.origin, 1, vec![(ann, letter())]),
            Fate::Duplicate
        );
    }
    assert_eq!(
        story.send(ann.origin, 0, vec![(ann, letter())]),
        Fate::Duplicate
    );
    assert_eq!(story.server().total_jobs, 1);
}

#[test]
fn a_batch_that_would_leave_a_hole_is_refused_whole() {
    let mut story = Story::begins();
    let ann = story.person();
    let hole = Fate::Hole { last: 0 };
    assert_eq!(story.send(ann.origin, 2, vec![(ann, letter())]), hole);
    assert_eq!(
        story.send(ann.origin, u64::MAX, vec![(ann, letter())]),
        hole
    );
    assert_eq!(story.server().total_jobs, 0);
    assert!(matches!(
        story.send(ann.origin, 1, vec![(ann, letter())]),
        Fate::Applied(_)
    ));
    assert!(matches!(
        story.send(ann.origin, 2, vec![(ann, letter())]),
        Fate::Applied(_)
    ));
}

#[test]
fn a_batch_of_an_origin_that_is_not_open_is_refused_whole() {
    let mut story = Story::begins();
    let stranger = story.person_at(origin(7, 1));
    let future = story.person_at(origin(1, 2));
    for who in [stranger, future] {
        assert_eq!(
            story.send(who.origin, 1, vec![(who, letter())]),
            Fate::NotOpen
        );
    }
    let late = story.person();
    story.leader(LeaderCommand::ExpireOrigin(late.origin));
    assert_eq!(
        story.send(late.origin, 1, vec![(late, letter())]),
        Fate::NotOpen
    );
    assert_eq!(story.server().total_jobs, 0);
}

/// An empty batch counts as well: its number is used up.
#[test]
fn the_sequence_counts_batches_not_commands() {
    let mut story = Story::begins();
    let ann = story.person();
    assert_eq!(story.send(ann.origin, 1, vec![]), Fate::Applied(vec![]));
    assert_eq!(story.last_seq(ann.origin), 1);
}

/// Each batch's event stands before what that batch caused, and after what came before.
#[test]
fn events_tell_what_happened_in_the_order_in_which_it_did() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person_at(origin(2, 1)));
    let cid = story.person();
    story.waits_for(bob, &["fax"], 1);
    story.waits(cid, &["mail"]);
    let item = |command| Item {
        connection: ann.connection,
        command,
    };
    story.at(1).apply(Content::Batches(vec![
        Batch {
            origin: ann.origin,
            seq: 2,
            items: vec![item(letter())],
        },
        Batch {
            origin: bob.origin,
            seq: 1,
            items: vec![],
        },
    ]));
    let told: Vec<String> = story
        .last
        .events
        .iter()
        .map(|event| match event {
            Event::Batch { origin, seq, .. } => format!("batch {} of {}", seq, origin.node.0),
            Event::Deferred {
                answer: Answer::TimedOut,
                ..
            } => "time is up".to_owned(),
            Event::Deferred { .. } => "a job".to_owned(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        told,
        ["time is up", "batch 2 of 1", "a job", "batch 1 of 2"]
    );
}

#[test]
fn what_stands_behind_a_parked_reserve_is_skipped() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let verdicts = story.batch(vec![
        (ann, letter()),
        (ann, reserve(&["fax"])),
        (ann, letter()),
        (bob, put("else", 0, 0, 60, "")),
        (ann, reserve(&["mail"])),
    ]);
    assert_eq!(
        verdicts,
        [
            Verdict::Answer(Answer::Inserted(JobId(1))),
            Verdict::Parked,
            Verdict::Skipped,
            Verdict::Answer(Answer::Inserted(JobId(2))),
            Verdict::Skipped,
        ],
        "only what its own session said"
    );
}

/// Otherwise the third would overtake the second.
#[test]
fn once_skipped_all_later_ones_of_the_session_are_even_if_the_wait_ends_meanwhile() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let verdicts = story.batch(vec![
        (ann, reserve(&["mail"])),
        (ann, Command::Delete { job: JobId(1) }),
        (bob, letter()),
        (ann, Command::Touch { job: JobId(1) }),
    ]);
    assert_eq!(
        verdicts,
        [
            Verdict::Parked,
            Verdict::Skipped,
            Verdict::Answer(Answer::Inserted(JobId(1))),
            Verdict::Skipped,
        ]
    );
    assert_eq!(story.gets(ann), Some(JobId(1)));
    assert_eq!(
        story.says(ann, Command::Touch { job: JobId(1) }),
        Verdict::Answer(Answer::Touched)
    );
}

/// If nothing was skipped before the wait ended, nothing need be.
#[test]
fn a_wait_that_ended_before_the_next_command_skips_nothing() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    let verdicts = story.batch(vec![
        (ann, reserve(&["mail"])),
        (bob, letter()),
        (ann, Command::Touch { job: JobId(1) }),
    ]);
    assert_eq!(verdicts[2], Verdict::Answer(Answer::Touched));
}

/// A node holds such commands back; if one comes all the same it is not carried out.
#[test]
fn a_command_in_a_later_batch_of_a_session_that_waits_is_skipped_too() {
    let mut story = Story::begins();
    let ann = story.person();
    story.waits(ann, &["mail"]);
    assert_eq!(story.says(ann, letter()), Verdict::Skipped);
    assert_eq!(story.says(ann, Command::Undecodable), Verdict::Skipped);
    assert_eq!(story.server().total_jobs, 0);
}

#[test]
fn end_wait_and_close_session_are_never_skipped() {
    let mut story = Story::begins();
    let ann = story.person();
    let verdicts = story.batch(vec![
        (ann, reserve(&["mail"])),
        (ann, letter()),
        (ann, Command::EndWait),
        (ann, letter()),
        (ann, Command::CloseSession),
    ]);
    use Verdict::{Parked, Silent, Skipped};
    assert_eq!(verdicts, [Parked, Skipped, Silent, Skipped, Silent]);
    assert_eq!(story.hears(ann), [Answer::TimedOut]);
}

/// A job given to a session that has closed would be lost until its origin ends.
#[test]
fn nothing_of_a_session_is_carried_out_behind_its_close() {
    let mut story = Story::begins();
    let ann = story.person();
    story.put(ann, "mail");
    let verdicts = story.batch(vec![
        (ann, Command::CloseSession),
        (ann, reserve(&["mail"])),
        (ann, letter()),
    ]);
    assert_eq!(
        verdicts,
        [Verdict::Silent, Verdict::Skipped, Verdict::Skipped]
    );
    assert_eq!(story.state(JobId(1)), "ready");
}

/// A refusal that every node decides equally, never a crash; the commands around it take effect.
#[test]
fn an_undecodable_command_is_a_refusal() {
    let mut story = Story::begins();
    let ann = story.person();
    let verdicts = story.batch(vec![
        (ann, letter()),
        (ann, Command::Undecodable),
        (ann, letter()),
    ]);
    assert_eq!(
        verdicts,
        [
            Answer::Inserted(JobId(1)),
            Answer::Undecodable,
            Answer::Inserted(JobId(2)),
        ]
        .map(Verdict::Answer)
    );
}

/// The two halves of one connection number on two nodes are two sessions.
#[test]
fn sessions_of_two_origins_do_not_meet() {
    let mut story = Story::begins();
    let near = story.person();
    let far = trellis_types::SessionId {
        origin: origin(2, 1),
        connection: near.connection,
    };
    let job = story.put(near, "mail");
    story.takes(near, &["mail"]);
    assert_eq!(story.delete(far, job), Answer::NotFound);
    assert!(story.machine.holds_any(near) && !story.machine.holds_any(far));
    assert_eq!(near.connection, ConnectionId(1));
}
