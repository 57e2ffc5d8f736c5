//! The disk as the kernel asks for it.

use std::{
    ffi::OsStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use crate::{
    disk::Attributes,
    fault::{Fate, Operation},
    layer::Layer,
};

/// The kernel keeps nothing: after a power cut all it knew would be wrong.
const KEEP: Duration = Duration::ZERO;

/// What FUSE calls.
pub struct Mounted(pub Arc<Layer>);

impl Mounted {
    fn made(
        &self,
        req: &Request,
        folder: INodeNo,
        name: &OsStr,
        kind: FileType,
        mode: u32,
    ) -> Result<fuser::FileAttr, Errno> {
        let mut disk = self.0.disk.lock();
        let owner = (req.uid(), req.gid());
        let number = disk.create(folder.0, name, kind, mode, owner)?;
        disk.stat(number)
    }

    fn settled(reply: ReplyEmpty, result: Result<(), Errno>) {
        match result {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }
}

impl Filesystem for Mounted {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A file that is never in the page cache can be mapped only where the kernel knows how.
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let disk = self.0.disk.lock();
        match disk
            .lookup(parent.0, name)
            .and_then(|number| disk.stat(number))
        {
            Ok(attr) => reply.entry(&KEEP, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.disk.lock().stat(ino.0) {
            Ok(attr) => reply.attr(&KEEP, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let fate = match size {
            Some(_) => self.0.fate(Operation::Write, ino.0),
            None => Fate::default(),
        };
        let mut disk = self.0.disk.lock();
        let to = Attributes {
            mode,
            user: uid,
            group: gid,
        };
        let result = match (fate.fails, size) {
            (Some(errno), _) => Err(errno),
            (None, Some(size)) => disk.resize(ino.0, size),
            (None, None) => Ok(()),
        };
        match result
            .and_then(|()| disk.set(ino.0, to))
            .and_then(|()| disk.stat(ino.0))
        {
            Ok(attr) => reply.attr(&KEEP, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        if let Some(errno) = self.0.fate_in(Operation::Create, parent.0, name).fails {
            return reply.error(errno);
        }
        match self.made(req, parent, name, FileType::Directory, mode & !umask) {
            Ok(attr) => reply.entry(&KEEP, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        if let Some(errno) = self.0.fate_in(Operation::Create, parent.0, name).fails {
            return reply.error(errno);
        }
        let made = self.made(req, parent, name, FileType::RegularFile, mode & !umask);
        let opened = made.and_then(|attr| Ok((attr, self.0.disk.lock().open(attr.ino.0)?)));
        match opened {
            Ok((attr, handle)) => reply.created(
                &KEEP,
                &attr,
                Generation(0),
                FileHandle(handle),
                FopenFlags::FOPEN_DIRECT_IO,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut disk = self.0.disk.lock();
        Self::settled(reply, disk.unlink(parent.0, name, FileType::RegularFile));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut disk = self.0.disk.lock();
        Self::settled(reply, disk.unlink(parent.0, name, FileType::Directory));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return reply.error(Errno::EINVAL);
        }
        if let Some(errno) = self
            .0
            .fate_in(Operation::Create, newparent.0, newname)
            .fails
        {
            return reply.error(errno);
        }
        let mut disk = self.0.disk.lock();
        let (from, to) = ((parent.0, name), (newparent.0, newname));
        Self::settled(reply, disk.rename(from, to, !flags.is_empty()));
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let fate = self.0.fate_in(Operation::Create, newparent.0, newname);
        if let Some(errno) = fate.fails {
            return reply.error(errno);
        }
        let mut disk = self.0.disk.lock();
        match disk
            .link(ino.0, newparent.0, newname)
            .and_then(|()| disk.stat(ino.0))
        {
            Ok(attr) => reply.entry(&KEEP, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if let Some(errno) = self.0.fate(Operation::Open, ino.0).fails {
            return reply.error(errno);
        }
        match self.0.disk.lock().open(ino.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(errno) => reply.error(errno),
        }
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.0.disk.lock().open(ino.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let fate = self.0.fate(Operation::Read, ino.0);
        self.0.when(fate, move |layer| {
            if let Some(errno) = fate.fails {
                return reply.error(errno);
            }
            let disk = layer.disk.lock();
            let read = disk
                .check_handle(fh.0)
                .and_then(|()| disk.read(ino.0, offset, size as usize));
            drop(disk);
            match read {
                Ok(bytes) => {
                    layer.counts.read(bytes.len());
                    reply.data(&bytes);
                }
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let answer = move |result| match result {
            Ok(len) => reply.written(len),
            Err(errno) => reply.error(errno),
        };
        let fate = self.0.fate(Operation::Write, ino.0);
        if fate.waits.is_none() && fate.slow.is_none() {
            return answer(self.0.write(ino.0, fh.0, offset, data, fate));
        }
        let data = data.to_vec();
        self.0.when(fate, move |layer| {
            answer(layer.write(ino.0, fh.0, offset, &data, fate));
        });
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.0.disk.lock().close(fh.0);
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.disk.lock().close(fh.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let fate = self.0.fate(Operation::Sync, ino.0);
        self.0.when(fate, move |layer| {
            Self::settled(reply, layer.sync(ino.0, fh.0, fate));
        });
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(req, ino, fh, datasync, reply);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.0.disk.lock().list(ino.0) {
            Ok(list) => {
                for (at, (number, kind, name)) in (1..).zip(list).skip(offset as usize) {
                    if reply.add(INodeNo(number), at, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // 1 is FALLOC_FL_KEEP_SIZE: room without size, of which there is always enough or none.
        let mut disk = self.0.disk.lock();
        let end = offset.saturating_add(length);
        let result = match mode {
            1 => Ok(()),
            0 => disk.stat(ino.0).and_then(|attr| match attr.size < end {
                true => disk.resize(ino.0, end),
                false => Ok(()),
            }),
            _ => Err(Errno::EOPNOTSUPP),
        };
        Self::settled(reply, result);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (room, beneath) = {
            let disk = self.0.disk.lock();
            (disk.room(), rustix::fs::statvfs(disk.folder()))
        };
        match (room, beneath) {
            (Some((size, free)), _) => {
                let (size, free) = (size / 4096, free / 4096);
                reply.statfs(size, free, free, 1 << 20, 1 << 20, 4096, 255, 4096);
            }
            (None, Ok(it)) => reply.statfs(
                it.f_blocks,
                it.f_bfree,
                it.f_bavail,
                it.f_files,
                it.f_ffree,
                it.f_bsize as u32,
                255,
                it.f_frsize as u32,
            ),
            (None, Err(error)) => reply.error(std::io::Error::from(error).into()),
        }
    }
}
