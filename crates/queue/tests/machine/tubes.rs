//! How long a tube exists, and what is waited for by name.

use trellis_queue::{Answer, Command, LeaderCommand, Verdict};

use crate::story::{Story, name, origin, reference, reserve};

fn list(story: &Story) -> Vec<&str> {
    story.machine.tubes().map(|name| name.as_str()).collect()
}

/// 113.
#[test]
fn default_is_always_there() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put(ann, "default");
    story.delete(ann, letter);
    story.uses(ann, "default");
    story.forsakes(ann, "default");
    assert_eq!(list(&story), ["default"]);
    assert_eq!(story.tube("default").deletes, 1, "and so are its counters");
}

/// 113: in whatever state they are.
#[test]
fn a_tube_exists_while_it_has_jobs() {
    let mut story = Story::begins();
    let ann = story.person();
    let ready = story.put(ann, "ready");
    let delayed = story.put_as(ann, "delayed", 0, 9, 60);
    let buried = story.put(ann, "buried");
    story.takes(ann, &["buried"]);
    story.bury(ann, buried, 0);
    let held = story.put(ann, "held");
    story.takes(ann, &["held"]);
    assert_eq!(
        list(&story),
        ["default", "ready", "delayed", "buried", "held"]
    );
    for job in [ready, delayed, buried, held] {
        assert_eq!(story.delete(ann, job), Answer::Deleted);
    }
    assert_eq!(list(&story), ["default"]);
}

/// 113: a reference is what an origin sets for all its sessions together.
#[test]
fn a_tube_exists_while_an_origin_refers_to_it() {
    let mut story = Story::begins();
    let (near, far) = (story.person(), story.person_at(origin(2, 1)));
    assert_eq!(story.uses(near, "mail"), Answer::Referenced);
    assert_eq!(
        story.uses(near, "mail"),
        Answer::Referenced,
        "setting is idempotent"
    );
    assert_eq!(story.uses(far, "mail"), Answer::Referenced);
    assert!(story.machine.has_reference(origin(1, 1), &name("mail")));
    story.forsakes(near, "mail");
    assert!(!story.machine.has_reference(origin(1, 1), &name("mail")));
    assert_eq!(list(&story), ["default", "mail"]);
    story.forsakes(near, "mail");
    assert_eq!(
        list(&story),
        ["default", "mail"],
        "clearing again takes nobody else's"
    );
    story.forsakes(far, "mail");
    assert_eq!(list(&story), ["default"]);
    assert_eq!(
        story.forsakes(far, "mail"),
        Answer::Referenced,
        "clearing is idempotent"
    );
}

#[test]
fn an_origins_end_clears_its_references() {
    let mut story = Story::begins();
    let (near, far) = (story.person(), story.person_at(origin(2, 1)));
    story.uses(far, "his");
    story.uses(far, "shared");
    story.uses(near, "shared");
    story.leader(LeaderCommand::ExpireOrigin(origin(2, 1)));
    assert_eq!(list(&story), ["default", "shared"]);
    assert!(!story.machine.has_reference(origin(2, 1), &name("shared")));
}

/// 114.
#[test]
fn a_tube_made_again_counts_from_0() {
    let mut story = Story::begins();
    let ann = story.person();
    let letter = story.put(ann, "mail");
    story.uses(ann, "mail");
    story.delete(ann, letter);
    assert_eq!(
        (story.tube("mail").total_jobs, story.tube("mail").deletes),
        (1, 1)
    );
    story.forsakes(ann, "mail");
    story.uses(ann, "mail");
    assert_eq!(
        (story.tube("mail").total_jobs, story.tube("mail").deletes),
        (0, 0)
    );
}

/// 115: neither do reserve and kick.
#[test]
fn only_put_and_references_make_a_tube() {
    let mut story = Story::begins();
    let ann = story.person();
    story.pause(ann, "a", 1);
    story.kick(ann, "b", 1);
    story.poll(ann, &["c"]);
    story.forsakes(ann, "d");
    story.waits(ann, &["e"]);
    assert_eq!(list(&story), ["default"]);
}

/// The tube died while somebody waited for it; the next job brings it back, and he gets it.
#[test]
fn a_wait_outlives_the_tube() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person());
    story.uses(ann, "mail");
    story.waits(bob, &["mail"]);
    story.pause(ann, "mail", 60);
    story.forsakes(ann, "mail");
    assert!(!story.exists("mail"));
    let letter = story.put(ann, "mail");
    assert_eq!(story.gets(bob), Some(letter));
}

#[test]
fn whoever_waits_for_a_tube_is_counted_also_if_it_was_made_later() {
    let mut story = Story::begins();
    let (ann, bob) = (story.person(), story.person_at(origin(2, 1)));
    story.waits(bob, &["mail"]);
    story.uses(ann, "mail");
    assert_eq!(story.tube("mail").waiting, 1);
}

/// Of an origin, never Skipped, never dropped, whatever connection it travels under.
#[test]
fn a_reference_is_noted_while_its_session_waits() {
    let mut story = Story::begins();
    let ann = story.person();
    let verdicts = story.batch(vec![
        (ann, reserve(&["mail"])),
        (ann, reference("mail", true)),
        (
            ann,
            Command::Touch {
                job: trellis_types::JobId(1),
            },
        ),
    ]);
    assert_eq!(
        verdicts,
        [
            Verdict::Parked,
            Verdict::Answer(Answer::Referenced),
            Verdict::Skipped
        ]
    );
    assert!(story.exists("mail"));
}
