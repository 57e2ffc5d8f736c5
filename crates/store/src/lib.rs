//! Floor 4: what a node keeps. The only place that knows RocksDB.
//!
//! A data folder holds `LOCK`, `FORMAT`, `log/` (the raft log and the node's identity, synced, in
//! files of our own), `state/<generation>/` (the mirror of the machine in RocksDB, written behind
//! apply), `state/CURRENT`, `snapshots/<id>/`, `members`; `quarantine` while the node is out, and
//! `evidence/<time>/` with what was in the folder before it was rebuilt.
//!
//! Architecture invariant: nothing here decides anything about jobs or terms. It keeps what it is
//! given, in order, and says so when it is on disk; when the disk fails it stops the process.
//! Source: architecture, sections 10 to 12.

mod codec;
mod error;
mod failure;
mod folder;
mod free_space;
mod gate;
mod identity;
mod journal;
mod log;
mod metrics;
mod options;
mod quarantine;
mod rocks;
mod roll;
mod snapshot;
mod state;
mod store;
#[cfg(feature = "tamper")]
pub mod tamper;

pub use error::{IdentityError, OpenError};
pub use failure::FailStop;
pub use free_space::{FreeSpace, free_space};
pub use identity::{IdentityStore, StoredIdentity};
pub use log::{LogEngine, LogReader, LogStore, Step};
pub use metrics::{LogMetrics, StateMetrics};
pub use options::{LogOptions, StateOptions, StoreOptions};
pub use quarantine::{
    Quarantine, QuarantineKind, has_evidence, is_being_rebuilt, rebuild, rebuild_at_next_start,
};
pub use roll::{RollEntry, is_alone, note_members};
pub use state::StateMirror;
pub use store::{Opened, Store};

#[cfg(test)]
mod stories;
