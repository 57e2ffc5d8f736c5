//! Floor 3: one log for the whole cluster. openraft behind a small face: propose, apply, read
//! index, membership, snapshots, metrics.
//!
//! Architecture invariant: openraft is named nowhere else but in the log half of the store, which
//! finds its types in [`raft`]. Nothing here looks into a command: batches stay bytes until apply.
//! Source: architecture, sections 3, 5, 8, 10, 12, 14, 15.

mod acks;
mod blocking;
mod clocks;
mod consensus;
mod errors;
mod fail_stop;
mod front;
mod grpc;
mod listener;
mod member;
pub mod memory;
mod metrics;
mod payload;
pub mod raft;
mod reads;
mod receipt;
mod reception;
mod role;
mod service;
mod settings;
mod state;
mod transport;

pub use blocking::{blocking, work_in_place};
pub use clocks::{ClockSource, VoterClock};
pub use consensus::Consensus;
pub use errors::{BuildError, ChangeError, Elapsed, ProposeError, ReadError};
pub use fail_stop::{FAIL_STOP_EXIT_CODE, fail_stop, on_fail_stop};
pub use front::Front;
pub use grpc::GrpcTransport;
pub use listener::Listener;
pub use member::{Member, Membership, Position};
pub use metrics::{PeerProgress, RaftMetrics};
pub use payload::Payload;
pub use receipt::Receipt;
pub use role::Role;
pub use service::RaftService;
pub use settings::ConsensusSettings;
pub use state::{
    Bodies, KeptBody, Loaded, Owed, Snapshot, SnapshotFile, SnapshotReceiver, StateStore,
};
pub use transport::{Answered, Transport, TransportError};
