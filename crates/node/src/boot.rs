//! From an opened data folder to a node that takes part: identity, peer port, Raft built, core,
//! then forming or joining, hello, and Raft run.
//!
//! The node is there, and can be asked how it is, before it takes part: forming and hello go on
//! behind it. Source: architecture, sections 12 and 15.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64},
    },
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::{error, info};
use trellis_consensus::{
    BuildError, Consensus, ConsensusSettings, GrpcTransport, Listener, StateStore, Transport,
    blocking, raft::RaftLogStorage, raft::TypeConfig,
};
use trellis_rpc::{
    ClusterId, Identity as PeerIdentity, IdentityGuard, Incoming, MESSAGE_BYTES_MAX, Network,
    Peers, SharedIdentity, pb::peer_server::PeerServer,
};

use crate::{
    Core, CoreParts, Node, NodeSettings, PeerNeighbours, Surroundings,
    membership::{
        self, BadMembers, CoreView, Disk, Forming, Identity, MemberSettings, MemberTable, Members,
        PeerService, Stage, Standing, Witness,
    },
};

/// Everything that a node is made of. Storage comes as what it can do, not as what it is.
pub struct BootParts<L> {
    /// Who this node is, on its disk.
    pub identity: Arc<dyn Identity>,
    /// The replicated log.
    pub log: L,
    /// The mirror of the state.
    pub state: Arc<dyn StateStore>,
    /// What house-keeping asks of the storage.
    pub disk: Arc<dyn Disk>,
    /// Of the mind.
    pub settings: NodeSettings,
    /// Of Raft.
    pub consensus: ConsensusSettings,
    /// How it finds others.
    pub members: MemberSettings,
    /// The binary's version, for people.
    pub version: String,
}

/// Why a node does not start. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The membership part of the configuration.
    #[error(transparent)]
    Members(#[from] BadMembers),
    /// The folder is another node's.
    #[error(
        "name is {found:?}, but the data folder is that of node {known:?}; correct the name, or use \
         a folder of its own"
    )]
    OtherName {
        /// What configuration says.
        found: String,
        /// What the folder says.
        known: String,
    },
    /// The folder can't be written.
    #[error("the data folder can't be written: {0}")]
    Identity(#[source] io::Error),
    /// The peer port can't be opened.
    #[error("cannot listen on {address}: {source} (peer_listen)")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Log and state can't be loaded.
    #[error(transparent)]
    Consensus(#[from] BuildError),
}

/// Starts a node. Returns once storage is loaded, the log replayed and the peer port open; the
/// node goes on by itself to form or join a cluster and to take part in it.
///
/// # Errors
///
/// What is wrong with configuration, folder or port, and what to do.
pub async fn boot<L>(parts: BootParts<L>) -> Result<Node, BootError>
where
    L: RaftLogStorage<TypeConfig>,
{
    boot_in(Surroundings::default(), parts).await
}

/// As [`boot`], but for what surrounds the process.
///
/// # Errors
///
/// As [`boot`].
pub async fn boot_in<L>(surroundings: Surroundings, parts: BootParts<L>) -> Result<Node, BootError>
where
    L: RaftLogStorage<TypeConfig>,
{
    let BootParts {
        identity,
        log,
        state,
        disk,
        settings,
        consensus,
        members,
        version,
    } = parts;
    let network = surroundings.network.clone();
    let standing = stand(identity.clone(), disk, &members, version, network).await?;
    let port = open_port(&*surroundings.network, members.listen).await?;
    let wall = surroundings.wall.clone();
    let core = Core::beside(wall, standing.id(), settings, state.bodies());
    let listener = Box::new(core.listener());
    let transport = (surroundings.between)(transport(&standing));
    let consensus = build(&standing, consensus, log, state, transport, listener).await?;
    consensus.tell_time_with({
        let core = core.clone();
        Arc::new(move || core.clock_report())
    });
    let parts = CoreParts {
        consensus: consensus.clone(),
        neighbours: Arc::new(PeerNeighbours::new(
            standing.peers.clone(),
            consensus.clone(),
        )),
        next_run: Arc::new(move || identity.next_run()),
    };
    // Not before the hello is answered: a start that is refused must not raise the run, or a
    // restored volume would catch up with what the others know of it by being started again.
    let starting = core.clone();
    let start = move || starting.start(parts);
    let members = run(standing, consensus, Arc::new(core.clone()), port, start);
    Ok(Node::new(core, members))
}

/// Checks configuration against the folder and sets up what the tasks share.
pub(crate) async fn stand(
    identity: Arc<dyn Identity>,
    disk: Arc<dyn Disk>,
    members: &MemberSettings,
    version: String,
    network: Arc<dyn Network>,
) -> Result<Arc<Standing>, BootError> {
    members.check()?;
    let cluster = identity.cluster().unwrap_or(ClusterId::NONE);
    let (found, known) = (members.name.clone(), identity.name());
    if known.is_empty() {
        let (identity, name) = (identity.clone(), found.clone());
        blocking(move || identity.set_name(&name))
            .await
            .map_err(BootError::Identity)?;
    } else if known != found {
        return Err(BootError::OtherName { found, known });
    }
    let node = identity.node();
    let bound = membership::shown(identity.cluster());
    info!(%node, name = members.name, cluster = bound, "node");
    let quarantined = disk.quarantined();
    if let Some(why) = &quarantined {
        error!(
            why,
            "this node is quarantined: it serves no clients and does not lead until `trellis \
             rebuild` has got its state anew (docs/errors/quarantined.md)"
        );
    }
    let now = crate::now();
    Ok(Arc::new(Standing {
        run_at_start: identity.run(),
        peers: Peers::over(SharedIdentity::new(PeerIdentity { cluster, node }), network),
        forming: Forming {
            id: node,
            name: members.name.clone(),
            initial: members.initial_members.clone(),
            join: members.join.clone(),
        },
        address: members.own_address(),
        version,
        identity,
        consensus: OnceLock::new(),
        core: OnceLock::new(),
        disk,
        disk_mark: members.disk_mark,
        table: MemberTable::default(),
        witnessed: Arc::default(),
        digest_mismatches: AtomicU64::new(0),
        jury: Mutex::default(),
        quarantined: quarantined.map_or_else(OnceLock::new, OnceLock::from),
        doubt: Mutex::new(None),
        binding: tokio::sync::Mutex::new(()),
        bell: Notify::new(),
        invited: Mutex::new(Vec::new()),
        stage: watch::Sender::new(Stage::Forming("starting".to_owned())),
        draining: watch::Sender::new(false),
        stalled: AtomicBool::new(false),
        councils: Mutex::new(Vec::new()),
        changing: tokio::sync::Mutex::new(()),
        short_of_disk: Mutex::new(Vec::new()),
        said: Mutex::new(now),
        started: now,
        heartbeat: Mutex::new(now),
    }))
}

/// Opens the peer port, so that a port in use is noticed before anything else happens.
pub(crate) async fn open_port(
    network: &dyn Network,
    address: SocketAddr,
) -> Result<Incoming, BootError> {
    let listening = network.listen(address).await;
    listening.map_err(|source| BootError::Listen { address, source })
}

/// What Raft talks to other nodes with.
pub(crate) fn transport(standing: &Standing) -> Arc<dyn Transport> {
    Arc::new(GrpcTransport::new(standing.peers.clone()))
}

/// Builds Raft: loads the state and replays the log. Nothing of Raft runs yet.
pub(crate) async fn build<L>(
    standing: &Standing,
    settings: ConsensusSettings,
    log: L,
    state: Arc<dyn StateStore>,
    transport: Arc<dyn Transport>,
    listener: Box<dyn Listener>,
) -> Result<Consensus, BootError>
where
    L: RaftLogStorage<TypeConfig>,
{
    let witnessed = standing.witnessed.clone();
    let listener = Box::new(Witness {
        witnessed,
        inner: listener,
    });
    Ok(Consensus::build(settings, standing.id(), log, state, transport, listener).await?)
}

/// Serves the peer port and sets the node on its way; `start` is called when it takes part.
/// Nothing here waits.
pub(crate) fn run(
    standing: Arc<Standing>,
    consensus: Consensus,
    core: Arc<dyn CoreView>,
    port: Incoming,
    start: impl FnOnce() + Send + 'static,
) -> Members {
    // Set once, here: whoever finds them empty is told that the node is starting.
    let _ = standing.consensus.set(consensus.clone());
    let _ = standing.core.set(core);
    if standing.quarantined.get().is_some() {
        standing.keep_out();
    }
    let peers = serve(standing.clone(), consensus.clone(), port);
    tokio::spawn(async move {
        if let Err(error) = peers.await {
            error!(%error, "the peer port has failed");
        }
    });
    tokio::spawn(membership::keep_up(standing.clone(), consensus.clone()));
    tokio::spawn({
        let standing = standing.clone();
        async move {
            if let Err(stop) = membership::enter(standing.clone(), consensus.clone()).await {
                standing.stop(stop);
                return;
            }
            start();
            tokio::join!(
                membership::report(standing.clone(), consensus.clone()),
                membership::preside(standing.clone(), consensus.clone()),
                membership::watch_leader(standing.clone(), consensus.clone()),
                membership::watch_level(standing.clone()),
                membership::watch_for_removal(standing, consensus),
            );
        }
    });
    Members(standing)
}

/// The peer port: membership and the core's streams, and Raft's messages.
async fn serve(
    standing: Arc<Standing>,
    consensus: Consensus,
    port: Incoming,
) -> Result<(), tonic::transport::Error> {
    let witnessed = standing.witnessed.clone();
    let retired = move |node| witnessed.is_retired(node);
    let guard = IdentityGuard::new(
        standing.shared().clone(),
        membership::ANY_TARGET,
        membership::ANY_CLUSTER,
        retired,
    );
    let peer = PeerServer::new(PeerService::new(standing))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    trellis_rpc::server()
        .layer(guard)
        .add_service(peer)
        .add_service(consensus.service())
        .serve_with_incoming(port)
        .await
}
