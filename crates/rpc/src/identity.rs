use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{Either, Ready, ready};
use parking_lot::RwLock;
use tonic::{
    Status,
    metadata::{MetadataMap, MetadataValue},
};
use tower::{Layer, Service};
use trellis_types::NodeId;

const CLUSTER: &str = "trellis-cluster";
const FROM: &str = "trellis-from";
const TO: &str = "trellis-to";
const REMOVED: &str = "trellis-removed";

/// Names one cluster: drawn at random when it is formed. 0 is no cluster.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterId(pub u128);

impl ClusterId {
    /// Of a node that belongs to no cluster yet.
    pub const NONE: Self = Self(0);

    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32)
            .then(|| u128::from_str_radix(text, 16).ok().map(Self))
            .flatten()
    }
}

/// As people see it everywhere else.
impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Thirty-two lower-case hexadecimal digits.
impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Who a node is. Every request between nodes says who sends it and for whom it is meant.
///
/// Source: architecture, section 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster; [`ClusterId::NONE`] before the node is bound to one.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
}

/// The identity of this process, which learns its cluster while it runs.
#[derive(Clone, Debug)]
pub struct SharedIdentity(Arc<RwLock<Identity>>);

impl SharedIdentity {
    /// Starts as `identity`.
    pub fn new(identity: Identity) -> Self {
        Self(Arc::new(RwLock::new(identity)))
    }

    /// As of now.
    pub fn get(&self) -> Identity {
        *self.0.read()
    }

    /// The node has bound itself (fsynced) to `cluster`, or unbound itself.
    pub fn set_cluster(&self, cluster: ClusterId) {
        self.0.write().cluster = cluster;
    }

    /// Says in `metadata` that this node asks `to`; nobody in particular for `NodeId(0)`.
    pub(crate) fn sign(&self, metadata: &mut MetadataMap, to: NodeId) -> Result<(), Status> {
        let identity = self.get();
        let mut insert = |key, value: String| {
            let value = MetadataValue::try_from(value)
                .map_err(|_| Status::internal("an identity is hexadecimal"))?;
            metadata.insert(key, value);
            Ok::<_, Status>(())
        };
        insert(CLUSTER, identity.cluster.to_string())?;
        insert(FROM, identity.node.to_string())?;
        if to != NodeId::default() {
            insert(TO, to.to_string())?;
        }
        Ok(())
    }
}

/// Who sent a request; `None` if it does not say.
pub fn sender(metadata: &MetadataMap) -> Option<NodeId> {
    node_id(metadata.get(FROM)?.to_str().ok()?)
}

/// The cluster of a node that refused a request because the caller belongs to another one.
pub fn other_cluster(status: &Status) -> Option<ClusterId> {
    ClusterId::parse(status.metadata().get(CLUSTER)?.to_str().ok()?)
}

/// Whether a request was refused because its sender was removed from the cluster for ever.
pub fn is_removed(status: &Status) -> bool {
    status.metadata().contains_key(REMOVED)
}

fn node_id(text: &str) -> Option<NodeId> {
    (text.len() == 16)
        .then(|| u64::from_str_radix(text, 16).ok().map(NodeId))
        .flatten()
}

type Removed = dyn Fn(NodeId) -> bool + Send + Sync;

/// Refuses requests that are not meant for this node, before any service sees them.
///
/// A wrong or missing cluster is FAILED_PRECONDITION and names both ids; a wrong or missing target
/// is NOT_FOUND; a sender that was removed is PERMISSION_DENIED ([`is_removed`]). Some methods must
/// be heard by a node that the caller does not know yet; they are exempt by their path.
#[derive(Clone)]
pub struct IdentityGuard {
    identity: SharedIdentity,
    any_target: &'static [&'static str],
    any_cluster: &'static [&'static str],
    removed: Arc<Removed>,
}

impl IdentityGuard {
    /// Guards for `identity`. Paths (`/trellis.v1.Peer/Hello`) in `any_target` may come without or
    /// with another target, those in `any_cluster` also with another cluster: their handlers look
    /// themselves. `removed` tells whether a node id was removed for ever.
    pub fn new(
        identity: SharedIdentity,
        any_target: &'static [&'static str],
        any_cluster: &'static [&'static str],
        removed: impl Fn(NodeId) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            identity,
            any_target,
            any_cluster,
            removed: Arc::new(removed),
        }
    }

    fn check(&self, path: &str, headers: &http::HeaderMap) -> Result<(), Status> {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let Identity { cluster, node } = self.identity.get();

        let from = header(FROM).and_then(node_id);
        if from.is_some_and(|from| (self.removed)(from)) {
            let mut status = Status::permission_denied(
                "this node was removed from the cluster and can only join as a new one",
            );
            status
                .metadata_mut()
                .insert(REMOVED, MetadataValue::from_static("1"));
            return Err(status);
        }

        let theirs = header(CLUSTER)
            .and_then(ClusterId::parse)
            .unwrap_or(ClusterId::NONE);
        let any_cluster = self.any_cluster.contains(&path);
        if !any_cluster && (theirs != cluster || cluster == ClusterId::NONE) {
            let mut status = Status::failed_precondition(format!(
                "this node belongs to cluster {cluster}, the caller to cluster {theirs}"
            ));
            if let Ok(value) = MetadataValue::try_from(cluster.to_string()) {
                status.metadata_mut().insert(CLUSTER, value);
            }
            return Err(status);
        }

        let to = header(TO).and_then(node_id);
        if !any_cluster && !self.any_target.contains(&path) && to != Some(node) {
            let asked = to.unwrap_or_default();
            return Err(Status::not_found(format!(
                "asked for node {asked}, this is node {node}"
            )));
        }
        Ok(())
    }
}

impl<S> Layer<S> for IdentityGuard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            guard: self.clone(),
            inner,
        }
    }
}

/// A service behind an [`IdentityGuard`].
#[derive(Clone)]
pub struct Guarded<S> {
    guard: IdentityGuard,
    inner: S,
}

impl<S, B, R> Service<http::Request<B>> for Guarded<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    R: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<S::Response, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        match self.guard.check(request.uri().path(), request.headers()) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(status) => Either::Right(ready(Ok(status.into_http()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const ME: Identity = Identity {
        cluster: ClusterId(5),
        node: NodeId(1),
    };

    fn guard() -> IdentityGuard {
        IdentityGuard::new(SharedIdentity::new(ME), &["/Hello"], &["/Bind"], |node| {
            node == NodeId(666)
        })
    }

    /// The headers that node `from` of `cluster` sends to `to`.
    fn signed(cluster: u128, from: u64, to: u64) -> http::HeaderMap {
        let identity = Identity {
            cluster: ClusterId(cluster),
            node: NodeId(from),
        };
        let mut metadata = MetadataMap::new();
        SharedIdentity::new(identity)
            .sign(&mut metadata, NodeId(to))
            .expect("hexadecimal");
        metadata.into_headers()
    }

    #[test]
    fn a_request_for_this_node_passes() {
        assert!(guard().check("/Vote", &signed(5, 2, 1)).is_ok());
    }

    #[test]
    fn a_request_of_another_cluster_learns_both_ids() {
        let refused = guard()
            .check("/Vote", &signed(6, 2, 1))
            .expect_err("refused");
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(other_cluster(&refused), Some(ClusterId(5)));
        assert!(refused.message().contains(&ClusterId(6).to_string()));
        assert!(guard().check("/Bind", &signed(6, 2, 1)).is_ok());
    }

    #[test]
    fn a_replacement_behind_a_dead_nodes_name_does_not_answer_for_it() {
        let refused = guard()
            .check("/Vote", &signed(5, 2, 9))
            .expect_err("refused");
        assert_eq!(refused.code(), Code::NotFound);
        let refused = guard()
            .check("/Vote", &signed(5, 2, 0))
            .expect_err("refused");
        assert_eq!(refused.code(), Code::NotFound);
        assert!(guard().check("/Hello", &signed(5, 2, 9)).is_ok());
        assert!(guard().check("/Hello", &signed(5, 2, 0)).is_ok());
    }

    #[test]
    fn a_removed_node_is_told_so() {
        let refused = guard()
            .check("/Hello", &signed(5, 666, 1))
            .expect_err("refused");
        assert!(is_removed(&refused));
    }

    #[test]
    fn an_unbound_node_belongs_to_no_cluster_not_even_to_none() {
        let guard = guard();
        guard.identity.set_cluster(ClusterId::NONE);
        assert!(guard.check("/Vote", &signed(0, 2, 1)).is_err());
    }
}
