//! Floor 2: what nodes say to each other and what lies on their disks. Messages and services are
//! generated from `proto/`; conversions translate them to the words of [`trellis_queue`].
//!
//! Architecture invariant: nothing here decides anything about jobs or terms, and nothing here
//! reads a clock or a disk. What leaves a process is protobuf with numbered fields, never a derived
//! format. Source: architecture, sections 2, 5, 12.

mod identity;
mod network;
mod peers;
pub mod queue;

pub use identity::{
    ClusterId, Identity, IdentityGuard, SharedIdentity, is_removed, other_cluster, sender,
};
pub use network::{Incoming, Network, PeerStream, Tcp};
pub use peers::{Lane, PeerChannel, Peers, server};

/// Messages, clients and servers as generated from `proto/trellis/*.proto`; the documentation
/// stands there.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/trellis.v1.rs"));
}

/// Largest message between nodes, in bytes: one body of the largest kind in one entry, twice over.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024 * 1024;
