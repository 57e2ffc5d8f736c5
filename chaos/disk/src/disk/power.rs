use fuser::Errno;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::Serialize;

use super::{Disk, What};

/// What of a file's unsynced bytes happens to be on the platters when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// What was written first, the last of it torn at any byte.
    Prefix,
    /// Any of the pages: the disk wrote them in an order of its own.
    Pages,
}

/// What of the unsynced changes of names happens to be on the platters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepNames {
    /// Nothing.
    Nothing,
    /// What was done first, in the whole file system.
    Prefix,
}

/// What a power cut took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Files with unsynced bytes.
    pub files: u64,
    /// Unsynced bytes that are gone.
    pub bytes: u64,
    /// Unsynced bytes that are there all the same.
    pub bytes_kept: u64,
    /// Unsynced changes of names that are undone.
    pub names: u64,
    /// Unsynced changes of names that are there all the same.
    pub names_kept: u64,
}

impl Disk {
    /// The power goes and comes back: what was not synced is gone but for what `keep` and `names` let through, by
    /// `seed`; every handle is dead.
    ///
    /// # Errors
    ///
    /// What the disk beneath says.
    pub fn cut(&mut self, keep: Keep, names: KeepNames, seed: u64) -> Result<Lost, Errno> {
        let mut chance = StdRng::seed_from_u64(seed);
        let mut lost = Lost::default();

        let first = self.pending.first().map_or(0, |change| change.order);
        let last = match names {
            KeepNames::Nothing => 0,
            // None of them, some, or all.
            KeepNames::Prefix => chance.random_range(first.saturating_sub(1)..=self.order),
        };
        for change in std::mem::take(&mut self.pending) {
            if change.order <= last {
                lost.names_kept += 1;
                self.settle(change);
            } else {
                lost.names += 1;
                if let Some(number) = change.to {
                    self.unwant(number);
                }
            }
        }
        for node in self.files.values_mut() {
            if let What::File(content) = &mut node.what
                && content.is_dirty()
            {
                let taken = content.cut(keep, &mut chance)?;
                lost.files += 1;
                lost.bytes += taken.bytes;
                lost.bytes_kept += taken.kept;
            }
        }
        self.see_what_is_durable();
        for (_, number) in std::mem::take(&mut self.open) {
            self.unwant(number);
        }
        Ok(lost)
    }
}
