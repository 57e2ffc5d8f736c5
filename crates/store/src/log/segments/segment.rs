use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::sector::SECTOR;
use crate::folder::sync_dir;

/// How the files are called: a number, then this.
const ENDING: &str = "segment";
/// One that is being made.
const BEGUN: &str = "new";

/// Bytes of zeros written with one sync: a log that is synced meanwhile does not wait for all of
/// them.
const ZEROS: usize = 1024 * 1024;
/// And with one write. The page cache keeps together what is written together, and where a file has
/// to be written through it, it writes all of that again for one sector.
const ZEROS_AT_ONCE: usize = 4096;

/// Where and how a file is made.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) dir: &'a Path,
    pub(super) number: u64,
    /// Whether it is on the disk before it counts.
    pub(super) sync: bool,
}

/// One file of the log. It has all its bytes from its first moment on, so that a sync of what is
/// written into it changes nothing else on the disk.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) sectors: u32,
}

/// The files of a log.
pub(super) struct Files {
    /// With their numbers.
    pub(super) found: Vec<(u64, Segment)>,
    /// Those that were being made when a process ended.
    pub(super) begun: Vec<PathBuf>,
}

impl Segment {
    /// Makes one of `sectors` sectors, full of zeros.
    pub(super) fn make(place: Place<'_>, sectors: u32) -> io::Result<Self> {
        Self::make_with(place, sectors, |file| {
            let zeros = [0; ZEROS_AT_ONCE];
            let end = u64::from(sectors) * SECTOR as u64;
            let mut at = 0;
            while at < end {
                let now = (end - at).min(ZEROS_AT_ONCE as u64);
                file.write_all_at(&zeros[..now as usize], at)?;
                at += now;
                if place.sync && at.is_multiple_of(ZEROS as u64) {
                    file.sync_data()?;
                }
            }
            Ok(())
        })
    }

    /// Makes one that holds `content` and nothing else: whole sectors.
    pub(super) fn make_of(place: Place<'_>, content: &[u8]) -> io::Result<Self> {
        let sectors = (content.len() / SECTOR) as u32;
        Self::make_with(place, sectors, |file| file.write_all_at(content, 0))
    }

    /// It has its name only when it is on the disk as a whole.
    fn make_with(
        Place { dir, number, sync }: Place<'_>,
        sectors: u32,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<Self> {
        let begun = dir.join(format!("{number:08}.{BEGUN}"));
        let path = dir.join(format!("{number:08}.{ENDING}"));
        let made = || {
            let file = File::create(&begun)?;
            fill(&file)?;
            if sync {
                file.sync_all()?;
            }
            drop(file);
            fs::rename(&begun, &path)?;
            if sync { sync_dir(dir) } else { Ok(()) }
        };
        match made() {
            Ok(()) => Ok(Self { path, sectors }),
            Err(error) => {
                // So that a full disk has its room back. What can't be removed, the next start
                // removes, or takes for a spare.
                let _ = fs::remove_file(&begun);
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// What lies in `dir`.
    pub(super) fn all(dir: &Path) -> io::Result<Files> {
        let (mut found, mut begun) = (Vec::new(), Vec::new());
        for item in fs::read_dir(dir)? {
            let item = item?;
            let path = item.path();
            let ending = path.extension().and_then(|it| it.to_str());
            match (number(&path), ending) {
                (Some(_), Some(BEGUN)) => begun.push(path),
                (Some(number), Some(ENDING)) => {
                    let sectors = item.metadata()?.len() / SECTOR as u64;
                    let sectors = u32::try_from(sectors).map_err(io::Error::other)?;
                    found.push((number, Self { path, sectors }));
                }
                _ => {}
            }
        }
        found.sort_by_key(|(number, _)| *number);
        Ok(Files { found, begun })
    }

    /// To be written, past the page cache where that is possible. Memory and places of what is
    /// written are aligned to sectors.
    pub(super) fn open(&self) -> io::Result<File> {
        let open = |flags: rustix::fs::OFlags| {
            let flags = flags.bits() as i32;
            let mut options = File::options();
            options
                .read(true)
                .write(true)
                .custom_flags(flags)
                .open(&self.path)
        };
        if let Ok(file) = open(rustix::fs::OFlags::DIRECT)
            && file.read_exact_at(Aligned::new(SECTOR).get(), 0).is_ok()
        {
            return Ok(file);
        }
        open(rustix::fs::OFlags::empty())
    }

    /// For a message: its name.
    pub(super) fn name(&self) -> String {
        self.path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
}

/// Memory that begins where a sector might.
#[derive(Default)]
pub(super) struct Aligned {
    memory: Vec<u8>,
    size: usize,
}

impl Aligned {
    pub(super) fn new(size: usize) -> Self {
        Self {
            memory: vec![0; size + SECTOR],
            size,
        }
    }

    /// All of it.
    pub(super) fn get(&mut self) -> &mut [u8] {
        let begin = self.memory.as_ptr().align_offset(SECTOR).min(SECTOR);
        let end = (begin + self.size).min(self.memory.len());
        &mut self.memory[begin..end]
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }
}

fn number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}
