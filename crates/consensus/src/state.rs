//! What consensus asks of the state's place on disk.

use std::{any::Any, fmt, io, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use trellis_queue::{Change, Machine};
use trellis_types::JobId;

use crate::{Membership, Position};

/// What a store holds of the state.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The machine.
    pub machine: Machine,
    /// The last entry in it; `None` if it is empty.
    pub applied: Option<Position>,
    /// The last membership in it.
    pub membership: Membership,
}

/// Where the state is mirrored, behind apply. An error of any of these is a failed disk: the
/// process stops ([`fail_stop`](crate::fail_stop)).
///
/// Source: architecture, section 10.
pub trait StateStore: Send + Sync + 'static {
    /// What is there: at start, and again after [`Self::install`].
    ///
    /// # Errors
    ///
    /// The disk fails or holds what is no state.
    fn load(&self) -> io::Result<Loaded>;

    /// After every entry, in order: `changes` have happened, `machine` is at `applied`. Quick: marks
    /// keys as dirty and keeps the bodies. `membership` comes with membership entries only.
    ///
    /// # Errors
    ///
    /// An earlier write in the background failed.
    fn record(
        &self,
        applied: Position,
        membership: Option<&Membership>,
        machine: &Machine,
        changes: Vec<Change>,
    ) -> io::Result<()>;

    /// Whether another entry may be recorded at once: two full windows are the bound.
    fn has_room(&self) -> bool;

    /// Waits for [`Self::has_room`].
    ///
    /// # Errors
    ///
    /// The write that would make room failed.
    fn room(&self) -> BoxFuture<'_, io::Result<()>>;

    /// Where bodies are read.
    fn bodies(&self) -> Arc<dyn Bodies>;

    /// Freezes the state as it is now, between two entries. The future writes it down and makes it
    /// the current snapshot; it runs beside apply. Position and membership of the snapshot are read
    /// from what was written (rule 4). If [`Self::install`] overtakes it the result is thrown away
    /// with its files, and the future yields the current snapshot instead.
    ///
    /// # Errors
    ///
    /// The disk fails.
    fn begin_snapshot(
        &self,
        machine: &Machine,
    ) -> io::Result<BoxFuture<'static, io::Result<Arc<dyn Snapshot>>>>;

    /// The newest durable snapshot.
    ///
    /// # Errors
    ///
    /// The disk fails.
    fn current_snapshot(&self) -> io::Result<Option<Arc<dyn Snapshot>>>;

    /// A place for a snapshot that is on its way. Dropped unfinished, its files go.
    ///
    /// # Errors
    ///
    /// The disk fails.
    fn receive_snapshot(&self) -> io::Result<Box<dyn SnapshotReceiver>>;

    /// Replaces the state by a finished snapshot (rule 5): stops the old generation's writer, drops
    /// its dirty rows, and is done only when the new generation and the pointer to it are durable.
    /// `received` is what [`Self::receive_snapshot`] of the same store gave; its position must be
    /// `expected`. It is then also the current snapshot.
    ///
    /// # Errors
    ///
    /// The disk fails, or the files do not hold what they should.
    fn install(
        &self,
        received: Box<dyn SnapshotReceiver>,
        expected: Position,
    ) -> BoxFuture<'_, io::Result<Loaded>>;

    /// The local log is durable up to and including `index`; rule 2: no window beyond it is
    /// written. Called often, from any thread.
    fn log_flushed(&self, index: u64);
}

/// Reads bodies of jobs.
pub trait Bodies: Send + Sync {
    /// The body of `job`, `bytes` long, is owed to a connection. Quick, reads nothing. The job
    /// exists, or existed when the answer that owes it was made in the apply that is going on.
    fn owe(&self, job: JobId, bytes: u32) -> Owed;
}

/// A body that is owed to a connection. While it lives the body can be read, even if the job is
/// deleted meanwhile (rule 6).
pub struct Owed {
    bytes: u32,
    body: OwedBody,
}

enum OwedBody {
    Ready(Bytes),
    Kept(Box<dyn KeptBody>),
}

/// A body that a store keeps readable.
pub trait KeptBody: Send + Sync {
    /// The body, if it is in memory.
    fn ready(&self) -> Option<Bytes>;

    /// Whether the body is in memory because of this; stays as it is until [`Self::read`].
    fn is_held(&self) -> bool {
        self.ready().is_some()
    }

    /// The body, from disk if need be: may block.
    ///
    /// # Errors
    ///
    /// The disk fails or the body is not what was put.
    fn read(&self) -> io::Result<Bytes>;
}

impl Owed {
    /// A body that is at hand.
    pub fn at_hand(body: Bytes) -> Self {
        Self {
            bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
            body: OwedBody::Ready(body),
        }
    }

    /// A body of `bytes` bytes that a store keeps.
    pub fn kept(bytes: u32, body: impl KeptBody + 'static) -> Self {
        Self {
            bytes,
            body: OwedBody::Kept(Box::new(body)),
        }
    }

    /// Its length, known without reading it.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The body, if it is in memory.
    pub fn ready(&self) -> Option<Bytes> {
        match &self.body {
            OwedBody::Ready(body) => Some(body.clone()),
            OwedBody::Kept(body) => body.ready(),
        }
    }

    /// Whether the body is in memory because of this.
    pub fn is_held(&self) -> bool {
        match &self.body {
            OwedBody::Ready(_) => true,
            OwedBody::Kept(body) => body.is_held(),
        }
    }

    /// The body, from disk if need be: may block, so not on an async task.
    ///
    /// # Errors
    ///
    /// The disk fails or the body is not what was put.
    pub fn read(&self) -> io::Result<Bytes> {
        match &self.body {
            OwedBody::Ready(body) => Ok(body.clone()),
            OwedBody::Kept(body) => body.read(),
        }
    }
}

impl fmt::Debug for Owed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owed({} bytes)", self.bytes)
    }
}

/// One file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// Its name, without any folder.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// CRC-32C of its content.
    pub crc32c: u32,
}

/// A durable snapshot. While it lives its files stay, even when a newer one has taken its place.
pub trait Snapshot: Send + Sync {
    /// The last entry in it.
    fn position(&self) -> Position;

    /// The last membership in it.
    fn membership(&self) -> Membership;

    /// Its files, in the order in which they are to be sent.
    fn files(&self) -> Vec<SnapshotFile>;

    /// `len` bytes of file `name` from `offset`; fewer only at its end. May block.
    ///
    /// # Errors
    ///
    /// The disk fails.
    fn read(&self, name: &str, offset: u64, len: usize) -> io::Result<Bytes>;
}

/// Takes in a snapshot file by file. May block. An error of kind
/// [`InvalidData`](io::ErrorKind::InvalidData) blames the sender; any other is a failed disk.
pub trait SnapshotReceiver: Any + Send {
    /// The bytes of `file` follow. Its name is checked by the receiver: no folders, no surprises.
    ///
    /// # Errors
    ///
    /// See [`SnapshotReceiver`].
    fn begin(&mut self, file: &SnapshotFile) -> io::Result<()>;

    /// The next bytes of the file begun last.
    ///
    /// # Errors
    ///
    /// See [`SnapshotReceiver`].
    fn write(&mut self, chunk: &[u8]) -> io::Result<()>;

    /// All files are complete: lengths and checksums are those promised, everything is durable.
    ///
    /// # Errors
    ///
    /// See [`SnapshotReceiver`].
    fn finish(&mut self) -> io::Result<()>;
}
