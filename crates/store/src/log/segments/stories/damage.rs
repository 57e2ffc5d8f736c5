use super::*;

/// Some segments with groups of one sector and of three, none of which is a spare.
fn full() -> (Place, Image, Held) {
    let place = Place::new();
    let log = place.open();
    for index in 0..24 {
        let frame = vec![b'x'; if index % 3 == 0 { 1_200 } else { 100 }];
        put(&log, index, &frame);
    }
    let (image, all) = (place.image(), held(&log));
    (place, image, all)
}

/// Faults D33: none of the bits that say where a sector belongs can make it look unwritten.
#[test]
fn every_flipped_bit_of_a_head_is_refused_wherever_it_is() {
    let (_place, image, _) = full();
    for (path, sector, _) in heads(&image) {
        for bit in 0..24 * 8 {
            let mut spoilt = image.clone();
            spoilt.get_mut(&path).unwrap()[sector * SECTOR + bit / 8] ^= 1 << (bit % 8);
            assert!(
                is_refused(&spoilt),
                "bit {bit} of sector {sector} of {path:?}"
            );
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_refused_even_where_nothing_counts() {
    let place = Place::new();
    let log = place.open();
    for index in 0..60 {
        put(&log, index, &[b'x'; 600]);
        if index % 20 == 0 {
            remove(&log, 0, index);
        }
    }
    let image = place.image();
    for (path, bytes) in &image {
        for byte in (0..bytes.len()).step_by(97) {
            let mut spoilt = image.clone();
            spoilt.get_mut(path).unwrap()[byte] ^= 0x10;
            assert!(is_refused(&spoilt), "byte {byte} of {path:?}");
        }
    }
}

/// Faults D33: a disk that said that it had written, and had not. Only of the very last group this
/// looks as a crash does.
#[test]
fn a_hole_before_the_last_group_is_refused() {
    let (_place, image, all) = full();
    let heads = heads(&image);
    let last = heads.iter().map(|it| it.2.group).max().unwrap();
    for (path, sector, head) in &heads {
        let lost = [(path.clone(), *sector)];
        let spoilt = without(&Image::new(), &image, &lost);
        if head.group == last {
            let mut wanted = all.clone();
            wanted.frames.pop_last();
            assert_eq!(Place::of(&spoilt).held(), wanted);
        } else {
            assert!(is_refused(&spoilt), "sector {sector} of {path:?}: {head:?}");
        }
    }
    // A group that is missing as a whole is one as well.
    for group in 1..last {
        let lost: Vec<_> = heads
            .iter()
            .filter(|(_, _, head)| head.group == group)
            .map(|(path, sector, _)| (path.clone(), *sector))
            .collect();
        assert!(!lost.is_empty());
        assert!(
            is_refused(&without(&Image::new(), &image, &lost)),
            "group {group}"
        );
    }
}

/// Faults D36: the sectors are sound, and somewhere else.
#[test]
fn a_write_that_landed_elsewhere_is_refused() {
    let place = Place::new();
    let log = place.open();
    put(&log, 0, b"x");
    let before = place.image();
    put(&log, 1, b"y");
    let after = place.image();
    let [(path, sector)] = &written(&before, &after)[..] else {
        panic!("one sector");
    };
    for elsewhere in (0..SECTORS).filter(|it| it != sector) {
        let mut spoilt = before.clone();
        let content = &after[path][sector * SECTOR..(sector + 1) * SECTOR];
        spoilt.get_mut(path).unwrap()[elsewhere * SECTOR..(elsewhere + 1) * SECTOR]
            .copy_from_slice(content);
        assert!(is_refused(&spoilt), "at {elsewhere} instead of {sector}");
    }
}

#[test]
fn a_file_that_is_missing_is_noticed() {
    let (_place, image, _) = full();
    let mut live: Vec<_> = heads(&image)
        .into_iter()
        .map(|it| (it.2.group, it.0))
        .collect();
    live.sort();
    live.dedup_by(|one, other| one.1 == other.1);
    // Without the last one it is an older log; the state, which was never ahead, will tell.
    for (_, path) in &live[..live.len() - 1] {
        let mut spoilt = image.clone();
        spoilt.remove(path);
        assert!(is_refused(&spoilt), "without {path:?}");
    }
    // And so is one that is there twice.
    for (_, path) in &live {
        let mut spoilt = image.clone();
        spoilt.insert("00000099.segment".into(), image[path].clone());
        assert!(is_refused(&spoilt), "{path:?} twice");
    }
}

#[test]
fn a_file_that_was_cut_off_is_noticed() {
    let (_place, image, _) = full();
    let first = heads(&image)[0].0.clone();
    for len in [0, 1, 511, 512, 1_000, 3_000] {
        let mut spoilt = image.clone();
        spoilt.get_mut(&first).unwrap().truncate(len);
        assert!(is_refused(&spoilt), "{len} bytes left");
    }
}

/// It is checked again when it is read.
#[test]
fn what_decays_while_the_log_is_open_is_found_by_its_reader() {
    let (place, image, _) = full();
    for (path, sector, head) in heads(&image).into_iter().step_by(5) {
        let place = Place::of(&image);
        let log = place.open();
        let path = place.path().join(path);
        let mut bytes = fs::read(&path).unwrap();
        bytes[sector * SECTOR + 40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = log.read(0..u64::MAX, usize::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{head:?}");

        // Or something older lies there again, with a good checksum.
        bytes[sector * SECTOR..(sector + 1) * SECTOR].fill(0);
        fs::write(&path, &bytes).unwrap();
        assert!(log.read(0..u64::MAX, usize::MAX).is_err(), "{head:?}");
    }
    drop(place);
}

#[test]
fn the_log_of_something_else_is_refused() {
    let place = Place::new();
    fs::write(
        place.path().join("00000001.segment"),
        [b'x'; SECTORS * SECTOR],
    )
    .unwrap();
    assert!(place.try_open().is_err());
}
