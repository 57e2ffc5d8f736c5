//! The same over real gRPC on the loopback.

mod support;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use support::{Node, build, eventually, origin, puts};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_stream::wrappers::TcpListenerStream;
use trellis_consensus::{
    GrpcTransport, Member, Payload, ProposeError,
    memory::{MemoryLog, MemoryState},
};
use trellis_queue::LeaderCommand;
use trellis_rpc::{
    ClusterId, Identity, IdentityGuard, Peers, SharedIdentity, queue::encode_leader, server,
};
use trellis_testkit::process::free_port;
use trellis_types::{NodeId, Timestamp};

struct Served {
    node: Node,
    member: Member,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

async fn serve(id: u64) -> Served {
    // Some of them come back at the same address.
    let address = format!("127.0.0.1:{}", free_port().expect("a port"));
    serve_at(&address, id, MemoryLog::new(), MemoryState::new()).await
}

/// A port that was in use a moment ago may be used again.
fn listen(address: &str) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option");
    let address = address.parse().expect("an address");
    socket.bind(address).expect("a free port");
    socket.listen(64).expect("a listener")
}

async fn serve_at(address: &str, id: u64, log: MemoryLog, state: MemoryState) -> Served {
    let listener = listen(address);
    let address = address.to_owned();
    let identity = SharedIdentity::new(Identity {
        cluster: ClusterId(77),
        node: NodeId(id),
    });
    let transport = Arc::new(GrpcTransport::new(Peers::new(identity.clone())));
    let node = build(id, log, state, transport).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = server()
        .layer(IdentityGuard::new(identity, &[], &[], |_| false))
        .add_service(node.consensus.service())
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            let _ = stopped.await;
        });
    let server = tokio::spawn(async move {
        serving.await.expect("it serves");
    });
    node.consensus.run();
    let member = Member {
        id: NodeId(id),
        name: format!("trellis-{id}"),
        address,
    };
    Served {
        node,
        member,
        stop,
        server,
    }
}

async fn propose(nodes: &BTreeMap<u64, Served>, payload: Payload) -> u64 {
    loop {
        let (node, term) = eventually("leader", || {
            let leading = nodes.values().find_map(|served| {
                let term = served.node.consensus.role().borrow().leads()?;
                Some((&served.node, term))
            });
            leading.ok_or_else(|| {
                let roles = nodes
                    .values()
                    .map(|served| *served.node.consensus.role().borrow());
                format!("{:?}", roles.collect::<Vec<_>>())
            })
        })
        .await;
        let receipt = node
            .consensus
            .propose(term, payload.clone())
            .await
            .expect("raft runs");
        match receipt.await {
            Ok(index) => return index,
            Err(ProposeError::NotLeader { .. } | ProposeError::Unknown) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn agree(nodes: &BTreeMap<u64, Served>, index: u64) {
    eventually("agreement", || {
        let seen: Vec<_> = nodes
            .values()
            .map(|served| (served.node.applied(), served.node.digest()))
            .collect();
        let agreed = seen
            .iter()
            .all(|(applied, digest)| *applied >= index && *digest == seen[0].1);
        if agreed {
            Ok(())
        } else {
            Err(format!("(applied, digest): {seen:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_over_grpc_agree_and_a_fourth_gets_a_snapshot() {
    let mut nodes = three().await;
    let mut index = 0;
    for seq in 1..=100 {
        index = propose(&nodes, puts(seq, 100, &[b'x'; 200])).await;
    }
    agree(&nodes, index).await;
    let ready = nodes[&1]
        .node
        .consensus
        .with_machine(|machine| machine.server().ready);
    assert_eq!(ready, 10_000);

    // A snapshot of more than one chunk.
    let leader = nodes
        .values()
        .find(|served| served.node.consensus.role().borrow().leads().is_some())
        .expect("somebody leads");
    let consensus = leader.node.consensus.clone();
    consensus.snapshot().await;
    let at = eventually("snapshot", || {
        consensus
            .metrics()
            .snapshot
            .ok_or_else(|| format!("{:?}", consensus.metrics()))
    })
    .await;
    consensus.purge(at.index).await;
    eventually("purge", || match leader.node.log.span() {
        Some((first, _)) if first <= at.index => Err(format!("log from {first}")),
        _ => Ok(()),
    })
    .await;
    nodes.insert(4, serve(4).await);
    consensus
        .add_learner(nodes[&4].member.clone())
        .await
        .expect("a learner more");
    let index = propose(&nodes, puts(101, 1, b"late")).await;
    agree(&nodes, index).await;
    assert!(nodes[&4].node.ear.0.lock().replaced.contains(&Some(at)));

    for (_, served) in nodes {
        stop(served).await;
    }
}

async fn stop(served: Served) {
    served.node.consensus.shutdown().await;
    let _ = served.stop.send(());
    served.server.abort();
    let _ = served.server.await;
}

async fn three() -> BTreeMap<u64, Served> {
    let mut nodes = BTreeMap::new();
    for id in 1..=3 {
        nodes.insert(id, serve(id).await);
    }
    let members = nodes.values().map(|served| served.member.clone()).collect();
    nodes[&1]
        .node
        .consensus
        .initialize(members)
        .await
        .expect("an empty log");
    let open = encode_leader(&LeaderCommand::OpenOrigin(origin()));
    propose(
        &nodes,
        Payload {
            at: Timestamp(1),
            leader: vec![open],
            batches: vec![],
        },
    )
    .await;
    nodes
}

fn a_follower(nodes: &BTreeMap<u64, Served>) -> u64 {
    let follows = |served: &&Served| served.node.consensus.role().borrow().leads().is_none();
    let follower = nodes.values().find(follows).expect("a follower");
    follower.member.id.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_was_away_is_fed_again_when_it_is_back() {
    let mut nodes = three().await;
    let id = a_follower(&nodes);
    let away = nodes.remove(&id).expect("it was there");
    let (log, state) = (away.node.log.crash(), away.node.state.crash());
    let address = away.member.address.clone();
    stop(away).await;
    let mut index = 0;
    for seq in 1..=20 {
        index = propose(&nodes, puts(seq, 10, b"meanwhile")).await;
    }
    nodes.insert(id, serve_at(&address, id, log, state).await);
    agree(&nodes, index).await;
    for (_, served) in nodes {
        stop(served).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replacement_behind_a_dead_nodes_address_acknowledges_nothing_for_it() {
    let mut nodes = three().await;
    let id = a_follower(&nodes);
    let dead = nodes.remove(&id).expect("it was there");
    let address = dead.member.address.clone();
    stop(dead).await;
    let stranger = serve_at(&address, 9, MemoryLog::new(), MemoryState::new()).await;
    for seq in 1..=20 {
        propose(&nodes, puts(seq, 1, b"not for you")).await;
    }
    assert_eq!(stranger.node.log.span(), None);
    assert_eq!(stranger.node.consensus.metrics().term, 0);
    stop(stranger).await;
    for (_, served) in nodes {
        stop(served).await;
    }
}
