use futures::stream::BoxStream;
use tonic::{Request, Response, Status, Streaming};
use trellis_rpc::{
    MESSAGE_BYTES_MAX,
    pb::{self, raft_server::RaftServer},
};

use crate::Front;

type Reply<T> = Result<Response<T>, Status>;

/// [`Front`] as a gRPC service.
#[derive(Clone)]
pub struct RaftService(Front);

impl RaftService {
    pub(crate) fn server(front: Front) -> RaftServer<Self> {
        RaftServer::new(Self(front))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

#[tonic::async_trait]
impl pb::raft_server::Raft for RaftService {
    type AppendStream = BoxStream<'static, Result<pb::AppendReply, Status>>;
    type SnapshotStream = BoxStream<'static, Result<pb::SnapshotReply, Status>>;

    async fn append(
        &self,
        request: Request<Streaming<pb::AppendRequest>>,
    ) -> Reply<Self::AppendStream> {
        Ok(Response::new(self.0.append(request.into_inner())?))
    }

    async fn heartbeat(&self, request: Request<pb::AppendRequest>) -> Reply<pb::AppendReply> {
        Ok(Response::new(self.0.heartbeat(request.into_inner()).await?))
    }

    async fn vote(&self, request: Request<pb::VoteRequest>) -> Reply<pb::VoteReply> {
        Ok(Response::new(self.0.vote(request.into_inner()).await?))
    }

    async fn pre_vote(&self, request: Request<pb::VoteRequest>) -> Reply<pb::VoteReply> {
        Ok(Response::new(self.0.pre_vote(request.into_inner()).await?))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotPart>>,
    ) -> Reply<Self::SnapshotStream> {
        Ok(Response::new(self.0.snapshot(request.into_inner())?))
    }

    async fn transfer_leader(
        &self,
        request: Request<pb::TransferRequest>,
    ) -> Reply<pb::TransferReply> {
        Ok(Response::new(
            self.0.transfer_leader(request.into_inner()).await?,
        ))
    }
}
