use std::sync::Arc;

use futures::stream::BoxStream;
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};
use trellis_consensus::Member;
use trellis_rpc::{Lane, pb, pb::peer_server::Peer, sender};
use trellis_types::{NodeId, Run};

use super::{
    CHANGE_TIMEOUT, CoreView, Known, Standing, changes, convert, reports, shown, succession,
};

/// Methods that a node answers whoever asks and for whomever: they are how nodes get to know
/// each other. Their handlers look at cluster and id themselves.
pub(crate) const ANY_CLUSTER: &[&str] = &[
    "/trellis.v1.Peer/Hello",
    "/trellis.v1.Peer/Bind",
    "/trellis.v1.Peer/Invite",
];

/// Methods of the own cluster that may come without knowing this node's id.
pub(crate) const ANY_TARGET: &[&str] = &["/trellis.v1.Peer/Join", "/trellis.v1.Peer/Change"];

/// The one `Peer` service of a node: membership answers here, the rest is the core's.
pub(crate) struct PeerService {
    standing: Arc<Standing>,
}

impl PeerService {
    pub(crate) fn new(standing: Arc<Standing>) -> Self {
        Self { standing }
    }

    fn core(&self) -> Result<&dyn CoreView, Status> {
        let core = self.standing.core.get().map(|core| &**core);
        core.ok_or_else(|| Status::unavailable("this node is still starting"))
    }

    /// What others must be told that the asker's disk holds at least.
    fn known(&self, asker: NodeId) -> Known {
        let mut known = self.standing.table.known(asker);
        if let Some(consensus) = self.standing.consensus.get() {
            let origin = consensus.with_machine(|machine| machine.origin(asker));
            let run = origin.map_or(Run(0), |origin| origin.highest_run);
            known.run = Run(known.run.0.max(run.0));
        }
        known
    }

    /// Whether the asker's id is out of the cluster for ever.
    fn removed(&self, asker: NodeId, its_membership: Option<u64>) -> bool {
        let Some(consensus) = self.standing.consensus.get() else {
            return false;
        };
        if self.standing.witnessed.is_retired(asker) {
            return true;
        }
        // It was a member once, and what a majority agreed on since does not name it.
        let agreed = consensus.membership();
        let committed = agreed
            .position
            .as_ref()
            .is_some_and(|position| position.index <= consensus.committed());
        let older = |its: u64| {
            agreed
                .position
                .as_ref()
                .is_some_and(|ours| its < ours.index)
        };
        committed && its_membership.is_some_and(older) && !agreed.members.contains_key(&asker)
    }
}

#[tonic::async_trait]
impl Peer for PeerService {
    async fn hello(
        &self,
        request: Request<pb::HelloRequest>,
    ) -> Result<Response<pb::HelloReply>, Status> {
        let standing = &self.standing;
        let request = request.into_inner();
        let asker = NodeId(request.from);
        let ours = standing.cluster();
        let theirs = request.cluster.as_deref().and_then(convert::cluster_id);
        let same = theirs.is_none() || theirs == ours;
        if !same && ours.is_some() {
            let (ours, theirs) = (shown(ours), shown(theirs));
            warn!(ours, theirs, node = %asker, name = request.name, "hello from another cluster");
        }
        if theirs.is_some()
            && theirs == ours
            && let Some(consensus) = standing.consensus.get()
            && consensus.moved(asker, &request.address)
        {
            let (name, address) = (request.name, request.address);
            info!(node = %asker, name, address, "a member says that it is here now");
        }
        let known = if same {
            self.known(asker)
        } else {
            Known::default()
        };
        Ok(Response::new(pb::HelloReply {
            from: standing.id().0,
            name: standing.name().to_owned(),
            cluster: ours.map(convert::cluster_bytes),
            formed: standing.formed(),
            leads: standing.leads().is_some(),
            leader: standing.leader().map(|leader| leader.0),
            membership: Some((&standing.membership()).into()),
            run: known.run.0,
            term: known.term,
            flushed: known.flushed,
            removed: same && self.removed(asker, request.membership_index),
            clock: standing.core.get().map(|core| core.clock_report()),
            version: standing.version.clone(),
        }))
    }

    async fn bind(
        &self,
        request: Request<pb::BindRequest>,
    ) -> Result<Response<pb::BindReply>, Status> {
        let standing = &self.standing;
        let request = convert::bind_request(request.into_inner())
            .ok_or_else(|| Status::invalid_argument("a cluster id has sixteen bytes"))?;
        let _one = standing.binding.lock().await;
        let allowed = standing
            .forming
            .may_bind(standing.formed(), standing.cluster(), &request);
        let refused = match allowed {
            Ok(()) => standing
                .bind(request.cluster)
                .await
                .err()
                .map(|error| error.to_string()),
            Err(refusal) => Some(refusal.to_string()),
        };
        if let Some(refused) = &refused {
            warn!(from = request.from, cluster = %request.cluster, refused, "not bound");
        }
        let (node, name) = (standing.id().0, standing.name().to_owned());
        Ok(Response::new(pb::BindReply {
            node,
            name,
            refused,
        }))
    }

    async fn invite(
        &self,
        request: Request<pb::InviteRequest>,
    ) -> Result<Response<pb::InviteReply>, Status> {
        let standing = &self.standing;
        let request = request.into_inner();
        let asked = convert::cluster_id(&request.cluster)
            .ok_or_else(|| Status::invalid_argument("a cluster id has sixteen bytes"))?;
        let name = standing.name().to_owned();
        let refused = match standing.cluster() {
            Some(own) if standing.formed() && own == asked => {
                Some(format!("{name} is a member of this cluster already"))
            }
            Some(own) if standing.formed() => Some(format!(
                "{name} is a member of cluster {own}; to move it, start it with an empty data \
                 folder and `join`"
            )),
            Some(own) if own != asked => Some(format!(
                "{name} is bound to cluster {own}; if that never came to be, run `trellis member \
                 unbind` on {name}"
            )),
            _ => {
                // At most as many as one message holds, and only the newest invitation counts.
                *standing.invited.lock() = request.via;
                standing.bell.notify_one();
                None
            }
        };
        Ok(Response::new(pb::InviteReply {
            node: standing.id().0,
            name,
            refused,
        }))
    }

    async fn join(
        &self,
        request: Request<pb::JoinRequest>,
    ) -> Result<Response<pb::ChangeReply>, Status> {
        let request = request.into_inner();
        let member = request.member.clone().map(Member::from);
        let member = member.ok_or_else(|| Status::invalid_argument("a join names the newcomer"))?;
        let standing = &self.standing;
        if standing.leads().is_some() {
            let outcome = changes::take_in(standing, member, request.level).await;
            return Ok(Response::new(changes::reply(outcome)));
        }
        let Some((leader, address)) = changes::leader_address(standing, request.hops) else {
            return Ok(Response::new(changes::no_leader(standing)));
        };
        let passed_on = pb::JoinRequest {
            hops: request.hops - 1,
            ..request
        };
        let mut peer = standing.peers.peer(leader, &address, Lane::Control)?;
        match timeout(CHANGE_TIMEOUT, peer.join(passed_on)).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded("the leader does not answer")),
        }
    }

    async fn change(
        &self,
        request: Request<pb::ChangeRequest>,
    ) -> Result<Response<pb::ChangeReply>, Status> {
        changes::change(&self.standing, request.into_inner())
            .await
            .map(Response::new)
    }

    type LifelineStream = BoxStream<'static, Result<pb::LifelineReply, Status>>;

    async fn lifeline(
        &self,
        _: Request<pb::LifelineRequest>,
    ) -> Result<Response<Self::LifelineStream>, Status> {
        Ok(Response::new(Box::pin(futures::stream::pending())))
    }

    async fn gone(
        &self,
        request: Request<pb::GoneRequest>,
    ) -> Result<Response<pb::GoneReply>, Status> {
        let pb::GoneRequest { leader, term } = request.into_inner();
        let reply = succession::testify(&self.standing, NodeId(leader), term).await;
        Ok(Response::new(reply))
    }

    type ForwardStream = BoxStream<'static, Result<pb::ForwardDown, Status>>;

    async fn forward(
        &self,
        request: Request<Streaming<pb::ForwardUp>>,
    ) -> Result<Response<Self::ForwardStream>, Status> {
        // Batches are taken of the origins of who sends them only.
        let from = sender(request.metadata())
            .ok_or_else(|| Status::unauthenticated("a stream of batches says who sends it"))?;
        self.core()?
            .forward(from, request.into_inner())
            .map(Response::new)
    }

    async fn read_index(
        &self,
        _: Request<pb::ReadIndexRequest>,
    ) -> Result<Response<pb::ReadIndexReply>, Status> {
        self.core()?.read_index().await.map(Response::new)
    }

    async fn census(
        &self,
        request: Request<pb::CensusRequest>,
    ) -> Result<Response<pb::CensusReply>, Status> {
        self.core()?
            .census(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn report(
        &self,
        request: Request<pb::ReportRequest>,
    ) -> Result<Response<pb::ReportReply>, Status> {
        let report = request
            .into_inner()
            .report
            .ok_or_else(|| Status::invalid_argument("a report says something"))?;
        reports::answer(&self.standing, report).map(Response::new)
    }
}
