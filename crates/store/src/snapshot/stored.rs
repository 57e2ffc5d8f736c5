use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use trellis_consensus::{Membership, Position, Snapshot, SnapshotFile};

use super::manifest::Manifest;
use crate::failure::Failure;

/// A whole snapshot on disk. Its folder goes when a newer one has taken its place and nobody reads
/// in it any more.
pub(crate) struct Stored {
    folder: PathBuf,
    manifest: Manifest,
    obsolete: AtomicBool,
    failure: Failure,
    /// How far the file that was begun last was read, in order.
    reading: Mutex<Reading>,
}

/// A file that is read from its begin to its end, and the checksum so far.
#[derive(Default)]
struct Reading {
    name: String,
    offset: u64,
    crc: u32,
}

impl Stored {
    pub(super) fn new(folder: PathBuf, manifest: Manifest, failure: &Failure) -> Self {
        Self {
            folder,
            manifest,
            obsolete: AtomicBool::new(false),
            failure: failure.clone(),
            reading: Mutex::default(),
        }
    }

    /// A file that goes out whole is looked at on the way: its receiver refuses it if it is not
    /// what the manifest promises, and would do so for ever (faults D35). Its tables are those of
    /// the state, so this node is out then.
    fn look(&self, file: &SnapshotFile, offset: u64, chunk: &[u8]) -> io::Result<()> {
        let mut reading = self.reading.lock();
        if offset == 0 {
            *reading = Reading {
                name: file.name.clone(),
                ..Reading::default()
            };
        }
        if reading.name != file.name || reading.offset != offset {
            return Ok(());
        }
        reading.offset += chunk.len() as u64;
        reading.crc = crc32c::crc32c_append(reading.crc, chunk);
        if reading.offset == file.len && reading.crc != file.crc32c {
            let (name, crc) = (&file.name, file.crc32c);
            return Err(self.failure.damaged(format_args!(
                "{name} of the snapshot in {} has checksum {:08x} instead of {crc:08x}",
                self.folder.display(),
                reading.crc,
            )));
        }
        Ok(())
    }

    /// Looks whether all files are there, with the right length; their content is looked at by who
    /// receives it.
    pub(super) fn open(folder: PathBuf, failure: &Failure) -> io::Result<Option<Self>> {
        let Some(manifest) = Manifest::read(&folder)? else {
            return Ok(None);
        };
        for file in &manifest.files {
            match fs::metadata(data(&folder).join(&file.name)) {
                Ok(found) if found.len() == file.len => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(Self::new(folder, manifest, failure)))
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
        self.look(file, offset, &buffer)?;
        Ok(buffer.freeze())
    }
}
