//! A disk with a page cache that can lose its power: the hard part of the layer, which knows neither FUSE nor sockets.

mod attributes;
mod content;
mod names;
mod power;
#[cfg(test)]
mod stories;

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use fuser::{Errno, FileType};

pub use attributes::Attributes;
use content::Content;
use names::{NameChange, Names};
pub use power::{Keep, KeepNames, Lost};

/// The folder that everything lies in.
pub const ROOT: u64 = 1;

/// A file whose unsynced bytes are more than this is written back, as a kernel would do by itself, in bytes.
const UNSYNCED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// When the name of a file, rather than its bytes, is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// POSIX to the letter: what was done in a folder is durable when that folder was synced.
    Strict,
    /// As a journal does it (ext4): any sync makes all that was done to names before it durable.
    Journal,
}

/// The disk. All numbers of files are as FUSE has them; none is used twice.
pub struct Disk {
    /// Where the objects lie: one file per number, its durable bytes.
    folder: PathBuf,
    files: BTreeMap<u64, Node>,
    next: u64,
    /// Changes of names that are not durable, oldest first.
    pending: Vec<NameChange>,
    /// The number of the newest change; a rename is one change.
    order: u64,
    rule: NameRule,
    /// Open handles, and whose. One of before a power cut is not in here.
    open: HashMap<u64, u64>,
    next_handle: u64,
    /// Bytes that the disk holds, if it is to be smaller than the one beneath.
    room: Option<u64>,
}

/// A file or a folder.
struct Node {
    what: What,
    mode: u16,
    owner: (u32, u32),
    changed: SystemTime,
    /// Where it was last linked to, for people and for rules.
    place: (u64, OsString),
    /// Names that everybody sees.
    links: u32,
    /// Names that everybody sees, durable names, changes of names that are to come, and handles. At 0 it is gone.
    wanted: u64,
}

enum What {
    Folder(Names),
    File(Content),
}

impl Disk {
    /// An empty disk whose objects lie in the empty folder `folder`.
    ///
    /// # Errors
    ///
    /// The folder cannot be made.
    pub fn new(folder: &Path, rule: NameRule) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let root = Node {
            what: What::Folder(Names::default()),
            mode: 0o755,
            owner: (
                rustix::process::getuid().as_raw(),
                rustix::process::getgid().as_raw(),
            ),
            changed: SystemTime::now(),
            place: (ROOT, OsString::new()),
            links: 1,
            wanted: 1,
        };
        Ok(Self {
            folder: folder.to_owned(),
            files: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            pending: Vec::new(),
            order: 0,
            rule,
            open: HashMap::new(),
            next_handle: 1,
            room: None,
        })
    }

    /// Where the objects lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// From now on names are durable by this rule.
    pub fn set_rule(&mut self, rule: NameRule) {
        self.rule = rule;
    }

    /// From now on the disk holds so many bytes, or as many as the one beneath.
    pub fn set_room(&mut self, room: Option<u64>) {
        self.room = room;
    }

    /// Size and free bytes, if the size was set.
    pub fn room(&self) -> Option<(u64, u64)> {
        let room = self.room?;
        Some((room, room.saturating_sub(self.used())))
    }

    /// Bytes in all files, each rounded up to a block.
    pub fn used(&self) -> u64 {
        let sizes = self.files.values().map(|node| match &node.what {
            What::Folder(_) => 4096,
            What::File(content) => content.size().next_multiple_of(4096),
        });
        sizes.sum()
    }

    /// Bytes written and changes of names that a power cut would take.
    pub fn unsynced(&self) -> (u64, u64) {
        let bytes = self.files.values().map(|node| match &node.what {
            What::Folder(_) => 0,
            What::File(content) => content.unsynced(),
        });
        (bytes.sum(), self.pending.len() as u64)
    }

    fn node(&self, number: u64) -> Result<&Node, Errno> {
        self.files.get(&number).ok_or(Errno::ENOENT)
    }

    fn node_mut(&mut self, number: u64) -> Result<&mut Node, Errno> {
        self.files.get_mut(&number).ok_or(Errno::ENOENT)
    }

    fn content(&self, number: u64) -> Result<&Content, Errno> {
        match &self.node(number)?.what {
            What::File(content) => Ok(content),
            What::Folder(_) => Err(Errno::EISDIR),
        }
    }

    fn content_mut(&mut self, number: u64) -> Result<&mut Content, Errno> {
        match &mut self.node_mut(number)?.what {
            What::File(content) => Ok(content),
            What::Folder(_) => Err(Errno::EISDIR),
        }
    }

    /// The path of a file, from the root and without a first `/`, as it was last linked.
    pub fn path(&self, number: u64) -> String {
        let mut parts = Vec::new();
        let mut at = number;
        while at != ROOT {
            let Some(node) = self.files.get(&at) else {
                break;
            };
            parts.push(node.place.1.to_string_lossy().into_owned());
            at = node.place.0;
        }
        parts.reverse();
        parts.join("/")
    }

    /// The path that `name` in `folder` has or would have.
    pub fn path_in(&self, folder: u64, name: &OsStr) -> String {
        let name = name.to_string_lossy();
        match self.path(folder).as_str() {
            "" => name.into_owned(),
            above => format!("{above}/{name}"),
        }
    }

    /// The file at a path from the root.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub fn find(&self, path: &str) -> Result<u64, Errno> {
        let mut at = ROOT;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = self.lookup(at, OsStr::new(part))?;
        }
        Ok(at)
    }

    /// Opens a file or folder; the handle is good until [`Self::close`] or a power cut.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub fn open(&mut self, number: u64) -> Result<u64, Errno> {
        self.node_mut(number)?.wanted += 1;
        let handle = self.next_handle;
        self.next_handle += 1;
        self.open.insert(handle, number);
        Ok(handle)
    }

    /// Closes a handle; one of before a power cut is ignored.
    pub fn close(&mut self, handle: u64) {
        if let Some(number) = self.open.remove(&handle) {
            self.unwant(number);
        }
    }

    /// The disk that a handle was opened on still has its power.
    ///
    /// # Errors
    ///
    /// `EIO`: it has not.
    pub fn check_handle(&self, handle: u64) -> Result<(), Errno> {
        match self.open.contains_key(&handle) {
            true => Ok(()),
            false => Err(Errno::EIO),
        }
    }

    /// Up to `len` bytes from `offset`.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `EISDIR`, or what the disk beneath says.
    pub fn read(&self, number: u64, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        Ok(self.content(number)?.read(offset, len)?)
    }

    /// Writes; lost in a power cut unless it is synced.
    ///
    /// # Errors
    ///
    /// `ENOSPC`, `ENOENT`, `EISDIR`, or what the disk beneath says.
    pub fn write(&mut self, number: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let end = offset
            .checked_add(data.len() as u64)
            .ok_or(Errno::EFBIG)?
            .next_multiple_of(4096);
        let grows = end.saturating_sub(self.content(number)?.size().next_multiple_of(4096));
        if grows > 0 && self.room().is_some_and(|(_, free)| grows > free) {
            return Err(Errno::ENOSPC);
        }
        self.node_mut(number)?.changed = SystemTime::now();
        let content = self.content_mut(number)?;
        content.write(offset, data)?;
        if content.unsynced() > UNSYNCED_BYTES_MAX {
            content.sync()?;
        }
        Ok(())
    }

    /// Cuts a file off or extends it with zeros.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `EISDIR`.
    pub fn resize(&mut self, number: u64, size: u64) -> Result<(), Errno> {
        self.node_mut(number)?.changed = SystemTime::now();
        self.content_mut(number)?.resize(size);
        Ok(())
    }

    /// Makes a file's bytes durable, and its name as [`NameRule`] has it. Returns the object, for who wants to wait
    /// for the disk beneath.
    ///
    /// # Errors
    ///
    /// `ENOENT`, or what the disk beneath says.
    pub fn sync(&mut self, number: u64) -> Result<Option<Arc<File>>, Errno> {
        let object = match &mut self.node_mut(number)?.what {
            What::Folder(_) => {
                self.sync_names(match self.rule {
                    NameRule::Strict => Some(number),
                    NameRule::Journal => None,
                });
                return Ok(None);
            }
            What::File(content) => {
                content.sync()?;
                content.object()
            }
        };
        if self.rule == NameRule::Journal {
            self.sync_names(None);
        }
        Ok(Some(object))
    }

    /// Makes everything durable.
    ///
    /// # Errors
    ///
    /// What the disk beneath says.
    pub fn sync_all(&mut self) -> Result<(), Errno> {
        for node in self.files.values_mut() {
            if let What::File(content) = &mut node.what {
                content.sync()?;
            }
        }
        self.sync_names(None);
        Ok(())
    }

    /// Turns over one bit of a file. False if it has no such bit.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `EISDIR`, or what the disk beneath says.
    pub fn flip(&mut self, number: u64, offset: u64, bit: u8) -> Result<bool, Errno> {
        Ok(self.content_mut(number)?.flip(offset, bit)?)
    }

    /// One reason less to keep a file.
    fn unwant(&mut self, number: u64) {
        let Some(node) = self.files.get_mut(&number) else {
            return;
        };
        node.wanted = node.wanted.saturating_sub(1);
        if node.wanted > 0 {
            return;
        }
        match self.files.remove(&number).map(|node| node.what) {
            Some(What::File(content)) => content.remove(),
            Some(What::Folder(names)) => {
                for number in names.all() {
                    self.unwant(number);
                }
            }
            None => {}
        }
    }

    /// What kind of thing it is.
    fn kind(node: &Node) -> FileType {
        match node.what {
            What::Folder(_) => FileType::Directory,
            What::File(_) => FileType::RegularFile,
        }
    }
}
