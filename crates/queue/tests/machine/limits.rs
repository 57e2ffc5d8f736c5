//! Bounds that are decided inside apply: replicated settings, and the due events per entry.

use trellis_queue::{
    Answer, Content, Entry, LeaderCommand, Machine, MetaRow, Row, Setting, Verdict,
};
use trellis_types::{JobId, SessionId, Timestamp, limits};

use crate::story::{Story, put, reserve};

const OUT_OF_MEMORY: Verdict = Verdict::Answer(Answer::OutOfMemory);

fn inserted(id: u64) -> Verdict {
    Verdict::Answer(Answer::Inserted(JobId(id)))
}

/// 144: at a bound nothing changes, no id is burnt, and everything but a put works on.
#[test]
fn while_puts_are_refused_the_queue_can_be_drained() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put(ann, "mail");
    story.set(Setting::PutsRefused(true));
    assert!(story.server().puts_refused);
    assert_eq!(story.says(ann, put("mail", 0, 0, 1, "")), OUT_OF_MEMORY);
    assert_eq!(story.says(ann, put("fax", 0, 0, 1, "")), OUT_OF_MEMORY);
    assert!(!story.exists("fax"));
    assert_eq!(story.takes(ann, &["mail"]), Some(letter));
    assert_eq!(story.release(ann, letter, 0, 1), Answer::Released);
    assert_eq!(story.delete(ann, letter), Answer::Deleted);
    story.set(Setting::PutsRefused(false));
    assert_eq!(story.says(ann, put("mail", 0, 0, 1, "")), inserted(2));
}

#[test]
fn there_are_at_most_so_many_jobs() {
    let mut story = Story::begins();
    let ann = story.person();
    story.set(Setting::JobsMax(2));
    assert_eq!(story.says(ann, put("mail", 0, 0, 1, "")), inserted(1));
    assert_eq!(story.says(ann, put("mail", 0, 9, 1, "")), inserted(2));
    assert_eq!(story.says(ann, put("mail", 0, 0, 1, "")), OUT_OF_MEMORY);
    story.delete(ann, JobId(1));
    assert_eq!(story.says(ann, put("mail", 0, 0, 1, "")), inserted(3));
}

/// Ids stay below 2^44, with room for groups above (architecture, section 13).
#[test]
fn when_the_ids_are_used_up_puts_are_refused() {
    let mut story = Story::begins();
    let ann = story.person();
    let rows = story.machine.rows().map(|row| match row {
        Row::Meta(meta) => Row::Meta(MetaRow {
            next_job: limits::JOB_ID_MAX,
            ..meta
        }),
        other => other,
    });
    story.machine = Machine::load(rows).expect("a sound image");
    assert_eq!(
        story.says(ann, put("mail", 0, 0, 1, "")),
        inserted(limits::JOB_ID_MAX)
    );
    assert_eq!(story.says(ann, put("mail", 0, 0, 1, "")), OUT_OF_MEMORY);
}

#[test]
fn there_are_at_most_so_many_body_bytes() {
    let mut story = Story::begins();
    let ann = story.person();
    story.set(Setting::JobBytesMax(10));
    assert_eq!(story.says(ann, put("mail", 0, 0, 1, "123456")), inserted(1));
    assert_eq!(
        story.says(ann, put("mail", 0, 0, 1, "12345")),
        OUT_OF_MEMORY
    );
    assert_eq!(
        story.says(ann, put("mail", 0, 0, 1, "1234")),
        inserted(2),
        "ten are ten"
    );
    assert_eq!(story.says(ann, put("mail", 0, 0, 1, "")), inserted(3));
    story.delete(ann, JobId(1));
    assert_eq!(story.server().job_bytes, 4);
    assert_eq!(story.says(ann, put("mail", 0, 0, 1, "123456")), inserted(4));
}

#[test]
fn there_are_at_most_so_many_tubes() {
    let mut story = Story::begins();
    let ann = story.person();
    story.set(Setting::TubesMax(2));
    assert_eq!(story.uses(ann, "mail"), Answer::Referenced);
    assert_eq!(story.uses(ann, "fax"), Answer::OutOfMemory);
    assert_eq!(story.says(ann, put("fax", 0, 0, 1, "")), OUT_OF_MEMORY);
    assert_eq!(
        story.says(ann, put("mail", 0, 0, 1, "")),
        inserted(1),
        "it exists already"
    );
    assert_eq!(story.says(ann, put("default", 0, 0, 1, "")), inserted(2));
}

#[test]
fn a_reserve_lists_at_most_so_many_tubes() {
    let mut story = Story::begins();
    let ann = story.person();
    story.set(Setting::WatchNamesMax(2));
    assert_eq!(story.says(ann, reserve(&["a", "b", "c"])), OUT_OF_MEMORY);
    assert!(!story.machine.is_waiting(ann));
    story.waits(ann, &["a", "b"]);
}

/// What all members once agreed to understand stands in their logs.
#[test]
fn the_feature_level_is_never_lowered() {
    let mut story = Story::begins();
    story.set(Setting::FeatureLevel(3));
    story.set(Setting::FeatureLevel(2));
    assert_eq!(story.server().feature_level, 3);
    story.set(Setting::FeatureLevel(4));
    assert_eq!(story.server().feature_level, 4);
}

/// 48 of the faults: a mass expiry cannot stall an entry; the rest comes with the next ones, in
/// smaller portions, so that nobody else waits long for his.
#[test]
fn an_entry_lets_only_so_much_fall_due() {
    let mut story = Story::begins();
    let ann = story.person();
    let (at_once, with_commands, tick) = (
        limits::DUE_AT_ONCE_MAX as u64,
        limits::DUE_PER_BATCHES_MAX as u64,
        limits::DUE_PER_TICK_MAX as u64,
    );
    let more = at_once + with_commands + tick + 7;
    many_delayed(&mut story, ann, more);
    let first = story.at(1).put(ann, "mail");
    assert_eq!(
        story.server().ready,
        at_once + 1,
        "commands run all the same"
    );
    assert_eq!(first, JobId(more + 1));
    assert_eq!(
        story.machine.next_due(),
        Some(Timestamp(1_000)),
        "more is due at once"
    );
    story.put(ann, "mail");
    assert_eq!(
        story.server().delayed,
        tick + 7,
        "who comes now waits for less"
    );
    story.tick();
    assert_eq!(story.server().delayed, 7, "a tick has room for more");
    story.tick();
    assert_eq!(story.server().delayed, 0);
    assert_eq!(
        story.machine.next_due(),
        None,
        "an idle machine waits for nothing"
    );
}

/// Faults 16 and 28: what fell due while nobody led is there for the first who asks afterwards. He
/// was told that nothing is ready while a few hundred jobs were overdue.
#[test]
fn what_fell_due_meanwhile_is_seen_as_a_whole() {
    let mut story = Story::begins();
    let ann = story.person();
    let overdue = limits::DUE_AT_ONCE_MAX as u64;
    many_delayed(&mut story, ann, overdue);
    let last = story.put_as(ann, "letters", 0, 2, 60);
    story.at(7);
    assert_eq!(story.put(ann, "mail"), JobId(last.0 + 1));
    let server = story.server();
    assert_eq!((server.ready, server.delayed), (overdue + 1, 1));
    assert_eq!(story.takes(ann, &["letters"]), Some(last));
}

/// Found on paper: entries with more delayed puts than they let fall due. A pause of a moment once, and
/// every delay and every time-out came later and later.
#[test]
fn what_is_left_over_is_caught_up_with_under_load() {
    let mut story = Story::begins();
    let ann = story.person();
    let (each, pace_ms) = (100_u64, 20);
    let (mut now, mut latest) = (0, 0);
    for entry in 1..=170 {
        // Once nothing happens while more falls due than an entry takes.
        now += if entry == 60 { 2_000 } else { pace_ms };
        let puts = (0..each).map(|_| (ann, put("mail", 0, 1, 9, "")));
        story.at_ms(now).batch(puts.collect());
        latest = story
            .machine
            .next_due()
            .map_or(0, |due| now.saturating_sub(due.0));
    }
    assert_eq!(latest, 0, "nothing is late two seconds after the pause");
    assert!(story.server().delayed <= each * 1_000 / pace_ms + each);
}

/// Puts so many jobs that are due after a second.
fn many_delayed(story: &mut Story, ann: SessionId, count: u64) {
    for from in (0..count).step_by(53) {
        let puts = (from..count.min(from + 53)).map(|_| (ann, put("mail", 0, 1, 9, "")));
        story.batch(puts.collect());
    }
    assert_eq!(story.server().delayed, count);
}

/// Numbers at the very end saturate; nothing wraps and nothing panics.
#[test]
fn the_end_of_time_is_survived() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.put_as(ann, "mail", u32::MAX, u32::MAX, u32::MAX);
    story.at_ms(u64::MAX).tick();
    story.put_as(ann, "mail", u32::MAX, u32::MAX, u32::MAX);
    story.put_as(ann, "mail", 0, 0, u32::MAX);
    story.takes(ann, &["mail"]);
    story.waits_for(ann, &["fax"], u32::MAX);
    story.waits_for(bob, &["fax"], u32::MAX);
    let cid = story.person();
    story.pause(cid, "mail", u32::MAX);
    for _ in 0..3 {
        story.tick();
    }
    assert_eq!(story.machine.now(), Timestamp(u64::MAX));
}

/// Settings apply from their entry on and outlive a restart.
#[test]
fn settings_are_part_of_the_image() {
    let mut machine = Machine::new();
    machine.apply(&Entry {
        at: Timestamp(1),
        content: Content::Leader(vec![
            LeaderCommand::Set(Setting::JobsMax(1)),
            LeaderCommand::Set(Setting::JobBytesMax(2)),
            LeaderCommand::Set(Setting::TubesMax(3)),
            LeaderCommand::Set(Setting::WatchNamesMax(4)),
            LeaderCommand::Set(Setting::FeatureLevel(5)),
            LeaderCommand::Set(Setting::PutsRefused(true)),
        ]),
    });
    assert_eq!(Machine::load(machine.rows()), Ok(machine));
}
