use super::*;

/// A log with some groups, then the groups of `last`, of which the disk writes any sectors: what
/// was before is there, and of the last write all or nothing.
fn whatever_the_disk_wrote_of(before: &Image, after: &Image, frames_before: &Held, all: &Held) {
    let sectors = written(before, after);
    assert!((2..=10).contains(&sectors.len()), "{sectors:?}");
    for lost in 0..1_u32 << sectors.len() {
        let is_lost =
            |(at, it): (usize, &(PathBuf, usize))| (lost >> at & 1 == 1).then(|| it.clone());
        let lost: Vec<_> = sectors.iter().enumerate().filter_map(is_lost).collect();
        let place = Place::of(&without(before, after, &lost)).without_syncs();
        let wanted = if lost.is_empty() { all } else { frames_before };
        assert_eq!(place.held(), *wanted, "without {lost:?}");
        // It goes on from there, twice over.
        let mut wanted = wanted.clone();
        for round in 0..2 {
            let log = place.open();
            let next = wanted
                .frames
                .last_key_value()
                .map_or(0, |(index, _)| index + 1);
            let frame = vec![b'n'; if round == 0 { 10 } else { 700 }];
            put(&log, next, &frame);
            wanted.frames.insert(next, frame);
            drop(log);
            assert_eq!(place.held(), wanted, "round {round}, without {lost:?}");
        }
    }
}

/// Faults D31, D32.
#[test]
fn of_the_last_write_there_is_all_or_nothing() {
    let place = Place::new();
    let log = place.open();
    put(&log, 0, b"x");
    name(&log, "vote", b"for her");
    let (before, all_before) = (place.image(), held(&log));
    let steps = [
        Step::Put {
            index: 1,
            frame: &[b'a'; 900],
        },
        Step::Name {
            name: "vote",
            value: b"for him".to_vec(),
        },
        Step::Put {
            index: 2,
            frame: &[b'b'; 1_000],
        },
    ];
    log.write(&steps).unwrap();
    whatever_the_disk_wrote_of(&before, &place.image(), &all_before, &held(&log));
}

#[test]
fn the_same_at_the_beginning_of_a_file_that_was_never_used() {
    let place = Place::new();
    let log = place.open();
    put(&log, 0, &[b'x'; 3_000]);
    let (before, all_before) = (place.image(), held(&log));
    put(&log, 1, &[b'y'; 2_000]);
    whatever_the_disk_wrote_of(&before, &place.image(), &all_before, &held(&log));
}

/// Where the disk did not write there is something that was whole once.
#[test]
fn the_same_where_an_old_log_lies() {
    for purge in [1, 3, 8, 20] {
        let place = Place::new();
        let log = place.open();
        for index in 0..60 {
            put(&log, index, &[b'x'; 600]);
            if index % purge == 0 {
                remove(&log, 0, index);
            }
        }
        for index in 60..64 {
            let (before, all_before) = (place.image(), held(&log));
            put(&log, index, &[b'y'; 1_200]);
            let after = place.image();
            whatever_the_disk_wrote_of(&before, &after, &all_before, &held(&log));
        }
    }
}

#[test]
fn the_very_first_write_is_there_or_the_log_is_new() {
    let place = Place::new();
    let log = place.open();
    let before = place.image();
    put(&log, 0, &[b'x'; 1_000]);
    let after = place.image();
    whatever_the_disk_wrote_of(&before, &after, &Held::default(), &held(&log));
}

/// Two attempts at the same group never make one whole.
#[test]
fn what_crashes_left_of_two_writes_is_never_taken_for_one() {
    let place = Place::new();
    let log = place.open();
    put(&log, 0, b"x");
    let (before, wanted) = (place.image(), held(&log));
    put(&log, 1, &[b'1'; 1_300]);
    let after = place.image();
    let sectors = written(&before, &after);
    assert_eq!(sectors.len(), 3);
    drop(log);
    // The first attempt: all but its first sector.
    let torn = without(&before, &after, &sectors[..1]);
    let place = Place::of(&torn);
    let log = place.open();
    let before = place.image();
    put(&log, 1, &[b'2'; 1_300]);
    let after = place.image();
    // The second one: nothing but its first sector.
    let mixed = without(&before, &after, &sectors[1..]);
    let groups: Vec<_> = heads(&mixed).into_iter().map(|it| it.2).collect();
    assert!(
        groups.iter().filter(|head| head.group == 2).count() == 3,
        "{groups:?}"
    );
    assert_eq!(Place::of(&mixed).held(), wanted);
}

/// A kill while a file is being made, and one before its spare is.
#[test]
fn a_file_that_was_not_finished_is_not_there() {
    let place = Place::new();
    let log = place.open();
    for index in 0..20 {
        put(&log, index, b"x");
    }
    let (mut image, wanted) = (place.image(), held(&log));
    drop(log);
    let live: Vec<_> = heads(&image).into_iter().map(|it| it.0).collect();
    image.retain(|path, _| live.contains(path));
    image.insert("00000099.new".into(), vec![0; 700]);
    let place = Place::of(&image);
    let log = place.open();
    for index in 20..40 {
        put(&log, index, b"x");
    }
    assert!(!place.path().join("00000099.new").exists());
    drop(log);
    assert_eq!(place.held().frames.len(), wanted.frames.len() + 20);
}

/// Of what a failed sync dropped, the page cache may show everything until it is under pressure.
/// A start makes sure that what it has read is on the disk.
#[test]
fn the_last_group_is_written_again_at_the_start() {
    let place = Place::new();
    let log = place.open();
    for index in 0..3 {
        put(&log, index, &[b'x'; 700]);
    }
    drop(log);
    let path = place.path().join("00000001.segment");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let image = place.image();
    eventually_later(&path, before, || drop(place.open()));
    assert_eq!(
        place.image()[Path::new("00000001.segment")],
        image[Path::new("00000001.segment")]
    );
}

/// Clocks of files are coarse.
fn eventually_later(path: &Path, before: std::time::SystemTime, act: impl Fn()) {
    for _ in 0..1_000 {
        act();
        if fs::metadata(path).unwrap().modified().unwrap() > before {
            return;
        }
    }
    panic!("{} is not written", path.display());
}
