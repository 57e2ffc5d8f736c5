use std::time::Duration;

use futures::{future::BoxFuture, stream::BoxStream};
use tonic::{Status, Streaming};
use trellis_queue::LeaderCommand;
use trellis_rpc::pb;
use trellis_types::{NodeId, OriginId};

/// What membership needs of the node's core: who is heard, what time it is, and a voice in the
/// log while this node leads.
pub trait CoreView: Send + Sync + 'static {
    /// How long ago a ping of a leader that counts was heard; `None` if never since the start.
    /// Small on a leader that counts itself.
    fn leader_heard(&self) -> Option<Duration>;

    /// While this node leads: whether the member's origin is present (age at most 1.5 s,
    /// architecture, section 7). False for members without an origin.
    fn is_present(&self, node: NodeId) -> bool;

    /// What this node knows of time, for answers to hellos.
    fn clock_report(&self) -> pb::Clock;

    /// What another node knows of time.
    fn learn_clock(&self, node: NodeId, clock: pb::Clock);

    /// The open origin of this node: its listeners are open.
    fn origin(&self) -> Option<OriginId>;

    /// Why the listeners are closed; meaningless while they are open.
    fn why_closed(&self) -> String;

    /// Lets no client in for as long as there is a reason, and gives up those who are there.
    fn shut(&self, why: Option<&'static str>);

    /// The stream of an origin of node `from` to this leader.
    ///
    /// # Errors
    ///
    /// That it can't be served now.
    fn forward(
        &self,
        from: NodeId,
        up: Streaming<pb::ForwardUp>,
    ) -> Result<BoxStream<'static, Result<pb::ForwardDown, Status>>, Status>;

    /// From which index on state may be read as of now.
    fn read_index(&self) -> BoxFuture<'_, Result<pb::ReadIndexReply, Status>>;

    /// What this node's front end counts.
    fn census(&self, request: pb::CensusRequest) -> BoxFuture<'_, Result<pb::CensusReply, Status>>;

    /// Proposes commands of the leader and waits until this node has applied them.
    ///
    /// Resolves to the index, or to why it did not happen (it may still).
    fn propose(&self, commands: Vec<LeaderCommand>) -> BoxFuture<'_, Result<u64, String>>;

    /// Whether puts of this node's own clients get `DRAINING` (SIGUSR1).
    fn refuses_puts(&self) -> bool;

    /// How long no leader may have been heard by a node that is ready.
    fn ready_within(&self) -> Duration;

    /// Closes listeners and sessions in good order for a planned stop: no new client, what
    /// is submitted is carried out, every session's holds return at once. Bounded by itself.
    fn close_doors(&self) -> BoxFuture<'_, ()>;
}
