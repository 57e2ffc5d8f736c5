//! Floor 3: one log for the whole cluster. openraft behind a small face: propose, apply, read
//! index, membership, snapshots, metrics.
//!
//! Architecture invariant: openraft is named nowhere else but in the log half of the store, which
//! finds its types in [`raft`]. Nothing here looks into a command: batches stay bytes until apply.
//! Source: architecture, sections 3, 5, 8, 10, 12, 14, 15.

mod consensus;
mod fail_stop;
mod listener;
mod member;
mod payload;
pub mod raft;
mod role;
mod settings;
mod state;
mod transport;

pub use consensus::{
    BuildError, ChangeError, ClockSource, Consensus, Elapsed, PeerProgress, ProposeError,
    RaftMetrics, ReadError, Receipt,
};
pub use fail_stop::{FAIL_STOP_EXIT_CODE, fail_stop, on_fail_stop};
pub use listener::Listener;
pub use member::{Member, Membership, Position};
pub use payload::Payload;
pub use role::Role;
pub use settings::ConsensusSettings;
pub use state::{
    Bodies, KeptBody, Loaded, Owed, Snapshot, SnapshotFile, SnapshotReceiver, StateStore,
};
pub use transport::{Answered, Transport, TransportError};
