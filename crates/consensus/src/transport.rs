use futures::{future::BoxFuture, stream::BoxStream};
use trellis_rpc::pb;

use crate::Member;

/// Why a member did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No connection, or the member does not take part (yet): try again after a pause.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The connection broke underway: try again at once.
    #[error("connection broken: {0}")]
    Broken(String),
    /// Nothing came in time.
    #[error("no answer in time")]
    Timeout,
}

/// Result of a call to a member.
pub type Answered<T> = Result<T, TransportError>;

/// Carries Raft's messages to members. Calls to one member and kind of message keep their order;
/// heartbeats and votes are never behind log entries or snapshots.
pub trait Transport: Send + Sync + 'static {
    /// Log entries, pipelined; replies in the order of the requests.
    fn append(
        &self,
        to: &Member,
        requests: BoxStream<'static, pb::AppendRequest>,
    ) -> BoxFuture<'static, Answered<BoxStream<'static, Answered<pb::AppendReply>>>>;

    /// A heartbeat.
    fn heartbeat(
        &self,
        to: &Member,
        request: pb::AppendRequest,
    ) -> BoxFuture<'static, Answered<pb::AppendReply>>;

    /// Asks for a vote.
    fn vote(
        &self,
        to: &Member,
        request: pb::VoteRequest,
    ) -> BoxFuture<'static, Answered<pb::VoteReply>>;

    /// Asks whether a vote would be granted.
    fn pre_vote(
        &self,
        to: &Member,
        request: pb::VoteRequest,
    ) -> BoxFuture<'static, Answered<pb::VoteReply>>;

    /// A snapshot in parts: the manifest first, and the rest when a reply says from where.
    fn snapshot(
        &self,
        to: &Member,
        parts: BoxStream<'static, pb::SnapshotPart>,
    ) -> BoxFuture<'static, Answered<BoxStream<'static, Answered<pb::SnapshotReply>>>>;

    /// Tells of a leadership transfer.
    fn transfer_leader(
        &self,
        to: &Member,
        request: pb::TransferRequest,
    ) -> BoxFuture<'static, Answered<pb::TransferReply>>;
}
