use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;

#[test]
fn what_is_written_is_there_now_and_after_a_restart() {
    let place = Place::new();
    let log = place.open();
    let mut wanted = Held::default();
    for index in 5..40 {
        let frame = vec![index as u8; 37 * index as usize];
        put(&log, index, &frame);
        wanted.frames.insert(index, frame);
    }
    name(&log, "vote", b"for her");
    wanted.names.insert("vote".into(), b"for her".to_vec());
    assert_eq!(held(&log), wanted);
    drop(log);
    assert_eq!(place.held(), wanted);
}

/// Promise P1 hangs on this line alone, and a file that was written looks like one that was synced
/// until the power goes.
#[test]
fn every_write_is_synced_before_it_returns() {
    let place = Place::new();
    let log = place.open();
    for count in 1..50 {
        put(&log, count, &[b'x'; 100]);
        assert_eq!(log.syncs(), count);
    }
}

#[test]
fn a_read_is_bounded_and_begins_with_the_first_that_is_there() {
    let place = Place::new();
    let log = place.open();
    for index in 10..60 {
        put(&log, index, &[b'x'; 100]);
    }
    let indexes = |range, bytes| -> Vec<u64> {
        let found = log.read(range, bytes).unwrap();
        found.into_iter().map(|(index, _)| index).collect()
    };
    assert_eq!(indexes(0..u64::MAX, 250), [10, 11, 12]);
    assert_eq!(indexes(31..33, usize::MAX), [31, 32]);
    assert_eq!(indexes(57..u64::MAX, 1), [57]);
    assert_eq!(indexes(60..u64::MAX, usize::MAX), [0; 0]);
    remove(&log, 0, 20);
    remove(&log, 55, 100);
    assert_eq!(
        indexes(0..u64::MAX, usize::MAX),
        (20..55).collect::<Vec<_>>()
    );
}

/// A write of 60 MB is one group all the same.
#[test]
fn a_write_larger_than_a_segment_has_a_file_of_its_own() {
    let place = Place::new();
    let log = place.open();
    name(&log, "vote", b"kept");
    let large = vec![b'l'; 20 * SECTOR];
    for index in (0..12).step_by(2) {
        put(&log, index, &large);
        put(&log, index + 1, b"small");
    }
    let before = held(&log);
    assert_eq!(before.frames.len(), 12);
    drop(log);
    assert_eq!(place.held(), before);

    // None of those stays when nothing in it counts any more.
    let log = place.open();
    remove(&log, 0, 12);
    put(&log, 12, b"behind");
    eventually(|| large_files(&place), |count| *count == 0);
    drop(log);
    let after = place.held();
    assert_eq!(after.frames, BTreeMap::from([(12, b"behind".to_vec())]));
    assert_eq!(after.names, before.names);
}

fn large_files(place: &Place) -> usize {
    let image = place.image();
    let large = image.values().filter(|it| it.len() > SECTORS * SECTOR);
    large.count()
}

fn eventually<T: std::fmt::Debug>(look: impl Fn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let seen = look();
        if wanted(&seen) {
            return seen;
        }
        assert!(Instant::now() < until, "it is still {seen:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What was purged is written over, so that a log that is as long as ever makes no new files.
#[test]
fn files_are_written_again_when_nothing_in_them_counts() {
    let place = Place::new();
    let log = place.open();
    name(&log, "vote", b"from the first file");
    let mut most = 0;
    for index in 0..2_000_u64 {
        put(&log, index, &index.to_le_bytes());
        if index >= 30 && index % 10 == 0 {
            remove(&log, 0, index - 30);
        }
        most = most.max(place.image().len());
    }
    assert!(
        most <= 12,
        "{most} files for 40 groups in files of 8 sectors"
    );
    let before = held(&log);
    assert_eq!(before.frames.len(), 40);
    assert_eq!(before.names["vote"], b"from the first file");
    drop(log);
    let groups: Vec<u64> = heads(&place.image()).iter().map(|it| it.2.group).collect();
    assert!(groups.iter().all(|group| *group > 1_500), "{groups:?}");
    assert_eq!(place.held(), before);
}

/// Those that come again and again take as many spares as a purge frees, and no more are kept.
#[test]
fn as_many_spares_are_kept_as_are_used_between_two_purges() {
    let place = Place::new();
    let log = place.open();
    let mut next = 0;
    let mut round = |frames: u64| {
        for _ in 0..frames {
            put(&log, next, b"x");
            next += 1;
        }
        remove(&log, 0, next);
        put(&log, next, b"says so");
        next += 1;
        place.image();
        log.spares().len()
    };
    assert!(round(400) >= 45);
    let (many, files) = (round(400), place.image().len());
    assert!(many >= 45, "{many} spares");
    round(400);
    assert!(place.image().len() <= files + 1, "no new file was made");
    // It has become quiet.
    round(10);
    assert!(round(10) < 10);
    eventually(|| place.image().len(), |files| *files < 12);
}

#[test]
fn a_disk_that_is_short_of_room_gets_the_spares_back() {
    let place = Place::new();
    let log = place.open();
    for index in 0..400 {
        put(&log, index, b"x");
    }
    remove(&log, 0, 400);
    assert!(place.image().len() > 40);
    log.reclaim().unwrap();
    eventually(|| place.image().len(), |files| *files <= 4);
    put(&log, 400, b"goes on");
    drop(log);
    assert_eq!(place.held().frames.len(), 1);
}

#[test]
fn a_shorter_log_is_written_over_a_longer_one() {
    let place = Place::new();
    let log = place.open();
    for index in 0..30 {
        put(&log, index, b"of the old leader");
    }
    remove(&log, 7, 30);
    put(&log, 7, b"of the new one");
    put(&log, 8, b"of the new one");
    remove(&log, 8, 9);
    put(&log, 8, b"of the newest one");
    let before = held(&log);
    let frames: Vec<&[u8]> = before.frames.values().map(Vec::as_slice).collect();
    assert_eq!(frames[..7], [b"of the old leader"; 7]);
    assert_eq!(frames[7..], [&b"of the new one"[..], b"of the newest one"]);
    drop(log);
    assert_eq!(place.held(), before);
}

#[test]
fn a_hole_is_not_written() {
    let place = Place::new();
    let log = place.open();
    put(&log, 3, b"x");
    for steps in [
        Step::Put {
            index: 5,
            frame: b"y",
        },
        Step::Put {
            index: 3,
            frame: b"y",
        },
    ] {
        assert!(log.write(&[steps]).is_err());
    }
    put(&log, 4, b"z");
    put(&log, 5, b"z");
    let within = Step::Remove { range: 4..5 };
    assert!(log.write(&[within]).is_err());
    drop(log);
    assert_eq!(place.held().frames.len(), 3);
}

/// Whoever reads what is purged meanwhile does not find something else in its place.
#[test]
fn a_segment_that_is_read_is_not_written_again() {
    let place = Place::new();
    let log = place.open();
    for index in 0..8 {
        put(&log, index, b"read slowly");
    }
    let (_, run) = log.index().read().find(&(0..u64::MAX)).unwrap();
    let path = run.segment.path.clone();
    let content = fs::read(&path).unwrap();
    remove(&log, 0, 8);
    for index in 8..100 {
        put(&log, index, b"y");
        remove(&log, 0, index);
    }
    assert_eq!(fs::read(&path).unwrap(), content);
    assert_eq!(Arc::strong_count(&run.segment), 2);
    drop(run);
    let mut index = 100;
    while fs::read(&path).is_ok_and(|now| now == content) {
        assert!(index < 1_000, "it is never used again");
        put(&log, index, b"y");
        remove(&log, 0, index);
        index += 1;
    }
}

/// A log of a gigabyte must not cost its index in memory.
#[test]
fn the_index_is_small() {
    let place = Place::new();
    let options = LogOptions {
        sync: false,
        segment_bytes: 16 * 1024 * 1024,
        ..LogOptions::default()
    };
    let log = Segments::open(place.path(), &options).unwrap();
    for index in 0..20_000 {
        put(&log, index, &[b'x'; 100]);
    }
    let (marks, size) = log.index().read().marks();
    println!("{marks} marks of {size} bytes for 20,000 frames of one sector each");
    assert!(marks * size <= 20_000, "more than a byte for each frame");
    assert_eq!(log.read(17_777..u64::MAX, 1).unwrap()[0].0, 17_777);
}

/// The log goes on in what it has; only when it needs a file and has none it fails.
#[test]
fn a_disk_that_is_full_stops_the_log_only_when_it_needs_a_file() {
    let place = Place::new();
    // Everything that is written to it says that there is no room.
    let full = |number: u64| place.path().join(format!("{number:08}.new"));
    let log = place.open();
    put(&log, 0, b"x");
    eventually(|| log.spares().len(), |spares| *spares == 1);
    for number in 3..200 {
        std::os::unix::fs::symlink("/dev/full", full(number)).unwrap();
    }
    let mut next = 1;
    // Into the spare, so that one is to be made.
    while log.spares().len() == 1 {
        put(&log, next, b"x");
        next += 1;
    }
    put(&log, next, b"there is room in this one");
    log.health().unwrap();
    let failed = (next + 1..next + 20).find(|index| {
        let frame = b"x";
        let step = Step::Put {
            index: *index,
            frame,
        };
        log.write(&[step]).is_err()
    });
    let failed = failed.expect("it needs a file in the end");
    assert!(failed > next + 1);
    assert!(log.write(&[]).is_err(), "and is not tried again");
    drop(log);
    let held = place.held();
    assert_eq!(held.frames.len() as u64, failed, "what was acknowledged");
}

#[test]
fn a_spare_is_made_as_soon_as_a_full_disk_has_room_again() {
    let place = Place::new();
    let full = place.path().join("00000002.new");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let log = place.open();
    put(&log, 0, b"x");
    eventually(|| log.spares().len(), |spares| *spares == 1);
    log.health().unwrap();
    put(&log, 1, b"x");
}
