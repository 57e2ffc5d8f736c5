use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rand::{Rng, rngs::StdRng};

use super::Keep;

/// What a disk writes as a whole, in bytes: the granularity of [`Keep::Pages`].
const PAGE: usize = 4096;

/// What it never writes in part, in bytes: the granularity of a torn write over what was there.
const SECTOR: u64 = 512;

/// One file's bytes: what is on the platters, and what only the page cache knows.
///
/// The durable bytes are a real file, the *object*; what was written since the last sync lies here in memory, as pages
/// for reading and as changes in order for a power cut.
pub(super) struct Content {
    object: Arc<File>,
    path: PathBuf,
    /// Length of the durable bytes.
    synced: u64,
    /// Length as everybody sees it.
    size: u64,
    /// Of the durable bytes those below it still count: a truncation since the last sync hides the rest.
    counts: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
    changes: Vec<Change>,
    unsynced: u64,
}

/// One thing done to a file since its last sync.
enum Change {
    Write { offset: u64, data: Vec<u8> },
    Size(u64),
}

/// What a power cut took from one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Bytes written and not synced that are gone.
    pub(super) bytes: u64,
    /// Bytes written and not synced that happened to be on the platters.
    pub(super) kept: u64,
}

impl Content {
    /// An empty file whose durable bytes will lie at `path`.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let object = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok(Self {
            object: Arc::new(object),
            path: path.to_owned(),
            synced: 0,
            size: 0,
            counts: 0,
            pages: BTreeMap::new(),
            changes: Vec::new(),
            unsynced: 0,
        })
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes written since the last sync.
    pub(super) fn unsynced(&self) -> u64 {
        self.unsynced
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The object, for a sync of the disk beneath.
    pub(super) fn object(&self) -> Arc<File> {
        self.object.clone()
    }

    /// Up to `len` bytes from `offset`, as a reader sees them.
    pub(super) fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let end = self.size.min(offset.saturating_add(len as u64));
        let mut out = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let page = self.page(at / PAGE as u64)?;
            let from = (at % PAGE as u64) as usize;
            let count = (PAGE - from).min((end - at) as usize);
            out.extend_from_slice(&page[from..from + count]);
            at += count as u64;
        }
        Ok(out)
    }

    fn page(&self, number: u64) -> io::Result<Box<[u8; PAGE]>> {
        if let Some(page) = self.pages.get(&number) {
            return Ok(page.clone());
        }
        let mut page = Box::new([0; PAGE]);
        let start = number * PAGE as u64;
        let count = (PAGE as u64).min(self.counts.saturating_sub(start)) as usize;
        let mut done = 0;
        while done < count {
            match self
                .object
                .read_at(&mut page[done..count], start + done as u64)?
            {
                // A hole at the end of the object.
                0 => break,
                more => done += more,
            }
        }
        Ok(page)
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.put(offset, data)?;
        self.unsynced += data.len() as u64;
        self.changes.push(Change::Write {
            offset,
            data: data.to_vec(),
        });
        Ok(())
    }

    fn put(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let number = at / PAGE as u64;
            let from = (at % PAGE as u64) as usize;
            let count = (PAGE - from).min(data.len() - done);
            let mut page = self.page(number)?;
            page[from..from + count].copy_from_slice(&data[done..done + count]);
            self.pages.insert(number, page);
            done += count;
        }
        self.size = self.size.max(offset + data.len() as u64);
        Ok(())
    }

    pub(super) fn resize(&mut self, size: u64) {
        self.fit(size);
        self.changes.push(Change::Size(size));
    }

    fn fit(&mut self, size: u64) {
        if size < self.size {
            let last = size / PAGE as u64;
            let keep = (size % PAGE as u64) as usize;
            self.pages.retain(|number, _| *number <= last);
            if let Some(page) = self.pages.get_mut(&last) {
                page[keep..].fill(0);
            }
        }
        self.size = size;
        self.counts = self.counts.min(size);
    }

    /// Everything written is durable now.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.counts < self.synced {
            self.object.set_len(self.counts)?;
        }
        for (number, page) in &self.pages {
            let start = number * PAGE as u64;
            let count = (PAGE as u64).min(self.size.saturating_sub(start)) as usize;
            self.object.write_all_at(&page[..count], start)?;
        }
        if self.size != self.synced || self.counts < self.synced {
            self.object.set_len(self.size)?;
        }
        self.synced = self.size;
        self.counts = self.size;
        self.forget();
        Ok(())
    }

    fn forget(&mut self) {
        self.pages.clear();
        self.changes.clear();
        self.unsynced = 0;
    }

    /// The power is gone: what was not synced is dropped, but for what `keep` lets through.
    pub(super) fn cut(&mut self, keep: Keep, chance: &mut StdRng) -> io::Result<Taken> {
        let written = self.unsynced;
        let seen = self.size;
        let changes = std::mem::take(&mut self.changes);
        let pages = std::mem::take(&mut self.pages);
        let shrunk = self.counts < self.synced;
        let shortest = self.counts;
        self.forget();
        self.size = self.synced;
        self.counts = self.synced;
        let mut kept = 0;
        match keep {
            Keep::Nothing => {}
            Keep::Prefix if changes.is_empty() => {}
            Keep::Prefix => {
                // Whole changes, and a part of the next one: to the byte of what makes the file
                // longer, to the sector of what lies over durable bytes.
                let whole = chance.random_range(0..=changes.len());
                for (number, change) in changes.into_iter().enumerate().take(whole + 1) {
                    match change {
                        Change::Write { offset, data } => {
                            let len = if number < whole {
                                data.len()
                            } else {
                                let len = chance.random_range(0..=data.len());
                                self.torn(offset, len)
                            };
                            self.put(offset, &data[..len])?;
                            kept += len as u64;
                        }
                        Change::Size(size) if number < whole => self.fit(size),
                        Change::Size(_) => {}
                    }
                }
                self.sync()?;
            }
            Keep::Pages => {
                if shrunk && chance.random_bool(0.5) {
                    self.fit(shortest);
                }
                for (number, page) in pages {
                    let start = number * PAGE as u64;
                    let count = (PAGE as u64).min(seen.saturating_sub(start)) as usize;
                    if chance.random_bool(0.5) {
                        self.put(start, &page[..count])?;
                        kept += count as u64;
                    }
                }
                self.sync()?;
            }
        }
        let kept = kept.min(written);
        Ok(Taken {
            bytes: written - kept,
            kept,
        })
    }

    /// How much is there of a write of which the disk got `len` bytes.
    fn torn(&self, offset: u64, len: usize) -> usize {
        let end = offset + len as u64;
        match end <= self.synced {
            true => (end / SECTOR * SECTOR).saturating_sub(offset) as usize,
            false => len,
        }
    }

    /// Turns one bit over, for readers and on the platters alike.
    pub(super) fn flip(&mut self, offset: u64, bit: u8) -> io::Result<bool> {
        if offset >= self.size || bit > 7 {
            return Ok(false);
        }
        if let Some(page) = self.pages.get_mut(&(offset / PAGE as u64)) {
            page[(offset % PAGE as u64) as usize] ^= 1 << bit;
        }
        let mut byte = [0];
        if offset < self.counts && self.object.read_at(&mut byte, offset)? == 1 {
            self.object.write_all_at(&[byte[0] ^ (1 << bit)], offset)?;
        }
        Ok(true)
    }

    /// The file is gone for good.
    pub(super) fn remove(self) {
        // What stays behind is found by nobody.
        let _ = std::fs::remove_file(&self.path);
    }
}
