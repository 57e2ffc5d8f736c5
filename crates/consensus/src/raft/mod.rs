//! The types that openraft works with. The log half of the store needs them, and nobody else.

mod addresses;
mod convert;
mod entry;
mod network;
mod responder;
mod state_machine;

/// What a log must be able to do.
pub use openraft::storage::RaftLogStorage;
use openraft::{
    EntryPayload, OptionalSend, RaftTypeConfig, Vote,
    impls::{BoxedErrorSource, InlineBatch, leader_id_adv},
};
use trellis_types::NodeId;

pub(crate) use addresses::Addresses;
pub(crate) use convert::{log_id_from, log_id_to, vote_from, vote_to};
pub use entry::{BadEntry, Entry};
pub(crate) use network::Network;
pub(crate) use responder::Responder;
pub(crate) use state_machine::Applied;
pub use state_machine::{RaftSnapshot, SnapshotBuilder, SnapshotTransfer, StateMachine};

use crate::Payload;

/// How openraft is set up here: entries carry [`Payload`]s, nodes are [`Contact`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig;

/// A [`Member`](crate::Member) without its id, which openraft keeps beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    /// See [`Member::name`](crate::Member::name).
    pub name: String,
    /// See [`Member::address`](crate::Member::address).
    pub address: String,
}

/// Term and node of a leader.
pub type LeaderId = leader_id_adv::LeaderId<u64, NodeId>;
/// Names one entry; [`Position`](crate::Position) to everybody else.
pub type LogId = openraft::LogId<LeaderId>;
/// Whom a node follows.
pub type VoteOf = Vote<LeaderId>;
/// A membership and where it stands in the log.
pub type StoredMembership = openraft::StoredMembership<LeaderId, NodeId, Contact>;

impl RaftTypeConfig for TypeConfig {
    type D = Payload;
    type R = ();
    type NodeId = NodeId;
    type Node = Contact;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = VoteOf;
    type Payload = EntryPayload<Payload, NodeId, Contact>;
    type Entry = Entry;
    type AsyncRuntime = openraft::impls::TokioRuntime;
    type Responder<T>
        = Responder<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}
