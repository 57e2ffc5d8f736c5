//! The raft log: entries, vote, purge point. One writer thread, group commit, an fdatasync before
//! anything is acknowledged, the newest entries in memory.
//!
//! Source: architecture, section 10; the storage notes, section 2 ("What the log store must do").

mod engine;
mod patience;
mod reader;
mod recovery;
mod segments;
mod store;
mod tail;
mod view;
mod writer;

pub use engine::{LogEngine, Step};
pub use reader::LogReader;
pub use store::LogStore;

pub(crate) use segments::Segments;
#[cfg(feature = "tamper")]
pub(crate) use segments::tear;

use trellis_consensus::raft::{Entry, LogId, VoteOf as Vote};

/// Names under which the engine keeps the small values.
mod names {
    pub(super) const VOTE: &str = "vote";
    pub(super) const PURGED: &str = "purged";
    pub(super) const COMMITTED: &str = "committed";
}
