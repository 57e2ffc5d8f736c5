//! What becomes of the log when the power goes at the worst moment, and when the disk lies.

mod crashes;
mod damage;
mod everyday;
mod model;
mod worse;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::super::engine::{LogEngine, Step};
use super::engine::Segments;
use super::sector::{Head, SECTOR};
use crate::options::LogOptions;

/// A folder with a log whose segments have eight sectors.
struct Place {
    dir: tempfile::TempDir,
    options: LogOptions,
}

/// All that a log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    frames: BTreeMap<u64, Vec<u8>>,
    names: BTreeMap<String, Vec<u8>>,
}

/// The files of a log.
type Image = BTreeMap<PathBuf, Vec<u8>>;

const NAMES: [&str; 2] = ["vote", "purged"];

const SECTORS: usize = 8;

impl Place {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            options: LogOptions {
                segment_bytes: SECTORS * SECTOR,
                ..LogOptions::default()
            },
        }
    }

    /// Power is cut by other means here, and there are many stories.
    fn without_syncs(mut self) -> Self {
        self.options.sync = false;
        self
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self) -> Segments {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> io::Result<Segments> {
        Segments::open(self.path(), &self.options)
    }

    /// What a kill leaves.
    fn image(&self) -> Image {
        // A spare may come or go meanwhile.
        for _ in 0..1000 {
            let files: io::Result<Image> = fs::read_dir(self.path())
                .unwrap()
                .map(|item| item.and_then(|it| Ok((it.path(), fs::read(it.path())?))))
                .collect();
            if let Ok(files) = files {
                return files
                    .into_iter()
                    .map(|(path, bytes)| (path.file_name().unwrap().into(), bytes))
                    .collect();
            }
        }
        panic!("{} does not come to rest", self.path().display());
    }

    fn of(image: &Image) -> Self {
        let place = Self::new();
        for (name, bytes) in image {
            fs::write(place.path().join(name), bytes).unwrap();
        }
        place
    }

    /// Opens it, says what it holds, and shuts it again.
    fn held(&self) -> Held {
        held(&self.open())
    }
}

fn held(log: &Segments) -> Held {
    let frames = log.read(0..u64::MAX, usize::MAX).unwrap();
    let names = NAMES.into_iter().filter_map(|name| {
        let value = log.named(name).unwrap()?;
        Some((name.to_owned(), value.to_vec()))
    });
    Held {
        frames: frames
            .into_iter()
            .map(|(index, frame)| (index, frame.to_vec()))
            .collect(),
        names: names.collect(),
    }
}

fn put(log: &Segments, index: u64, frame: &[u8]) {
    log.write(&[Step::Put { index, frame }]).unwrap();
}

fn remove(log: &Segments, start: u64, end: u64) {
    log.write(&[Step::Remove { range: start..end }]).unwrap();
}

fn name(log: &Segments, name: &'static str, value: &[u8]) {
    let value = value.to_vec();
    log.write(&[Step::Name { name, value }]).unwrap();
}

/// Where `after` differs from `before`: the sectors of what was written between. A file that is
/// new was zero before.
fn written(before: &Image, after: &Image) -> Vec<(PathBuf, usize)> {
    let mut found = Vec::new();
    for (path, bytes) in after {
        for (sector, content) in bytes.chunks(SECTOR).enumerate() {
            if content != was(before, path, sector) {
                found.push((path.clone(), sector));
            }
        }
    }
    found
}

fn was<'a>(before: &'a Image, path: &Path, sector: usize) -> &'a [u8] {
    let bytes = before.get(path).map(Vec::as_slice);
    let content = bytes.and_then(|it| it.get(sector * SECTOR..(sector + 1) * SECTOR));
    content.unwrap_or(&[0; SECTOR])
}

/// `after`, but the disk has not written `sectors`.
fn without(before: &Image, after: &Image, sectors: &[(PathBuf, usize)]) -> Image {
    let mut image = after.clone();
    for (path, sector) in sectors {
        let bytes = image.get_mut(path).unwrap();
        bytes[sector * SECTOR..(sector + 1) * SECTOR].copy_from_slice(was(before, path, *sector));
    }
    image
}

/// All sectors that were ever written, with what they say of themselves.
fn heads(image: &Image) -> Vec<(PathBuf, usize, Head)> {
    let mut found = Vec::new();
    for (path, bytes) in image {
        for (at, sector) in bytes.as_chunks::<SECTOR>().0.iter().enumerate() {
            if let Some(head) = Head::read(sector).unwrap() {
                found.push((path.clone(), at, head));
            }
        }
    }
    found
}

fn is_refused(image: &Image) -> bool {
    match Place::of(image).without_syncs().try_open() {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            true
        }
    }
}
