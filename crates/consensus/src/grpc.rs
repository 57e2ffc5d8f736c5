use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream::BoxStream};
use tonic::{Code, Response, Status};
use trellis_rpc::{
    Lane, PeerChannel, Peers,
    pb::{self, raft_client::RaftClient},
};

use crate::{Answered, Member, Transport, TransportError};

/// Raft's messages over gRPC: log entries, heartbeats and snapshots on connections of their own.
#[derive(Clone)]
pub struct GrpcTransport {
    peers: Peers,
}

impl GrpcTransport {
    /// Uses the connections of `peers`.
    pub fn new(peers: Peers) -> Self {
        Self { peers }
    }

    /// Asks one question on `lane`.
    fn ask<T, F>(
        &self,
        to: &Member,
        lane: Lane,
        call: impl FnOnce(RaftClient<PeerChannel>) -> F + Send + 'static,
    ) -> BoxFuture<'static, Answered<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<Response<T>, Status>> + Send + 'static,
    {
        let client = self.peers.raft(to.id, &to.address, lane);
        async move {
            let client = client.map_err(failure)?;
            Ok(call(client).await.map_err(failure)?.into_inner())
        }
        .boxed()
    }
}

impl Transport for GrpcTransport {
    fn append(
        &self,
        to: &Member,
        requests: BoxStream<'static, pb::AppendRequest>,
    ) -> BoxFuture<'static, Answered<BoxStream<'static, Answered<pb::AppendReply>>>> {
        let call = self.ask(to, Lane::Append, move |mut client| async move {
            client.append(Outgoing(requests)).await
        });
        async move { Ok(call.await?.map(|reply| reply.map_err(failure)).boxed()) }.boxed()
    }

    fn heartbeat(
        &self,
        to: &Member,
        request: pb::AppendRequest,
    ) -> BoxFuture<'static, Answered<pb::AppendReply>> {
        self.ask(to, Lane::Heartbeat, move |mut client| async move {
            client.heartbeat(request).await
        })
    }

    fn vote(
        &self,
        to: &Member,
        request: pb::VoteRequest,
    ) -> BoxFuture<'static, Answered<pb::VoteReply>> {
        self.ask(to, Lane::Heartbeat, move |mut client| async move {
            client.vote(request).await
        })
    }

    fn pre_vote(
        &self,
        to: &Member,
        request: pb::VoteRequest,
    ) -> BoxFuture<'static, Answered<pb::VoteReply>> {
        self.ask(to, Lane::Heartbeat, move |mut client| async move {
            client.pre_vote(request).await
        })
    }

    fn snapshot(
        &self,
        to: &Member,
        parts: BoxStream<'static, pb::SnapshotPart>,
    ) -> BoxFuture<'static, Answered<BoxStream<'static, Answered<pb::SnapshotReply>>>> {
        let call = self.ask(to, Lane::Snapshot, move |mut client| async move {
            client.snapshot(Outgoing(parts)).await
        });
        async move { Ok(call.await?.map(|reply| reply.map_err(failure)).boxed()) }.boxed()
    }

    fn transfer_leader(
        &self,
        to: &Member,
        request: pb::TransferRequest,
    ) -> BoxFuture<'static, Answered<pb::TransferReply>> {
        self.ask(to, Lane::Heartbeat, move |mut client| async move {
            client.transfer_leader(request).await
        })
    }
}

/// A stream with a name: the compiler cannot see that a boxed one may be sent, deep inside tonic's
/// futures.
struct Outgoing<T>(BoxStream<'static, T>);

impl<T> Stream for Outgoing<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_next_unpin(context)
    }
}

/// A refusal or a missing connection wants a pause; what broke underway does not.
fn failure(status: Status) -> TransportError {
    let why = format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::DeadlineExceeded => TransportError::Timeout,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::Aborted => {
            TransportError::Broken(why)
        }
        _ => TransportError::Unreachable(why),
    }
}
