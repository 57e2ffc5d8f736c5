use std::time::SystemTime;

use fuser::{Errno, FileAttr, INodeNo};

use super::{Disk, What};

/// Changes of what `stat` tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    /// Permissions.
    pub mode: Option<u32>,
    /// User.
    pub user: Option<u32>,
    /// Group.
    pub group: Option<u32>,
}

impl Disk {
    /// What `stat` tells.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub fn stat(&self, number: u64) -> Result<FileAttr, Errno> {
        let node = self.node(number)?;
        let size = match &node.what {
            What::Folder(_) => 4096,
            What::File(content) => content.size(),
        };
        Ok(FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: node.changed,
            mtime: node.changed,
            ctime: node.changed,
            crtime: node.changed,
            kind: Self::kind(node),
            perm: node.mode,
            nlink: node.links,
            uid: node.owner.0,
            gid: node.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Changes mode and owner. They are durable at once: no story is about them.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub fn set(&mut self, number: u64, to: Attributes) -> Result<(), Errno> {
        let node = self.node_mut(number)?;
        if let Some(mode) = to.mode {
            node.mode = (mode & 0o7777) as u16;
        }
        node.owner.0 = to.user.unwrap_or(node.owner.0);
        node.owner.1 = to.group.unwrap_or(node.owner.1);
        node.changed = SystemTime::now();
        Ok(())
    }
}
