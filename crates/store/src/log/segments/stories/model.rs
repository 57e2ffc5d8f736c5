use proptest::prelude::*;

use super::*;

/// What a log is asked, without its numbers: these are drawn so that they fit.
#[derive(Clone, Debug)]
enum Ask {
    Put {
        bytes: usize,
        count: u8,
    },
    Truncate {
        keep: prop::sample::Index,
    },
    Purge {
        upto: prop::sample::Index,
    },
    /// Purges beyond the end, as a snapshot does.
    Leap {
        by: u8,
    },
    Name {
        which: usize,
        bytes: usize,
    },
}

/// What becomes of one write.
#[derive(Clone, Debug)]
enum Fate {
    Done,
    /// The process is killed behind it and starts again.
    Killed,
    /// The power goes: of its sectors those are lost.
    Cut(Vec<bool>),
}

fn asks() -> impl Strategy<Value = (Vec<Ask>, Fate)> {
    let ask = prop_oneof![
        6 => (0..900_usize, 1..4_u8).prop_map(|(bytes, count)| Ask::Put { bytes, count }),
        1 => (3_000..6_000_usize).prop_map(|bytes| Ask::Put { bytes, count: 1 }),
        2 => any::<prop::sample::Index>().prop_map(|keep| Ask::Truncate { keep }),
        3 => any::<prop::sample::Index>().prop_map(|upto| Ask::Purge { upto }),
        1 => (0..5_u8).prop_map(|by| Ask::Leap { by }),
        2 => (0..NAMES.len(), 0..60_usize).prop_map(|(which, bytes)| Ask::Name { which, bytes }),
    ];
    let fate = prop_oneof![
        6 => Just(Fate::Done),
        1 => Just(Fate::Killed),
        2 => prop::collection::vec(any::<bool>(), 16).prop_map(Fate::Cut),
        1 => Just(Fate::Cut(vec![true; 16])),
    ];
    (prop::collection::vec(ask, 1..4), fate)
}

/// A log that cannot be wrong.
#[derive(Clone, Default)]
struct Model {
    held: Held,
    end: u64,
    count: u64,
}

/// A step that owns what it says.
enum Owned {
    Put(u64, Vec<u8>),
    Remove(u64, u64),
    Name(&'static str, Vec<u8>),
}

impl Model {
    fn first(&self) -> u64 {
        self.held.frames.keys().next().copied().unwrap_or(self.end)
    }

    /// Does what is asked and says which steps that is.
    fn ask(&mut self, ask: &Ask) -> Vec<Owned> {
        self.count += 1;
        let (first, end) = (self.first(), self.end);
        let held = usize::try_from(end - first).unwrap();
        match ask {
            Ask::Put { bytes, count } => {
                let steps = 0..u64::from(*count);
                let steps = steps.map(|number| {
                    let frame: Vec<u8> = self
                        .count
                        .to_le_bytes()
                        .into_iter()
                        .cycle()
                        .take(*bytes)
                        .collect();
                    self.held.frames.insert(end + number, frame.clone());
                    Owned::Put(end + number, frame)
                });
                let steps = steps.collect();
                self.end += u64::from(*count);
                steps
            }
            Ask::Truncate { keep } => {
                let start = first + keep.index(held + 1) as u64;
                self.held.frames.split_off(&start);
                self.end = start;
                vec![Owned::Remove(start, end)]
            }
            Ask::Purge { upto } => {
                let upto = first + upto.index(held + 1) as u64;
                self.held.frames = self.held.frames.split_off(&upto);
                vec![Owned::Remove(0, upto)]
            }
            Ask::Leap { by } => {
                self.held.frames.clear();
                self.end += u64::from(*by);
                vec![Owned::Remove(first, self.end)]
            }
            Ask::Name { which, bytes } => {
                let value = vec![self.count as u8; *bytes];
                self.held
                    .names
                    .insert(NAMES[*which].to_owned(), value.clone());
                vec![Owned::Name(NAMES[*which], value)]
            }
        }
    }
}

fn steps(owned: &[Owned]) -> Vec<Step<'_>> {
    let step = |it: &'_ Owned| match it {
        Owned::Name(name, value) => Step::Name {
            name,
            value: value.clone(),
        },
        Owned::Remove(start, end) => Step::Remove {
            range: *start..*end,
        },
        Owned::Put(..) => unreachable!("borrowed below"),
    };
    owned
        .iter()
        .map(|it| match it {
            Owned::Put(index, frame) => Step::Put {
                index: *index,
                frame,
            },
            other => step(other),
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is written and wherever it ends, the log holds what was acknowledged, and of the
    /// write that was under way all or nothing.
    #[test]
    fn the_log_holds_what_a_log_holds(story in prop::collection::vec(asks(), 1..60)) {
        let mut place = Place::new().without_syncs();
        let mut log = place.open();
        let mut model = Model::default();
        for (asks, fate) in story {
            let before = model.clone();
            let files = matches!(fate, Fate::Cut(_)).then(|| place.image());
            let owned: Vec<Owned> = asks.iter().flat_map(|ask| model.ask(ask)).collect();
            log.write(&steps(&owned)).unwrap();
            match fate {
                Fate::Done => {}
                Fate::Killed => {
                    drop(log);
                    log = place.open();
                }
                Fate::Cut(lost) => {
                    drop(log);
                    let (image, is_whole) = cut(&files.unwrap_or_default(), place.image(), &lost);
                    place = Place::of(&image).without_syncs();
                    log = place.open();
                    if !is_whole {
                        model = before;
                    }
                }
            }
            prop_assert_eq!(held(&log), model.held.clone());
        }
        drop(log);
        prop_assert_eq!(place.held(), model.held);
    }
}

/// What a power cut leaves of the last write, and whether that is all of it.
fn cut(before: &Image, mut after: Image, lost: &[bool]) -> (Image, bool) {
    // Files are removed only when the write that freed them is on the disk.
    for (path, bytes) in before {
        after.entry(path.clone()).or_insert_with(|| bytes.clone());
    }
    // A file of its own has a name only when it is whole.
    let own: Vec<_> = after
        .iter()
        .filter(|(path, bytes)| bytes.len() > SECTORS * SECTOR && !before.contains_key(*path))
        .map(|(path, _)| path.clone())
        .collect();
    if let [path] = &own[..] {
        let is_whole = !lost.first().is_some_and(|it| *it);
        if !is_whole {
            after.remove(path);
        }
        return (after, is_whole);
    }
    let sectors = written(before, &after).into_iter().zip(lost.iter().cycle());
    let lost: Vec<_> = sectors
        .filter(|(_, lost)| **lost)
        .map(|(it, _)| it)
        .collect();
    (without(before, &after, &lost), lost.is_empty())
}
