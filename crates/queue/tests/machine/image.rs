//! Rows out and in, and the digest.

use trellis_queue::{Change, Entry, Key, Machine, Row, TubeId};
use trellis_types::{JobId, NodeId, Seconds, Timestamp};

use crate::story::{Story, name, names, origin};

/// Some of everything: two origins, a suspended one among them, jobs in all states, waits, pauses.
fn busy() -> Story {
    let mut story = Story::begins();
    let (ann, bob, cid) = (
        story.person(),
        story.person_at(origin(2, 1)),
        story.person_at(origin(2, 1)),
    );
    story.at(1);
    story.uses(ann, "fax");
    story.uses(bob, "fax");
    for priority in [5, 3, 9, 1] {
        story.put_as(ann, "mail", priority, 0, 60);
    }
    story.put_as(ann, "mail", 0, 30, 60);
    for job in [3, 1].map(JobId) {
        story.reserves_job(ann, job);
        story.bury(ann, job, 7);
    }
    story.reserves_job(bob, JobId(4));
    story.reserves_job(bob, JobId(2));
    story.waits_for(bob, &["fax", "telex"], 20);
    story.waits(cid, &["telex"]);
    story.put(ann, "slow");
    story.pause(ann, "slow", 40);
    story.leader(trellis_queue::LeaderCommand::SuspendOrigin(origin(2, 1)));
    story.leader(trellis_queue::LeaderCommand::RetireNode(NodeId(9)));
    story
}

fn rows(story: &Story) -> Vec<Row> {
    story.machine.rows().collect()
}

/// The rows after a change of the one of `key`, or without it.
fn altered(key: Key, alter: impl Fn(Row) -> Option<Row>) -> Result<Machine, String> {
    let rows = rows(&busy()).into_iter().filter_map(|row| {
        if row.key() == key {
            alter(row)
        } else {
            Some(row)
        }
    });
    Machine::load(rows).map_err(|bad| bad.to_string())
}

fn job(id: u64, alter: impl Fn(&mut trellis_queue::JobRow)) -> Result<Machine, String> {
    altered(Key::Job(JobId(id)), |row| {
        let Row::Job(mut row) = row else { return None };
        alter(&mut row);
        Some(Row::Job(row))
    })
}

fn meta(alter: impl Fn(&mut trellis_queue::MetaRow)) -> Result<Machine, String> {
    altered(Key::Meta, |row| {
        let Row::Meta(mut row) = row else { return None };
        alter(&mut row);
        Some(Row::Meta(row))
    })
}

fn assert_refused(loaded: Result<Machine, String>, why: &str) {
    match loaded {
        Err(said) => assert!(said.contains(why), "{said:?} does not say {why:?}"),
        Ok(_) => panic!("taken although {why:?}"),
    }
}

#[test]
fn an_image_is_the_same_machine_in_whatever_order_its_rows_come() {
    let story = busy();
    let mut rows = rows(&story);
    for _ in 0..rows.len() {
        rows.rotate_left(1);
        let loaded = Machine::load(rows.clone()).expect("a sound image");
        assert_eq!(loaded, story.machine);
        assert_eq!(loaded.digest(), story.machine.digest());
        assert_eq!(loaded.check(), Ok(()));
    }
}

/// 135 to 137, not copied: over a restart nothing is lost or counted twice. Burials keep their
/// order, holds their holder, releases their priority, pauses their end.
#[test]
fn after_a_restart_everything_goes_on_where_it_was() {
    let mut story = busy();
    let ann = story.person();
    story.machine = Machine::load(rows(&story)).expect("a sound image");
    assert_eq!(
        story.machine.peek_buried(&name("mail")),
        Some(JobId(3)),
        "buried first"
    );
    assert_eq!(story.job(JobId(3)).buries, 1);
    assert_eq!(
        story.job(JobId(4)).holder.map(|who| who.origin),
        Some(origin(2, 1))
    );
    assert_eq!(story.tube("slow").pause_left_seconds, 40);
    assert_eq!(story.put(ann, "mail"), JobId(7), "ids go on");
    story.leader(trellis_queue::LeaderCommand::ResumeOrigin(origin(2, 1)));
    let fax = story.put(ann, "telex");
    assert_eq!(
        story.job(fax).holder.map(|who| who.connection.0),
        Some(2),
        "first in line"
    );
}

#[test]
fn no_rows_are_a_new_machine() {
    assert_eq!(Machine::load([]), Ok(Machine::new()));
    assert_eq!(Machine::default(), Machine::new());
    assert_eq!(Machine::new().check(), Ok(()));
}

/// Only what changed reaches the disk, and `default` may never have.
#[test]
fn the_row_of_default_may_be_missing_as_long_as_it_is_as_it_was_born() {
    let mut machine = Machine::new();
    let outcome = machine.apply(&Entry {
        at: Timestamp(5),
        content: trellis_queue::Content::Leader(vec![]),
    });
    assert_eq!(outcome.changes, [Change::Row(Key::Meta)], "time has moved");
    let mirrored = machine.row(Key::Meta);
    assert_eq!(Machine::load(mirrored), Ok(machine));
}

#[test]
fn a_row_is_asked_for_by_its_key_and_gone_when_it_is_gone() {
    let mut story = busy();
    for row in rows(&story) {
        assert_eq!(story.machine.row(row.key()), Some(row));
    }
    let ann = story.person();
    story.delete(ann, JobId(1));
    assert_eq!(story.machine.row(Key::Job(JobId(1))), None);
    assert!(
        story
            .last
            .changes
            .contains(&Change::Row(Key::Job(JobId(1))))
    );
}

/// The numbers of the feature level: if this fails, replicas of two versions would differ. Never
/// change the numbers; add new kinds of rows instead.
#[test]
fn the_digest_is_the_same_for_ever() {
    assert_eq!(
        format!("{:016x}", Machine::new().digest()),
        "587ea0e10731b796"
    );
    assert_eq!(
        format!("{:016x}", busy().machine.digest()),
        "b8f829fb6ab913a8"
    );
}

#[test]
fn any_difference_shows_in_the_digest() {
    let digest = busy().machine.digest();
    let others = [
        meta(|row| row.now = row.now.after_ms(1)),
        meta(|row| row.next_job += 1),
        meta(|row| row.next_tube += 1),
        meta(|row| row.next_sequence += 1),
        meta(|row| row.total_jobs += 1),
        meta(|row| row.job_timeouts += 1),
        meta(|row| row.puts_refused = true),
        meta(|row| row.jobs_max += 1),
        meta(|row| row.job_bytes_max += 1),
        meta(|row| row.tubes_max += 1),
        meta(|row| row.watch_names_max += 1),
        meta(|row| row.feature_level += 1),
        meta(|row| row.retired = vec![]),
        job(3, |row| row.priority.0 += 1),
        job(3, |row| row.order += 1),
        job(3, |row| row.delay.0 += 1),
        job(3, |row| row.ttr.0 += 1),
        job(3, |row| row.created.0 += 1),
        job(3, |row| row.reserves += 1),
        job(3, |row| row.timeouts += 1),
        job(3, |row| row.releases += 1),
        job(3, |row| row.buries += 1),
        job(3, |row| row.kicks += 1),
        job(3, |row| row.body_bytes += 1),
        job(3, |row| row.body_crc += 1),
        job(3, |row| row.state = trellis_queue::JobState::Ready),
        altered(Key::Origin(NodeId(1)), |row| {
            let Row::Origin(mut row) = row else {
                return None;
            };
            row.last_seq += 1;
            Some(Row::Origin(row))
        }),
        altered(Key::Tube(TubeId(2)), |row| {
            let Row::Tube(mut row) = row else { return None };
            row.references.pop();
            Some(Row::Tube(row))
        }),
        altered(Key::Tube(TubeId(2)), |row| {
            let Row::Tube(mut row) = row else { return None };
            row.name = name("other");
            Some(Row::Tube(row))
        }),
    ];
    let mut seen = vec![digest];
    for other in others {
        let other = other.expect("a sound image, only another").digest();
        assert!(!seen.contains(&other));
        seen.push(other);
    }
}

#[test]
fn an_image_in_which_something_is_there_twice_is_refused() {
    for row in rows(&busy()) {
        let twice = rows(&busy()).into_iter().chain([row.clone()]);
        assert!(Machine::load(twice).is_err(), "{row:?}");
    }
}

#[test]
fn an_image_without_its_counters_is_refused() {
    assert_refused(altered(Key::Meta, |_| None), "no counters");
    assert_refused(meta(|row| row.next_job = 6), "never given out");
    assert_refused(meta(|row| row.next_job = 0), "next job id");
    assert_refused(meta(|row| row.next_job = u64::MAX), "next job id");
    assert_refused(meta(|row| row.next_tube = 2), "never given out");
    assert_refused(meta(|row| row.next_sequence = 2), "no place");
    assert_refused(meta(|row| row.next_sequence = u64::MAX), "next numbers");
    assert_refused(
        meta(|row| row.retired = vec![NodeId(9), NodeId(8)]),
        "retired",
    );
    assert_refused(meta(|row| row.retired = vec![NodeId(1)]), "retired");
}

#[test]
fn an_image_in_which_something_refers_to_nothing_is_refused() {
    assert_refused(job(1, |row| row.tube = TubeId(99)), "in no tube");
    assert_refused(altered(Key::Origin(NodeId(2)), |_| None), "");
    assert_refused(
        altered(Key::Origin(NodeId(2)), |row| {
            let Row::Origin(mut row) = row else {
                return None;
            };
            row.open = false;
            Some(Row::Origin(row))
        }),
        "not at rest",
    );
    for id in [2, 4] {
        assert_refused(
            job(id, |row| {
                if let trellis_queue::JobState::Reserved { holder, .. } = &mut row.state {
                    holder.origin = origin(7, 7);
                }
            }),
            "gone",
        );
    }
}

#[test]
fn an_image_whose_rows_contradict_each_other_is_refused() {
    assert_refused(job(1, |row| row.ttr = Seconds(0)), "no TTR");
    assert_refused(
        job(1, |row| {
            row.state = trellis_queue::JobState::Buried { sequence: 9_999 }
        }),
        "no place",
    );
    let Some(Row::Job(third)) = busy().machine.row(Key::Job(JobId(3))) else {
        panic!()
    };
    assert_refused(job(1, |row| row.state = third.state), "no place");
    let Some(Row::Job(fourth)) = busy().machine.row(Key::Job(JobId(4))) else {
        panic!()
    };
    assert_refused(job(2, |row| row.state = fourth.state), "no place");

    // `fax`, to which both origins refer. A machine looks for them in that order.
    for wrong in [vec![origin(2, 1), origin(1, 1)], vec![origin(1, 1); 2]] {
        let bad = altered(Key::Tube(TubeId(2)), |row| {
            let Row::Tube(mut row) = row else { return None };
            assert_eq!(row.references, [origin(1, 1), origin(2, 1)]);
            row.references = wrong.clone();
            Some(Row::Tube(row))
        });
        assert_refused(bad, "not in order");
    }

    let sessions: Vec<_> = rows(&busy())
        .into_iter()
        .filter_map(|row| match row {
            Row::Wait(wait) => Some(wait),
            _ => None,
        })
        .collect();
    let [first, second] = sessions.as_slice() else {
        panic!("two wait")
    };
    assert_refused(
        altered(Key::Wait(first.session), |row| {
            let Row::Wait(mut row) = row else { return None };
            row.sequence = second.sequence;
            Some(Row::Wait(row))
        }),
        "no place in line",
    );
    assert_refused(
        altered(Key::Wait(first.session), |row| {
            let Row::Wait(mut row) = row else { return None };
            row.tubes = names(&["fax", "fax"]);
            Some(Row::Wait(row))
        }),
        "twice for one tube",
    );
}

/// What an apply can never leave behind.
#[test]
fn an_image_of_an_unsettled_machine_is_refused() {
    let open = altered(Key::Origin(NodeId(2)), |row| {
        let Row::Origin(mut row) = row else {
            return None;
        };
        row.suspended = false;
        Some(Row::Origin(row))
    });
    assert!(open.is_ok(), "nothing is ready that they wait for");
    let mut story = busy();
    let ann = story.person();
    story.put(ann, "telex");
    let rows = rows(&story).into_iter().map(|row| match row {
        Row::Origin(mut row) => {
            row.suspended = false;
            Row::Origin(row)
        }
        other => other,
    });
    assert_refused(
        Machine::load(rows).map_err(|bad| bad.0),
        "beside a ready job",
    );

    let tube = busy().machine.row(Key::Tube(TubeId(2)));
    let Some(Row::Tube(mut tube)) = tube else {
        panic!()
    };
    (tube.id, tube.name, tube.references) = (TubeId(1), name("ghost"), vec![]);
    let rows = [
        Machine::new().row(Key::Meta).expect("always"),
        Row::Tube(tube),
    ];
    assert_refused(
        Machine::load(rows).map_err(|bad| bad.0),
        "default is missing",
    );
}
