use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use trellis_consensus::{Membership, Position, Snapshot, SnapshotFile};

use super::manifest::Manifest;

/// A whole snapshot on disk. Its folder goes when a newer one has taken its place and nobody reads
/// in it any more.
pub(crate) struct Stored {
    folder: PathBuf,
    manifest: Manifest,
    obsolete: AtomicBool,
}

impl Stored {
    pub(super) fn new(folder: PathBuf, manifest: Manifest) -> Self {
        Self {
            folder,
            manifest,
            obsolete: AtomicBool::new(false),
        }
    }

    /// Looks whether all files are there, with the right length; their content is looked at by who
    /// receives it.
    pub(super) fn open(folder: PathBuf) -> io::Result<Option<Self>> {
        let Some(manifest) = Manifest::read(&folder)? else {
            return Ok(None);
        };
        for file in &manifest.files {
            match fs::metadata(data(&folder).join(&file.name)) {
                Ok(found) if found.len() == file.len => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(Self::new(folder, manifest)))
    }

    pub(super) fn retire(&self) {
        self.obsolete.store(true, Ordering::Relaxed);
    }

    /// The checksum of a file that is the same as this snapshot's of that name: the very same one,
    /// by hard link.
    pub(super) fn sum_of_same(&self, path: &Path, name: &str) -> io::Result<Option<(u64, u32)>> {
        let Some(file) = self.manifest.files.iter().find(|file| file.name == name) else {
            return Ok(None);
        };
        let (mine, theirs) = (
            fs::metadata(data(&self.folder).join(name))?,
            fs::metadata(path)?,
        );
        let same =
            mine.ino() == theirs.ino() && mine.dev() == theirs.dev() && theirs.len() == file.len;
        Ok(same.then_some((file.len, file.crc32c)))
    }
}

/// Where the files of the snapshot in `folder` are, apart from its manifest.
pub(super) fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

impl Drop for Stored {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Relaxed)
            && let Err(error) = fs::remove_dir_all(&self.folder)
        {
            // The next start removes it.
            tracing::warn!(path = %self.folder.display(), %error, "an old snapshot could not be removed");
        }
    }
}

impl Snapshot for Stored {
    fn position(&self) -> Position {
        self.manifest.position
    }

    fn membership(&self) -> Membership {
        self.manifest.membership.clone()
    }

    fn files(&self) -> Vec<SnapshotFile> {
        self.manifest.files.clone()
    }

    fn read(&self, name: &str, offset: u64, len: usize) -> io::Result<Bytes> {
        let Some(file) = self.manifest.files.iter().find(|file| file.name == name) else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("the snapshot has no file {name:?}"),
            ));
        };
        let left = file.len.saturating_sub(offset);
        let len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut buffer = BytesMut::zeroed(len);
        File::open(data(&self.folder).join(name))?.read_exact_at(&mut buffer, offset)?;
        Ok(buffer.freeze())
    }
}
