//! What the others leave out: files that come back, other sizes after a restart, readers meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;

/// What is done between two crashes.
#[derive(Clone, Debug)]
struct Life {
    /// Bytes of each frame, and how many frames are held behind it.
    writes: Vec<(usize, u64)>,
    /// A vote behind them.
    vote: u8,
    /// Sectors of a segment in the next life.
    sectors: usize,
    /// Which sectors of the last write are lost.
    lost: Vec<bool>,
    /// Which removed files are there again: nobody syncs a folder for a file that is gone.
    back: Vec<bool>,
}

fn life() -> impl Strategy<Value = Life> {
    let bytes = prop_oneof![8 => 0..1_500_usize, 1 => 2_000..9_000_usize];
    (
        prop::collection::vec((bytes, 0..30_u64), 1..40),
        any::<u8>(),
        prop_oneof![3 => Just(SECTORS), 1 => 1..24_usize],
        prop::collection::vec(any::<bool>(), 1..20),
        prop::collection::vec(any::<bool>(), 7),
    )
        .prop_map(|(writes, vote, sectors, lost, back)| Life {
            writes,
            vote,
            sectors,
            lost,
            back,
        })
}

/// The files that were seen and are not there now, as they were last.
fn note_gone(gone: &mut Image, before: &Image, after: &Image) {
    for (path, bytes) in before {
        let is_whole = path.extension().is_some_and(|it| it == "segment");
        if is_whole && !after.contains_key(path) {
            gone.insert(path.clone(), bytes.clone());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Faults D31 again and again: each crash tears the last write where the one before may have
    /// torn the same group, brings back files that were removed, and the next life has another size
    /// of segments.
    #[test]
    fn many_lives_of_one_log(lives in prop::collection::vec(life(), 1..14)) {
        let mut place = Place::new().without_syncs();
        let mut wanted = Held::default();
        let mut next = 0_u64;
        let mut gone = Image::new();
        for (number, life) in lives.iter().enumerate() {
            let log = place.open();
            prop_assert_eq!(held(&log), wanted.clone(), "life {}", number);
            let mut before = (place.image(), wanted.clone(), next);
            for (at, (bytes, kept)) in life.writes.iter().enumerate() {
                before = (place.image(), wanted.clone(), next);
                let frame = vec![(number * 16 + at) as u8; *bytes];
                let mut steps = Vec::new();
                let first = next.saturating_sub(*kept);
                if at % 3 == 2 {
                    steps.push(Step::Remove { range: 0..first });
                    wanted.frames = wanted.frames.split_off(&first);
                }
                if at % 7 == 6 && next > first + 2 {
                    let cut = next - 2;
                    steps.push(Step::Remove { range: cut..next });
                    wanted.frames.split_off(&cut);
                    next = cut;
                }
                steps.push(Step::Put { index: next, frame: &frame });
                if at + 1 == life.writes.len() {
                    let value = vec![life.vote; 40];
                    steps.push(Step::Name { name: "vote", value: value.clone() });
                    wanted.names.insert("vote".into(), value);
                }
                wanted.frames.insert(next, frame.clone());
                next += 1;
                log.write(&steps).unwrap();
                note_gone(&mut gone, &before.0, &place.image());
            }
            drop(log);
            let after = place.image();
            note_gone(&mut gone, &before.0, &after);
            let own = after.iter().any(|(path, bytes)| {
                bytes.len() != place.options.segment_bytes && !before.0.contains_key(path)
            });
            let mut image = after.clone();
            if !own {
                let sectors = written(&before.0, &after);
                let lost = sectors.into_iter().zip(life.lost.iter().cycle());
                let lost: Vec<_> = lost.filter(|(_, lost)| **lost).map(|(it, _)| it).collect();
                image = without(&before.0, &after, &lost);
                if !lost.is_empty() {
                    // A file is removed when the write that frees it is whole on the disk.
                    for (path, bytes) in &before.0 {
                        image.entry(path.clone()).or_insert_with(|| bytes.clone());
                    }
                    (wanted, next) = (before.1, before.2);
                }
            }
            for ((path, bytes), _) in gone.iter().zip(life.back.iter().cycle()).filter(|it| *it.1) {
                image.entry(path.clone()).or_insert_with(|| bytes.clone());
            }
            place = Place::of(&image).without_syncs();
            place.options.segment_bytes = life.sectors * SECTOR;
        }
        prop_assert_eq!(place.held(), wanted);
    }
}

/// Whoever reads while the log is purged, cut off and written over finds each frame that he asks
/// for, or none; never the bytes of another.
#[test]
fn readers_never_find_something_else_while_files_are_written_again() {
    let place = Place::new().without_syncs();
    let log = place.open();
    let (over, end) = (AtomicBool::new(false), AtomicU64::new(0));
    let frame = |index: u64| index.to_le_bytes().repeat(4 + index as usize % 90);
    std::thread::scope(|scope| {
        let reader = || {
            let mut found = 0_u64;
            while !over.load(Ordering::SeqCst) {
                let end = end.load(Ordering::SeqCst);
                for from in [0, end.saturating_sub(20), end.saturating_sub(3)] {
                    for (index, bytes) in log.read(from..u64::MAX, 4_000).unwrap() {
                        assert_eq!(bytes, frame(index), "frame {index}");
                        found += 1;
                    }
                }
            }
            found
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        let mut next = 0;
        for round in 0..6_000_u64 {
            put(&log, next, &frame(next));
            next += 1;
            if round % 11 == 0 {
                remove(&log, 0, next.saturating_sub(30));
            }
            if round % 37 == 0 && next > 5 {
                remove(&log, next - 5, next);
                next -= 5;
            }
            if round % 101 == 0 {
                log.reclaim().unwrap();
            }
            end.store(next, Ordering::SeqCst);
        }
        over.store(true, Ordering::SeqCst);
        for reader in readers {
            assert!(reader.join().unwrap() > 100);
        }
    });
}
