//! Names of files: those that everybody sees, those that are durable, and what lies between.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    time::SystemTime,
};

use fuser::{Errno, FileType};

use super::{Content, Disk, Node, ROOT, What};

/// What is in a folder.
#[derive(Default)]
pub(super) struct Names {
    /// As everybody sees it.
    pub(super) seen: BTreeMap<OsString, u64>,
    /// As it would be after a power cut.
    pub(super) synced: BTreeMap<OsString, u64>,
}

impl Names {
    /// Each file as often as it is named.
    pub(super) fn all(&self) -> Vec<u64> {
        let all = self.seen.values().chain(self.synced.values());
        all.copied().collect()
    }
}

/// One name that was given or taken since it was last synced.
pub(super) struct NameChange {
    /// Changes of one order survive a power cut together.
    pub(super) order: u64,
    pub(super) folder: u64,
    pub(super) name: OsString,
    /// The file that it names now, if any.
    pub(super) to: Option<u64>,
}

impl Disk {
    fn names(&self, folder: u64) -> Result<&Names, Errno> {
        match &self.node(folder)?.what {
            What::Folder(names) => Ok(names),
            What::File(_) => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn names_mut(&mut self, folder: u64) -> Result<&mut Names, Errno> {
        match &mut self.node_mut(folder)?.what {
            What::Folder(names) => Ok(names),
            What::File(_) => Err(Errno::ENOTDIR),
        }
    }

    /// The file with that name.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR`.
    pub fn lookup(&self, folder: u64, name: &OsStr) -> Result<u64, Errno> {
        let found = self.names(folder)?.seen.get(name);
        found.copied().ok_or(Errno::ENOENT)
    }

    /// What is in a folder: number, kind and name, with itself and the one above first.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR`.
    pub fn list(&self, folder: u64) -> Result<Vec<(u64, FileType, OsString)>, Errno> {
        let above = self.node(folder)?.place.0;
        let mut list = vec![
            (folder, FileType::Directory, ".".into()),
            (above, FileType::Directory, "..".into()),
        ];
        for (name, number) in &self.names(folder)?.seen {
            list.push((*number, Self::kind(self.node(*number)?), name.clone()));
        }
        Ok(list)
    }

    /// Makes an empty file or folder. Its name is lost in a power cut unless it is synced.
    ///
    /// # Errors
    ///
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `ENOSPC`, or what the disk beneath says.
    pub fn create(
        &mut self,
        folder: u64,
        name: &OsStr,
        kind: FileType,
        mode: u32,
        owner: (u32, u32),
    ) -> Result<u64, Errno> {
        if self.names(folder)?.seen.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        if self.room().is_some_and(|(_, free)| free < 4096) {
            return Err(Errno::ENOSPC);
        }
        let number = self.next;
        self.next += 1;
        let what = match kind {
            FileType::Directory => What::Folder(Names::default()),
            FileType::RegularFile => {
                What::File(Content::create(&self.folder.join(number.to_string()))?)
            }
            _ => return Err(Errno::EPERM),
        };
        let node = Node {
            what,
            mode: (mode & 0o7777) as u16,
            owner,
            changed: SystemTime::now(),
            place: (folder, name.to_owned()),
            links: 0,
            wanted: 0,
        };
        self.files.insert(number, node);
        self.order += 1;
        self.name(folder, name, Some(number))?;
        Ok(number)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    ///
    /// `EEXIST`, `ENOENT`, `ENOTDIR`; `EPERM` for a folder.
    pub fn link(&mut self, number: u64, folder: u64, name: &OsStr) -> Result<(), Errno> {
        if matches!(self.node(number)?.what, What::Folder(_)) {
            return Err(Errno::EPERM);
        }
        if self.names(folder)?.seen.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.order += 1;
        self.name(folder, name, Some(number))
    }

    /// Takes a name from a file, or removes an empty folder.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR`, `EISDIR`, `ENOTEMPTY`.
    pub fn unlink(&mut self, folder: u64, name: &OsStr, kind: FileType) -> Result<(), Errno> {
        let number = self.lookup(folder, name)?;
        match (&self.node(number)?.what, kind) {
            (What::Folder(_), FileType::RegularFile) => return Err(Errno::EISDIR),
            (What::File(_), FileType::Directory) => return Err(Errno::ENOTDIR),
            (What::Folder(names), _) if !names.seen.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.order += 1;
        self.name(folder, name, None)
    }

    /// Moves a name, over an existing one if need be. Both halves survive a power cut or neither, unless they are in
    /// two folders of which one was synced.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`; `EEXIST` if `keeps` and the name is taken.
    pub fn rename(
        &mut self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        keeps: bool,
    ) -> Result<(), Errno> {
        let number = self.lookup(from.0, from.1)?;
        match self.lookup(to.0, to.1) {
            Ok(_) if keeps => return Err(Errno::EEXIST),
            // Two names of one file: POSIX says that nothing happens.
            Ok(taken) if taken == number => return Ok(()),
            Ok(taken) => {
                if let What::Folder(names) = &self.node(taken)?.what
                    && !names.seen.is_empty()
                {
                    return Err(Errno::ENOTEMPTY);
                }
            }
            Err(_) => {
                self.names(to.0)?;
            }
        }
        self.order += 1;
        self.name(to.0, to.1, Some(number))?;
        self.name(from.0, from.1, None)?;
        self.node_mut(number)?.place = (to.0, to.1.to_owned());
        Ok(())
    }

    /// The one way in which names change.
    fn name(&mut self, folder: u64, name: &OsStr, to: Option<u64>) -> Result<(), Errno> {
        if let Some(number) = to {
            let node = self.node_mut(number)?;
            node.links += 1;
            // Seen, and pending.
            node.wanted += 2;
        }
        let seen = &mut self.names_mut(folder)?.seen;
        let before = match to {
            Some(number) => seen.insert(name.to_owned(), number),
            None => seen.remove(name),
        };
        self.node_mut(folder)?.changed = SystemTime::now();
        self.pending.push(NameChange {
            order: self.order,
            folder,
            name: name.to_owned(),
            to,
        });
        if let Some(number) = before {
            let node = self.node_mut(number)?;
            node.links = node.links.saturating_sub(1);
            self.unwant(number);
        }
        Ok(())
    }

    /// Makes the names of one folder durable, or all.
    pub(super) fn sync_names(&mut self, folder: Option<u64>) {
        let pending = std::mem::take(&mut self.pending);
        for change in pending {
            match folder {
                Some(folder) if change.folder != folder => self.pending.push(change),
                _ => self.settle(change),
            }
        }
    }

    /// Makes one change durable.
    pub(super) fn settle(&mut self, change: NameChange) {
        let Ok(names) = self.names_mut(change.folder) else {
            // The folder is gone and so is what was in it.
            if let Some(number) = change.to {
                self.unwant(number);
            }
            return;
        };
        let before = match change.to {
            // That it was pending becomes that it is durable.
            Some(number) => names.synced.insert(change.name, number),
            None => names.synced.remove(&change.name),
        };
        if let Some(number) = before {
            self.unwant(number);
        }
    }

    /// Everybody sees what is durable.
    pub(super) fn see_what_is_durable(&mut self) {
        let folders: Vec<u64> = self.files.keys().copied().collect();
        let mut gone = Vec::new();
        for node in self.files.values_mut() {
            node.links = 0;
        }
        for folder in folders {
            let Ok(names) = self.names_mut(folder) else {
                continue;
            };
            gone.extend(names.seen.values().copied());
            names.seen = names.synced.clone();
            for (name, number) in names.seen.clone() {
                if let Ok(node) = self.node_mut(number) {
                    node.links += 1;
                    node.wanted += 1;
                    node.place = (folder, name);
                }
            }
        }
        if let Ok(root) = self.node_mut(ROOT) {
            root.links = 1;
        }
        for number in gone {
            self.unwant(number);
        }
    }
}
