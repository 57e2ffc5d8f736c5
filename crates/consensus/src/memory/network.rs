use std::{
    collections::{HashMap, HashSet},
    future::Future,
    sync::Arc,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::Status;
use trellis_rpc::pb;
use trellis_types::NodeId;

use crate::{Answered, Front, Member, Transport, TransportError};

/// A network within one process. Cables can be cut and mended; like TCP, what is under way waits
/// for the mending.
///
/// Clones are the same network.
#[derive(Clone, Default)]
pub struct LocalNetwork(Arc<Inner>);

struct Inner {
    fronts: Mutex<HashMap<NodeId, Front>>,
    /// How many processes of a node have gone. What such a process still sends gets nowhere.
    gone: Mutex<HashMap<NodeId, u64>>,
    /// From whom to whom nothing gets.
    cuts: watch::Sender<HashSet<(NodeId, NodeId)>>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            fronts: Mutex::default(),
            gone: Mutex::default(),
            cuts: watch::Sender::new(HashSet::new()),
        }
    }
}

impl LocalNetwork {
    /// Nobody is there yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn gone(&self, node: NodeId) -> u64 {
        self.0.gone.lock().get(&node).copied().unwrap_or_default()
    }

    /// What this process of `node` talks to others with.
    pub fn transport(&self, node: NodeId) -> Arc<dyn Transport> {
        Arc::new(Cable {
            network: self.clone(),
            from: node,
            gone_before: self.gone(node),
        })
    }

    /// `node` is reachable from now on.
    pub fn attach(&self, node: NodeId, front: Front) {
        self.0.fronts.lock().insert(node, front);
    }

    /// The process of `node` is gone; connections to it are refused.
    pub fn detach(&self, node: NodeId) {
        self.0.fronts.lock().remove(&node);
        *self.0.gone.lock().entry(node).or_default() += 1;
    }

    /// Nothing gets from `from` to `to` any more.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.0.cuts.send_modify(|cuts| {
            cuts.insert((from, to));
        });
    }

    /// Nothing gets to or from `node` any more; it does not notice.
    pub fn isolate(&self, node: NodeId) {
        let others: Vec<_> = self.0.fronts.lock().keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != node) {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    /// Every cable is whole again.
    pub fn mend(&self) {
        self.0.cuts.send_modify(HashSet::clear);
    }
}

#[derive(Clone)]
struct Cable {
    network: LocalNetwork,
    from: NodeId,
    /// How many processes of `from` had gone before this one came.
    gone_before: u64,
}

impl Cable {
    /// Waits until something gets from `from` to `to`.
    async fn passes(&self, from: NodeId, to: NodeId) {
        let mut cuts = self.network.0.cuts.subscribe();
        // The sender lives in the network itself.
        let _ = cuts.wait_for(|cuts| !cuts.contains(&(from, to))).await;
    }

    fn front(&self, to: NodeId) -> Answered<Front> {
        if self.network.gone(self.from) != self.gone_before {
            return Err(TransportError::Unreachable("this process is gone".into()));
        }
        let front = self.network.0.fronts.lock().get(&to).cloned();
        front.ok_or_else(|| TransportError::Unreachable("connection refused".into()))
    }

    /// A process that is gone has taken its connections with it, even if another has its place.
    fn still(&self, to: NodeId, front: &Front) -> Answered<()> {
        match self.front(to)?.is(front) {
            true => Ok(()),
            false => Err(TransportError::Broken("connection reset".into())),
        }
    }

    /// A stream there and one back.
    fn stream<A, B>(
        &self,
        to: &Member,
        questions: BoxStream<'static, A>,
        call: impl FnOnce(&Front, Heard<A>) -> Result<Heard<B>, Status> + Send + 'static,
    ) -> BoxFuture<'static, Answered<BoxStream<'static, Answered<B>>>>
    where
        A: Send + 'static,
        B: Send + 'static,
    {
        let (there, back, from, to) = (self.clone(), self.clone(), self.from, to.id);
        async move {
            back.passes(from, to).await;
            let front = back.front(to)?;
            let peer = front.clone();
            let questions = questions.then(move |question| {
                let (there, peer) = (there.clone(), peer.clone());
                async move {
                    there.passes(from, to).await;
                    let reset = |_| Status::unavailable("connection reset");
                    there.still(to, &peer).map_err(reset)?;
                    Ok(question)
                }
            });
            let answers = call(&front, questions.boxed()).map_err(failure)?;
            let answers = answers.then(move |answer| {
                let (back, front) = (back.clone(), front.clone());
                async move {
                    back.passes(to, from).await;
                    back.still(to, &front)?;
                    answer.map_err(failure)
                }
            });
            Ok(answers.boxed())
        }
        .boxed()
    }

    fn ask<T, F>(
        &self,
        to: &Member,
        call: impl FnOnce(Front) -> F + Send + 'static,
    ) -> BoxFuture<'static, Answered<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send,
    {
        let (this, from, to) = (self.clone(), self.from, to.id);
        async move {
            this.passes(from, to).await;
            let front = this.front(to)?;
            let answer = call(front.clone()).await.map_err(failure);
            this.passes(to, from).await;
            this.still(to, &front)?;
            answer
        }
        .boxed()
    }
}

type Heard<T> = BoxStream<'static, Result<T, Status>>;

fn failure(status: Status) -> TransportError {
    TransportError::Unreachable(status.message().into())
}

impl Transport for Cable {
    fn append(
        &self,
        to: &Member,
        requests: BoxStream<'static, pb::AppendRequest>,
    ) -> BoxFuture<'static, Answered<BoxStream<'static, Answered<pb::AppendReply>>>> {
        self.stream(to, requests, Front::append)
    }

    fn heartbeat(
        &self,
        to: &Member,
        request: pb::AppendRequest,
    ) -> BoxFuture<'static, Answered<pb::AppendReply>> {
        self.ask(to, |front| async move { front.heartbeat(request).await })
    }

    fn vote(
        &self,
        to: &Member,
        request: pb::VoteRequest,
    ) -> BoxFuture<'static, Answered<pb::VoteReply>> {
        self.ask(to, move |front| async move { front.vote(request).await })
    }

    fn pre_vote(
        &self,
        to: &Member,
        request: pb::VoteRequest,
    ) -> BoxFuture<'static, Answered<pb::VoteReply>> {
        self.ask(
            to,
            move |front| async move { front.pre_vote(request).await },
        )
    }

    fn snapshot(
        &self,
        to: &Member,
        parts: BoxStream<'static, pb::SnapshotPart>,
    ) -> BoxFuture<'static, Answered<BoxStream<'static, Answered<pb::SnapshotReply>>>> {
        self.stream(to, parts, Front::snapshot)
    }

    fn transfer_leader(
        &self,
        to: &Member,
        request: pb::TransferRequest,
    ) -> BoxFuture<'static, Answered<pb::TransferReply>> {
        self.ask(to, move |front| async move {
            front.transfer_leader(request).await
        })
    }
}
