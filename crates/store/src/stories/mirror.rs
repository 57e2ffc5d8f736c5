use trellis_consensus::{Membership, StateStore};
use trellis_types::JobId;

use super::replica::*;
use super::*;

/// Windows close only when a story says so.
fn patient(options: &mut StoreOptions) {
    options.state.window = Duration::from_secs(3600);
}

/// Every entry is a window of its own, as long as there is room.
fn hasty(options: &mut StoreOptions) {
    options.state.window = Duration::ZERO;
}

#[test]
fn a_restart_finds_what_was_applied() {
    let folder = Folder::with(hasty);
    let mut node = Replica::new(&folder);
    for n in 0..50 {
        node.put(format!("letter {n}"));
    }
    node.tell(vec![reserve(), reserve()]);
    node.tell(vec![delete(JobId(1)), delete(JobId(30))]);
    node.settle();
    let (digest, next) = (node.machine.digest(), node.next);
    drop(node);
    let node = Replica::load(folder.open());
    assert_eq!((node.machine.digest(), node.next), (digest, next));
    let owed = node.owe(JobId(7), 8);
    assert_eq!(owed.ready(), None);
    assert_eq!(owed.read().unwrap(), "letter 6");
}

/// So many change in one window that rows are encoded ahead of its closing; what changes after that
/// must not be written as it was before.
#[test]
fn what_was_encoded_ahead_and_changed_again_is_written_as_it_is() {
    let folder = Folder::with(patient);
    let mut node = Replica::new(&folder);
    for n in 0..2_500 {
        node.put(format!("letter {n}"));
    }
    node.tell(vec![reserve(), reserve()]);
    node.tell((1..100).map(|job| delete(JobId(5 * job))).collect());
    for n in 0..1_500 {
        node.put(format!("late letter {n}"));
    }
    node.tell((1..50).map(|job| delete(JobId(7 * job))).collect());
    node.settle();
    let (digest, next) = (node.machine.digest(), node.next);
    drop(node);
    let node = Replica::load(folder.open());
    assert_eq!((node.machine.digest(), node.next), (digest, next));
}

#[test]
fn a_job_that_lived_shorter_than_a_window_never_touches_the_disk() {
    let folder = Folder::with(patient);
    let mut node = Replica::new(&folder);
    node.settle();
    let before = node.opened.state.metrics().rows.get();
    for _ in 0..100 {
        let job = node.put("short life");
        node.tell(vec![delete(job)]);
    }
    node.settle();
    let metrics = node.opened.state.metrics();
    assert_eq!(metrics.annihilated.get(), 100);
    // Meta, the origin, and a tube that came and went.
    assert!(
        metrics.rows.get() - before <= 5,
        "{} rows",
        metrics.rows.get() - before
    );
}

/// Rule 2: after a power cut the log would be behind the state for ever.
#[test]
fn a_window_waits_until_the_log_is_on_disk() {
    let folder = Folder::with(hasty);
    let (opened, disk) = folder.open_faulty();
    let mut node = Replica::load(opened);
    node.apply(&open_origin());
    eventually(
        || node.opened.state.written_index(),
        |written| *written == Some(0),
    );

    disk.hang(true);
    node.put("ahead of its log");
    // Long enough for a window that does not wait to be written many times over.
    let (written, _) = eventually(
        || {
            let state = &node.opened.state;
            (state.written_index(), state.write_outstanding())
        },
        |(written, waiting)| {
            let long = waiting.is_some_and(|waiting| waiting >= Duration::from_millis(300));
            *written != Some(0) || long
        },
    );
    assert_eq!(written, Some(0));
    disk.hang(false);
    eventually(
        || node.opened.state.written_index(),
        |written| *written == Some(1),
    );
}

#[test]
fn apply_waits_when_the_windows_are_full() {
    let folder = Folder::with(|options| {
        patient(options);
        options.state.window_bytes = 10_000;
    });
    let (opened, disk) = folder.open_faulty();
    let mut node = Replica::load(opened);
    disk.hang(true);
    node.apply(&open_origin());
    let mut puts = 0;
    while node.opened.state.has_room() {
        node.put(vec![b'x'; 3_000]);
        puts += 1;
        assert!(puts < 100, "bounded");
    }
    assert!(
        puts >= 9,
        "two closed windows and a full one after {puts} puts"
    );
    let state = node.opened.state.clone();
    let still_full = node.block_on(async {
        tokio::select! {
            biased;
            room = state.room() => panic!("{room:?}"),
            () = tokio::task::yield_now() => true,
        }
    });
    assert!(still_full);
    disk.hang(false);
    node.block_on(state.room()).unwrap();
}

/// "An idle cluster writes nothing": what happens in the log without a change of the state is no
/// reason either.
#[test]
fn nothing_dirty_nothing_written() {
    let folder = Folder::with(hasty);
    let mut node = Replica::new(&folder);
    node.settle();
    let before = node.opened.state.metrics().windows.get();
    for _ in 0..5 {
        let position = at(node.next);
        node.next += 1;
        let state = &node.opened.state;
        state
            .record(position, None, &node.machine, Vec::new())
            .unwrap();
    }
    assert_eq!(node.opened.state.metrics().windows.get(), before);
    assert_eq!(node.opened.state.write_outstanding(), None);
}

#[test]
fn the_membership_comes_back_with_the_state() {
    let folder = Folder::with(hasty);
    let mut node = Replica::new(&folder);
    let membership = Membership {
        position: Some(at(1)),
        voters: vec![[NodeId(1), NodeId(2)].into()],
        members: [NodeId(1), NodeId(2)]
            .map(|id| {
                let (name, address) = (format!("trellis-{id}"), "host:11301".to_owned());
                (id, trellis_consensus::Member { id, name, address })
            })
            .into(),
    };
    node.membership(&membership);
    assert_eq!(node.snapshot().membership(), membership);
    drop(node);
    assert_eq!(folder.open().state.load().unwrap().membership, membership);
}

#[test]
fn a_body_is_found_wherever_it_is_on_its_way() {
    let folder = Folder::with(|options| {
        patient(options);
        options.state.body_cache_bytes = 1_000;
    });
    let mut node = Replica::new(&folder);
    let (small, large) = ("a".repeat(100), "b".repeat(50_000));
    let (first, second) = (node.put(small.clone()), node.put(large.clone()));
    assert_eq!(
        node.owe(first, 100).ready().unwrap(),
        small,
        "in the open window"
    );
    node.settle();
    assert_eq!(node.owe(first, 100).ready().unwrap(), small, "in the cache");
    let owed = node.owe(second, 50_000);
    assert_eq!(owed.ready(), None, "too large for this cache, so on disk");
    assert_eq!(owed.read().unwrap(), large);
    assert_eq!(owed.ready().unwrap(), large, "and at hand from then on");
    assert_eq!(node.opened.state.owed_bytes(), 50_000);
    drop(owed);
    assert_eq!(node.opened.state.owed_bytes(), 0);
    assert_eq!(
        node.owe(JobId(99), 0).ready().unwrap(),
        "",
        "an empty body is known"
    );
}

#[test]
fn a_long_body_that_is_cached_stays_in_memory_no_longer_for_being_owed() {
    let folder = Folder::with(|options| {
        patient(options);
        options.state.body_cache_bytes = 30_000;
    });
    let mut node = Replica::new(&folder);
    let (short, long) = ("a".repeat(1_000), "b".repeat(20_000));
    let (first, second) = (node.put(short.clone()), node.put(long.clone()));
    assert!(node.owe(second, 20_000).is_held(), "it is not on disk yet");
    node.settle();
    let (one, other) = (node.owe(first, 1_000), node.owe(second, 20_000));
    assert!(one.is_held() && !other.is_held());
    assert_eq!(other.ready().unwrap(), long);

    node.tell(vec![delete(first), delete(second)]);
    node.put("c".repeat(25_000));
    node.settle();
    assert_eq!(one.ready().unwrap(), short);
    assert_eq!(other.ready(), None, "others took its place");
    assert_eq!(other.read().unwrap(), long, "its row is kept");
    assert!(other.is_held());
}

/// Rule 6.
#[test]
fn an_owed_body_outlives_its_job() {
    let folder = Folder::with(|options| {
        patient(options);
        options.state.body_cache_bytes = 0;
    });
    let mut node = Replica::new(&folder);
    let job = node.put("b".repeat(5_000));
    node.settle();
    let (one, other) = (node.owe(job, 5_000), node.owe(job, 5_000));
    node.tell(vec![delete(job)]);
    node.settle();
    assert_eq!(one.read().unwrap().len(), 5_000);
    drop(one);
    node.put("something else");
    node.settle();
    assert_eq!(
        other.read().unwrap().len(),
        5_000,
        "the other connection has not got it yet"
    );

    // Killed now, the body has no job any more and must not stay for ever.
    node.opened.state.flush();
    let image = folder.crash_image();
    let again = Replica::load(image.open());
    assert_eq!(again.machine.digest(), node.machine.digest());
    assert_eq!(again.opened.state.body_on_disk(job), None);

    drop(other);
    node.put("something else");
    node.settle();
    assert_eq!(node.opened.state.body_on_disk(job), None);
}

/// A pipelining client may guess the id: its reserve is answered after the very entry that also
/// deleted the job, whether a window closes with that entry or not.
#[test]
fn a_body_can_still_be_asked_for_in_the_entry_that_deleted_its_job() {
    for windows in [patient, hasty] {
        let folder = Folder::with(|options| {
            windows(options);
            options.state.body_cache_bytes = 0;
        });
        let mut node = Replica::new(&folder);
        node.tell(vec![put("now"), reserve(), delete(JobId(1))]);
        assert_eq!(node.owe(JobId(1), 3).read().unwrap(), "now");

        let job = node.put("later");
        node.settle();
        node.tell(vec![reserve(), delete(job)]);
        // The window with the deletion, if it is closed, is written before anybody asks.
        node.drain();
        assert_eq!(node.owe(job, 5).read().unwrap(), "later");
    }
}

#[test]
fn a_flush_that_fails_stops_the_node_once() {
    let folder = Folder::with(hasty);
    let mut node = Replica::new(&folder);
    node.put("lost");
    node.settle();
    std::fs::remove_dir_all(folder.path().join("state/1")).unwrap();
    let building = node.begin_snapshot();
    assert!(node.block_on(building).is_err());
    let failures = folder.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    let state = &node.opened.state;
    assert!(
        state
            .record(at(node.next), None, &node.machine, Vec::new())
            .is_err()
    );
}

#[test]
fn windows_become_durable_by_themselves_after_some_bytes() {
    let folder = Folder::with(|options| {
        hasty(options);
        options.state.flush_bytes = 50_000;
    });
    let mut node = Replica::new(&folder);
    for _ in 0..30 {
        node.put(vec![b'x'; 4_000]);
        node.settle();
    }
    eventually(
        || node.opened.state.durable_index(),
        |durable| *durable >= Some(10),
    );
}

#[test]
fn a_flush_is_forced_when_a_restart_would_replay_too_much() {
    let folder = Folder::with(|options| {
        hasty(options);
        options.state.replay_bytes = 2 * 1024 * 1024;
    });
    let mut node = Replica::new(&folder);
    node.settle();
    assert_eq!(node.opened.state.durable_index(), None);
    let start = node.next;
    let lines: Vec<_> = (start..start + 40)
        .map(|index| entry(index, 100_000))
        .collect();
    let appending = append(&mut node.opened.log, lines);
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(appending)
        .unwrap();
    for _ in 0..40 {
        node.put("x");
        node.settle();
    }
    eventually(
        || node.opened.state.durable_index(),
        |durable| *durable >= Some(20),
    );
}

fn sst_and_blob(folder: &Folder) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let state = folder.path().join("state/1");
    let ending = |ending| {
        let names = listing(&state).into_iter().map(|(path, _)| path);
        names
            .filter(|path| path.to_string_lossy().ends_with(ending))
            .collect()
    };
    (ending(".sst"), ending(".blob"))
}

fn flip_all(files: &[PathBuf]) {
    for file in files {
        let mut bytes = std::fs::read(file).unwrap();
        // Behind any header, before any index or footer.
        bytes[40] ^= 1;
        std::fs::write(file, bytes).unwrap();
    }
}

/// Faults D34.
#[test]
fn a_flipped_bit_in_the_rows_is_found_when_they_are_loaded() {
    let folder = Folder::with(hasty);
    let mut node = Replica::new(&folder);
    node.put("x");
    node.settle();
    node.opened.state.flush();
    let image = folder.crash_image();
    flip_all(&sst_and_blob(&image).0);
    match image.try_open() {
        Err(OpenError::StateDamaged { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(opened) => {
            let error = opened.state.load().unwrap_err();
            assert!(
                error.to_string().contains("rejoins as a new member"),
                "{error}"
            );
        }
    }
}

/// Faults D34.
#[test]
fn a_flipped_bit_in_a_body_stops_the_node_that_reads_it() {
    let folder = Folder::with(hasty);
    let mut node = Replica::new(&folder);
    let job = node.put("b".repeat(20_000));
    node.settle();
    node.opened.state.flush();
    let image = folder.crash_image();
    flip_all(&sst_and_blob(&image).1);
    let again = Replica::load(image.open());
    let owed = again.owe(job, 20_000);
    assert_eq!(owed.ready(), None);
    assert!(owed.read().is_err());
    assert!(owed.read().is_err());
    assert_eq!(image.failures().len(), 1, "{:?}", image.failures());
}

#[test]
fn a_state_without_its_pointer_is_refused_and_kept() {
    let folder = Folder::with(hasty);
    Replica::new(&folder).settle();
    std::fs::remove_file(folder.path().join("state/CURRENT")).unwrap();
    assert!(matches!(
        folder.try_open(),
        Err(OpenError::StateDamaged { .. })
    ));
    assert!(folder.path().join("state/1").exists());
}

/// A kill between two steps of the very first start.
#[test]
fn a_first_start_that_was_killed_is_begun_again() {
    let folder = Folder::with(hasty);
    drop(folder.open());
    let state = folder.path().join("state");
    for half in ["", "generat", "generation 1\n"] {
        std::fs::remove_dir_all(&state).unwrap();
        std::fs::create_dir(&state).unwrap();
        std::fs::write(state.join("CURRENT.new"), half).unwrap();
        drop(folder.open());
        assert!(!state.join("CURRENT.new").exists());
    }
    // Beside a state it excuses nothing.
    std::fs::rename(state.join("CURRENT"), state.join("CURRENT.new")).unwrap();
    assert!(matches!(
        folder.try_open(),
        Err(OpenError::StateDamaged { .. })
    ));
}

/// Rule 1: RocksDB flushes by itself when it likes. Were it one family alone, the rows on disk
/// would be of a later entry than the applied index beside them.
#[test]
fn a_flush_nobody_asked_for_is_of_one_moment() {
    let folder = Folder::with(|options| {
        hasty(options);
        // As small as RocksDB allows; the family of jobs fills long before the others.
        options.state.memtable_bytes = 64 * 1024;
        options.state.flush_bytes = u64::MAX;
    });
    let mut node = Replica::new(&folder);
    let mut history = Vec::new();
    for _ in 0..60 {
        let index = node.next;
        let entry = batch(index, index, 1, (0..100).map(|_| put("")).collect());
        node.apply(&entry);
        history.push(entry);
        node.drain();
    }
    node.opened.state.halt();
    let image = folder.crash_image();
    let mut again = Replica::load(image.open());
    assert!(again.next > 1, "nothing was flushed at all");
    assert!(again.next < node.next, "everything was");
    assert_eq!(
        again.machine.server().ready,
        100 * (again.next - 1),
        "the jobs of another moment than entry {}",
        again.next - 1
    );
    for entry in &history[usize::try_from(again.next - 1).unwrap()..] {
        again.apply(entry);
    }
    assert_eq!(again.machine.digest(), node.machine.digest());
}
