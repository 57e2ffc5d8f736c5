use std::io;
use std::ops::Range;

use bytes::Bytes;

/// Where the log's bytes lie.
///
/// An engine stores and returns frames; it knows nothing of Raft. Frames have consecutive indexes:
/// what is written goes behind the last one, what is removed goes from either end.
pub trait LogEngine: Send + Sync + 'static {
    /// Carries out all steps in order, as one: after a crash all of them have happened or none.
    /// They are on the disk when this returns.
    ///
    /// # Errors
    ///
    /// Anything the disk said, or a step that would leave a hole. The caller does not try again, and
    /// nothing is written any more.
    fn write(&self, steps: &[Step<'_>]) -> io::Result<()>;

    /// The frames of `range` in order, from its first index that is there, without holes; ends
    /// early once they are `bytes_max` bytes, but not before the first.
    ///
    /// # Errors
    ///
    /// Anything the disk said, among it a block whose checksum is wrong.
    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>>;

    /// Everything that was written by [`Step::Name`] under `name`.
    ///
    /// # Errors
    ///
    /// Anything the disk said.
    fn named(&self, name: &str) -> io::Result<Option<Bytes>>;

    /// Gives room that is held for later back to the file system, for a disk that is short of it.
    ///
    /// # Errors
    ///
    /// Anything the disk said.
    fn reclaim(&self) -> io::Result<()>;

    /// `Err` if something failed behind the engine's back (the making of a file).
    ///
    /// # Errors
    ///
    /// What failed.
    fn health(&self) -> io::Result<()>;
}

/// One step of a write.
#[derive(Clone, Debug)]
pub enum Step<'a> {
    /// Stores a frame.
    Put {
        /// Under which index.
        index: u64,
        /// What.
        frame: &'a [u8],
    },
    /// Removes frames.
    Remove {
        /// Which indexes.
        range: Range<u64>,
    },
    /// Stores a small value under a name, replacing what was there.
    Name {
        /// Which name.
        name: &'static str,
        /// What.
        value: Vec<u8>,
    },
}
