use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::codec;
use crate::folder;

/// Which generation is the state: the file `CURRENT` in its folder, swapped last when a snapshot
/// is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// Name of the folder.
    pub(crate) generation: u64,
    /// Index at which the snapshot was that it began with, if it did. Up to there the log may be
    /// missing, for one crash long: it is purged after the pointer is swapped.
    pub(crate) installed: Option<u64>,
}

impl Pointer {
    /// What [`Pointer::write`] leaves beside `CURRENT` when it is killed.
    pub(super) const BESIDE: &str = "CURRENT.new";

    pub(crate) fn path(self, folder: &Path) -> PathBuf {
        folder.join(self.generation.to_string())
    }

    /// What is written in `folder`; `None` if it is new.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it is no pointer; else what the disk said.
    pub(crate) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read_to_string(folder.join("CURRENT")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Self::parse(&text)
            .map(Some)
            .ok_or_else(|| codec::invalid(format!("CURRENT says {:?}", text.trim())))
    }

    /// Makes this the state, durably.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub(crate) fn write(self, folder: &Path) -> io::Result<()> {
        folder::replace_file(&folder.join("CURRENT"), self.to_string().as_bytes())
    }

    fn body(self) -> String {
        let installed = self.installed.map(|index| format!("installed {index}\n"));
        format!(
            "generation {}\n{}",
            self.generation,
            installed.unwrap_or_default()
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut crc = None;
        let mut pointer = Self {
            generation: 0,
            installed: None,
        };
        for line in text.lines() {
            match line.split_once(' ')? {
                ("generation", number) => pointer.generation = number.parse().ok()?,
                ("installed", index) => pointer.installed = Some(index.parse().ok()?),
                // Of what stands before it. An older version wrote none.
                ("crc", sum) => crc = Some(u32::from_str_radix(sum, 16).ok()?),
                _ => return None,
            }
        }
        let good = crc.is_none_or(|crc| crc == crc32c::crc32c(pointer.body().as_bytes()));
        (pointer.generation > 0 && good).then_some(pointer)
    }
}

impl std::fmt::Display for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = self.body();
        writeln!(f, "{body}crc {:08x}", crc32c::crc32c(body.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_reads_what_it_wrote() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Pointer::read(dir.path()).unwrap(), None);
        for installed in [None, Some(17)] {
            let pointer = Pointer {
                generation: 3,
                installed,
            };
            pointer.write(dir.path()).unwrap();
            assert_eq!(Pointer::read(dir.path()).unwrap(), Some(pointer));
        }
        fs::write(dir.path().join("CURRENT"), "generation x\n").unwrap();
        assert_eq!(
            Pointer::read(dir.path()).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        fs::write(dir.path().join("CURRENT"), "generation 3\n").unwrap();
        let old = Pointer::read(dir.path()).unwrap().unwrap();
        assert_eq!(old.generation, 3, "of a version that wrote no sum");
    }

    /// Faults D34. A pointer to another generation would make this one a left-over.
    #[test]
    fn no_flipped_bit_points_elsewhere() {
        let pointer = Pointer {
            generation: 12,
            installed: Some(345),
        };
        let text = pointer.to_string().into_bytes();
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = std::str::from_utf8(&flipped).ok().and_then(Pointer::parse);
            assert!(
                read.is_none_or(|read| read == pointer),
                "{:?}",
                String::from_utf8_lossy(&flipped)
            );
        }
    }
}
