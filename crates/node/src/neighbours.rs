use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use trellis_consensus::Consensus;
use trellis_rpc::{Lane, Peers, pb};
use trellis_types::NodeId;

/// What a core asks of other nodes. Over gRPC in a cluster, in-process in tests.
pub trait Neighbours: Send + Sync + 'static {
    /// Opens a stream of batches and pings to `leader`.
    #[allow(clippy::type_complexity)]
    fn forward(
        &self,
        leader: NodeId,
        up: mpsc::Receiver<pb::ForwardUp>,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Result<pb::ForwardDown, Status>>, Status>>;

    /// Asks `leader` from which index on state may be read.
    fn read_index(&self, leader: NodeId) -> BoxFuture<'static, Result<pb::ReadIndexReply, Status>>;

    /// Asks `node` for what its front end counts.
    fn census(
        &self,
        node: NodeId,
        request: pb::CensusRequest,
    ) -> BoxFuture<'static, Result<pb::CensusReply, Status>>;
}

/// The neighbours of a real cluster, at the addresses that the membership names.
pub struct PeerNeighbours {
    peers: Peers,
    consensus: Consensus,
}

impl PeerNeighbours {
    /// Reaches the members of `consensus` over `peers`.
    pub fn new(peers: Peers, consensus: Consensus) -> Self {
        Self { peers, consensus }
    }

    fn address(&self, node: NodeId) -> Result<String, Status> {
        self.consensus
            .membership()
            .members
            .get(&node)
            .map(|member| member.address.clone())
            .ok_or_else(|| Status::not_found(format!("node {node} is no member")))
    }
}

impl Neighbours for PeerNeighbours {
    fn forward(
        &self,
        leader: NodeId,
        up: mpsc::Receiver<pb::ForwardUp>,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Result<pb::ForwardDown, Status>>, Status>>
    {
        let client = self
            .address(leader)
            .and_then(|address| self.peers.peer(leader, &address, Lane::Forward));
        Box::pin(async move {
            let down = client?.forward(ReceiverStream::new(up)).await?;
            Ok(down.into_inner().boxed())
        })
    }

    fn read_index(&self, leader: NodeId) -> BoxFuture<'static, Result<pb::ReadIndexReply, Status>> {
        let client = self
            .address(leader)
            .and_then(|address| self.peers.peer(leader, &address, Lane::Control));
        Box::pin(async move {
            let reply = client?.read_index(pb::ReadIndexRequest {}).await?;
            Ok(reply.into_inner())
        })
    }

    fn census(
        &self,
        node: NodeId,
        request: pb::CensusRequest,
    ) -> BoxFuture<'static, Result<pb::CensusReply, Status>> {
        let client = self
            .address(node)
            .and_then(|address| self.peers.peer(node, &address, Lane::Control));
        Box::pin(async move { Ok(client?.census(request).await?.into_inner()) })
    }
}
