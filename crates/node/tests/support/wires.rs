use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use trellis_node::{Core, Neighbours};
use trellis_rpc::pb;
use trellis_types::NodeId;

/// The wires between cores, as consensus has its own for Raft.
#[derive(Clone, Default)]
pub struct Wires(Arc<Inner>);

struct Inner {
    cores: Mutex<BTreeMap<NodeId, Core>>,
    /// From whom to whom nothing gets; and how often somebody was detached.
    cuts: watch::Sender<HashSet<(NodeId, NodeId)>>,
    gone: watch::Sender<HashSet<NodeId>>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            cores: Mutex::default(),
            cuts: watch::Sender::new(HashSet::new()),
            gone: watch::Sender::new(HashSet::new()),
        }
    }
}

impl Wires {
    pub fn attach(&self, node: NodeId, core: Core) {
        self.0.cores.lock().insert(node, core);
        self.0.gone.send_modify(|gone| {
            gone.remove(&node);
        });
    }

    pub fn detach(&self, node: NodeId) {
        self.0.cores.lock().remove(&node);
        self.0.gone.send_modify(|gone| {
            gone.insert(node);
        });
    }

    pub fn of(&self, from: NodeId) -> Wire {
        Wire {
            wires: self.clone(),
            from,
        }
    }

    pub fn isolate(&self, node: NodeId) {
        let others: Vec<_> = self.0.cores.lock().keys().copied().collect();
        self.0.cuts.send_modify(|cuts| {
            for other in others.into_iter().filter(|other| *other != node) {
                cuts.insert((node, other));
                cuts.insert((other, node));
            }
        });
    }

    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.0.cuts.send_modify(|cuts| {
            cuts.insert((from, to));
        });
    }

    pub fn mend(&self) {
        self.0.cuts.send_modify(HashSet::clear);
    }

    async fn passes(&self, from: NodeId, to: NodeId) {
        let mut cuts = self.0.cuts.subscribe();
        let _ = cuts.wait_for(|cuts| !cuts.contains(&(from, to))).await;
    }

    async fn is_gone(&self, node: NodeId) {
        let mut gone = self.0.gone.subscribe();
        let _ = gone.wait_for(|gone| gone.contains(&node)).await;
    }

    fn core(&self, node: NodeId) -> Result<Core, Status> {
        let core = self.0.cores.lock().get(&node).cloned();
        core.ok_or_else(|| Status::unavailable("connection refused"))
    }
}

/// One node's end of the wires.
#[derive(Clone)]
pub struct Wire {
    wires: Wires,
    from: NodeId,
}

impl Wire {
    /// Carries messages while both ends live and the cable is whole.
    fn carry<T: Send + 'static>(
        &self,
        from: NodeId,
        to: NodeId,
        mut messages: BoxStream<'static, T>,
    ) -> mpsc::Receiver<T> {
        let (sender, receiver) = mpsc::channel(64);
        let wires = self.wires.clone();
        tokio::spawn(async move {
            loop {
                let message = tokio::select! {
                    message = messages.next() => message,
                    () = wires.is_gone(from) => return,
                    () = wires.is_gone(to) => return,
                    () = sender.closed() => return,
                };
                let Some(message) = message else { return };
                tokio::select! {
                    () = wires.passes(from, to) => {}
                    () = wires.is_gone(to) => return,
                }
                if sender.send(message).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }
}

impl Neighbours for Wire {
    fn forward(
        &self,
        leader: NodeId,
        up: mpsc::Receiver<pb::ForwardUp>,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Result<pb::ForwardDown, Status>>, Status>>
    {
        let this = self.clone();
        async move {
            this.wires.passes(this.from, leader).await;
            let core = this.wires.core(leader)?;
            let up = this.carry(this.from, leader, ReceiverStream::new(up).boxed());
            let down = core.forward(Some(this.from), ReceiverStream::new(up).map(Ok));
            let down = this.carry(leader, this.from, down);
            Ok(ReceiverStream::new(down).boxed())
        }
        .boxed()
    }

    fn read_index(&self, leader: NodeId) -> BoxFuture<'static, Result<pb::ReadIndexReply, Status>> {
        let this = self.clone();
        async move {
            this.wires.passes(this.from, leader).await;
            let reply = this.wires.core(leader)?.read_index().await;
            this.wires.passes(leader, this.from).await;
            reply
        }
        .boxed()
    }

    fn census(
        &self,
        node: NodeId,
        request: pb::CensusRequest,
    ) -> BoxFuture<'static, Result<pb::CensusReply, Status>> {
        let this = self.clone();
        async move {
            this.wires.passes(this.from, node).await;
            let reply = this.wires.core(node)?.census(&request);
            this.wires.passes(node, this.from).await;
            reply
        }
        .boxed()
    }
}
