use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use trellis_consensus::{Snapshot, SnapshotFile};

use super::incoming::{Complete, Incoming, Unfinished};
use super::manifest::{Manifest, is_immutable, is_scratch, sum};
use super::pace::Pace;
use super::stored::{Stored, data};
use crate::failure::Failure;
use crate::folder;
use crate::state::{Generation, position_in};

/// The folder of snapshots. One is current; older ones stay while they are being read.
pub(crate) struct Shelf {
    folder: PathBuf,
    failure: Failure,
    current: Mutex<Option<Arc<Stored>>>,
    building: Mutex<()>,
}

impl Shelf {
    /// Keeps the newest whole snapshot in `folder` and removes everything else: half ones, older
    /// ones, those of an entry before `oldest`, and damaged ones, whose place a new one can take.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub(crate) fn open(folder: &Path, oldest: Option<u64>, failure: Failure) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut newest: Option<Stored> = None;
        for item in fs::read_dir(folder)? {
            let path = item?.path();
            let whole = match Stored::open(path.clone(), &failure) {
                Ok(whole) => whole,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::warn!(path = %path.display(), %error, "a damaged snapshot is removed");
                    None
                }
                Err(error) => return Err(error),
            };
            // A name that is only given to whole ones; others are of an earlier run's halves.
            let named = path.file_name().is_some_and(|name| !is_unfinished(name));
            // A kill left an installed state without its snapshot. A new one is made only if there
            // is none; from this one a follower would be told to go on with entries that are gone.
            let is_of_use = |whole: &Stored| named && Some(whole.position().index) >= oldest;
            match whole.filter(is_of_use) {
                Some(whole)
                    if newest
                        .as_ref()
                        .is_none_or(|best| best.position() < whole.position()) =>
                {
                    if let Some(older) = newest.replace(whole) {
                        older.retire();
                    }
                }
                Some(older) => older.retire(),
                None => folder::remove_folder(&path)?,
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            failure,
            current: Mutex::new(newest.map(Arc::new)),
            building: Mutex::new(()),
        })
    }

    pub(crate) fn current(&self) -> Option<Arc<Stored>> {
        self.current.lock().clone()
    }

    /// Held while a snapshot is made or installed: one at a time.
    pub(crate) fn building(&self) -> MutexGuard<'_, ()> {
        self.building.lock()
    }

    #[cfg(test)]
    pub(crate) fn is_building(&self) -> bool {
        self.building.is_locked()
    }

    /// A place for a snapshot from elsewhere.
    pub(crate) fn receive(&self) -> io::Result<Incoming> {
        Incoming::new(self.unfinished())
    }

    /// Makes a snapshot of everything that is written to `generation`. What the snapshot is of is
    /// read from the snapshot (rule 4): more may be in it than was there when it was asked for.
    pub(crate) fn build(&self, generation: &Generation) -> io::Result<Complete> {
        let folder = Unfinished::make(self.unfinished())?;
        let path = folder.path()?;
        let data = data(path);
        generation.checkpoint(&data)?;
        let before = self.current();
        let mut files = Vec::new();
        let mut pace = Pace::begin();
        for item in fs::read_dir(&data)? {
            let item = item?;
            let Ok(name) = item.file_name().into_string() else {
                return Err(io::Error::other(
                    "RocksDB made a file without a readable name",
                ));
            };
            if is_scratch(&name) {
                continue;
            }
            let same = match &before {
                Some(before) if is_immutable(&name) => before.sum_of_same(&item.path(), &name)?,
                _ => None,
            };
            let (len, crc32c) = match same {
                Some(known) => known,
                None => sum(&item.path(), is_immutable(&name), &mut pace)?,
            };
            files.push(SnapshotFile { name, len, crc32c });
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        folder::sync_dir(&data)?;
        let (position, membership) = position_in(&data)?;
        let manifest = Manifest {
            position,
            membership,
            files,
        };
        manifest.write(path)?;
        Ok(Complete { folder, manifest })
    }

    /// Makes `complete` the current snapshot, durably, unless the current one is as new.
    pub(crate) fn adopt(&self, complete: Complete) -> io::Result<Arc<Stored>> {
        let mut current = self.current.lock();
        if let Some(current) = &*current
            && current.position() >= complete.manifest.position
        {
            return Ok(current.clone());
        }
        let position = complete.manifest.position;
        let unique: u32 = rand::random();
        let path = self.folder.join(format!("{}-{unique:08x}", position.index));
        fs::rename(complete.folder.path()?, &path)?;
        complete.folder.keep()?;
        folder::sync_dir(&self.folder)?;
        let stored = Arc::new(Stored::new(path, complete.manifest, &self.failure));
        if let Some(older) = current.replace(stored.clone()) {
            older.retire();
        }
        Ok(stored)
    }

    fn unfinished(&self) -> PathBuf {
        let unique: u64 = rand::random();
        self.folder.join(format!("{UNFINISHED}{unique:016x}"))
    }
}

/// Begins the name of what is not whole yet.
const UNFINISHED: &str = "new-";

fn is_unfinished(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with(UNFINISHED)
}
