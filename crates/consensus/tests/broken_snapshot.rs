//! A snapshot whose transfer breaks is taken up where it broke; a damaged one is not taken at all.

mod support;

use std::sync::Arc;

use futures::{StreamExt, stream};
use support::{Cluster, build, eventually, puts};
use tonic::{Code, Status};
use trellis_consensus::{
    Snapshot, StateStore,
    memory::{LocalNetwork, MemoryLog, MemoryState},
};
use trellis_rpc::pb::{self, SnapshotPart, snapshot_part::Part, snapshot_reply::Reply};
use trellis_types::NodeId;

const CHUNK: u64 = 1024 * 1024;

/// A snapshot of some megabytes, and the vote of who leads where it was made.
async fn some_snapshot() -> (Arc<dyn Snapshot>, pb::Vote) {
    let mut cluster = Cluster::of(1).await;
    cluster.open_origin().await;
    for seq in 1..=4 {
        cluster.propose(puts(seq, 16, &[b'x'; 65_000])).await;
    }
    let node = cluster.node(1);
    let term = cluster.roles()[&1].leads().expect("the only one");
    node.consensus.snapshot().await;
    let snapshot = eventually("snapshot", || {
        node.state
            .current_snapshot()
            .expect("a sound state")
            .ok_or_else(|| "none".to_owned())
    })
    .await;
    cluster.shutdown().await;
    (
        snapshot,
        pb::Vote {
            term,
            node: 1,
            committed: true,
        },
    )
}

fn manifest(snapshot: &dyn Snapshot, vote: pb::Vote) -> SnapshotPart {
    let files = snapshot.files().into_iter().map(|file| pb::SnapshotFile {
        name: file.name,
        len: file.len,
        crc: file.crc32c,
    });
    let members = snapshot
        .membership()
        .members
        .into_values()
        .map(|member| pb::Member {
            id: member.id.0,
            name: member.name,
            address: member.address,
        });
    let position = snapshot.position();
    let manifest = pb::SnapshotManifest {
        vote: Some(vote),
        position: Some(position_of(position)),
        membership: Some(pb::Membership {
            position: snapshot.membership().position.map(position_of),
            voters: vec![pb::Voters { ids: vec![1] }],
            members: members.collect(),
        }),
        files: files.collect(),
    };
    SnapshotPart {
        part: Some(Part::Manifest(manifest)),
    }
}

fn position_of(position: trellis_consensus::Position) -> pb::LogId {
    pb::LogId {
        term: position.term,
        leader: position.leader.0,
        index: position.index,
    }
}

fn chunk(snapshot: &dyn Snapshot, offset: u64) -> SnapshotPart {
    let data = snapshot
        .read("state", offset, CHUNK as usize)
        .expect("in memory");
    let crc = crc32c::crc32c(&data);
    SnapshotPart {
        part: Some(Part::Chunk(pb::SnapshotChunk {
            file: 0,
            offset,
            data,
            crc,
        })),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_transfer_goes_on_where_it_broke() {
    let (snapshot, vote) = some_snapshot().await;
    let length = snapshot.files()[0].len;
    assert!(
        length > 3 * CHUNK,
        "{length} bytes are too few for this test"
    );
    let network = LocalNetwork::new();
    let transport = network.transport(NodeId(2));
    let node = build(2, MemoryLog::new(), MemoryState::new(), transport).await;
    node.consensus.run();
    let front = node.consensus.front();

    // Two chunks, and the connection is gone.
    let parts = vec![
        Ok(manifest(&*snapshot, vote)),
        Ok(chunk(&*snapshot, 0)),
        Ok(chunk(&*snapshot, CHUNK)),
        Err(Status::unknown("broken pipe")),
    ];
    let replies: Vec<_> = front
        .snapshot(stream::iter(parts))
        .expect("it runs")
        .collect()
        .await;
    let from = Reply::From(pb::SnapshotFrom { file: 0, offset: 0 });
    assert_eq!(replies[0].as_ref().expect("a beginning").reply, Some(from));
    assert_eq!(
        replies[1].as_ref().expect_err("broken").code(),
        Code::Unknown
    );

    // A damaged chunk loses everything.
    let mut damaged = chunk(&*snapshot, 2 * CHUNK);
    if let Some(Part::Chunk(chunk)) = &mut damaged.part {
        chunk.crc ^= 1;
    }
    let parts = vec![Ok(manifest(&*snapshot, vote)), Ok(damaged)];
    let replies: Vec<_> = front
        .snapshot(stream::iter(parts))
        .expect("it runs")
        .collect()
        .await;
    let from = Reply::From(pb::SnapshotFrom {
        file: 0,
        offset: 2 * CHUNK,
    });
    assert_eq!(replies[0].as_ref().expect("a beginning").reply, Some(from));
    assert_eq!(
        replies[1].as_ref().expect_err("damaged").code(),
        Code::DataLoss
    );
    assert_eq!(node.applied(), 0);

    // So once more, in two goes.
    let parts = vec![
        Ok(manifest(&*snapshot, vote)),
        Ok(chunk(&*snapshot, 0)),
        Err(Status::unknown("broken pipe")),
    ];
    let replies: Vec<_> = front
        .snapshot(stream::iter(parts))
        .expect("it runs")
        .collect()
        .await;
    let from = Reply::From(pb::SnapshotFrom { file: 0, offset: 0 });
    assert_eq!(replies[0].as_ref().expect("a beginning").reply, Some(from));

    let rest = (1..)
        .map(|nth| nth * CHUNK)
        .take_while(|offset| *offset < length);
    let parts: Vec<_> = std::iter::once(manifest(&*snapshot, vote))
        .chain(rest.map(|offset| chunk(&*snapshot, offset)))
        .map(Ok)
        .collect();
    let replies: Vec<_> = front
        .snapshot(stream::iter(parts))
        .expect("it runs")
        .collect()
        .await;
    let from = Reply::From(pb::SnapshotFrom {
        file: 0,
        offset: CHUNK,
    });
    assert_eq!(replies[0].as_ref().expect("a beginning").reply, Some(from));
    assert_eq!(
        replies[1].as_ref().expect("installed").reply,
        Some(Reply::Vote(vote))
    );
    assert_eq!(node.applied(), snapshot.position().index);
    assert_eq!(
        node.consensus
            .with_machine(|machine| machine.server().ready),
        64
    );

    // A leader of a former term is not even listened to.
    let former = pb::Vote { term: 0, ..vote };
    let parts = vec![Ok(manifest(&*snapshot, former))];
    let replies: Vec<_> = front
        .snapshot(stream::iter(parts))
        .expect("it runs")
        .collect()
        .await;
    assert_eq!(
        replies[0].as_ref().expect("a vote").reply,
        Some(Reply::Vote(vote))
    );
    node.consensus.shutdown().await;
}

/// Found by simulation: openraft needs no snapshot of what it has committed, and said so at once; the
/// leader took that for "on disk". When the disk failed, the node came back with less than others had
/// seen of it, and was refused as an older copy of itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_whose_disk_hangs_does_not_say_that_it_has_what_a_snapshot_holds() {
    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    cluster.put(3).await;
    let leader = cluster.leader().await;
    let term = cluster.roles()[&leader].leads().expect("it leads");
    let follower = (1..=3).find(|id| *id != leader).expect("another");
    cluster.node(follower).log.hold_syncs(true);
    let index = cluster.propose(puts(4, 16, b"x")).await;
    eventually("committed, and not on disk", || {
        match cluster.node(follower).consensus.committed() {
            committed if committed >= index => Ok(()),
            committed => Err(format!("{committed} of {index}")),
        }
    })
    .await;
    let node = cluster.node(leader);
    node.consensus.snapshot().await;
    let snapshot = eventually("snapshot", || {
        let current = node.state.current_snapshot().expect("a sound state");
        let newest = current.filter(|snapshot| snapshot.position().index >= index);
        newest.ok_or_else(|| "none".to_owned())
    })
    .await;

    let vote = pb::Vote {
        term,
        node: leader,
        committed: true,
    };
    let length = snapshot.files()[0].len;
    let offsets = (0..).map(|nth| nth * CHUNK);
    let chunks = offsets.take_while(|offset| *offset < length);
    let parts: Vec<_> = std::iter::once(manifest(&*snapshot, vote))
        .chain(chunks.map(|offset| chunk(&*snapshot, offset)))
        .map(Ok)
        .collect();
    let consensus = cluster.node(follower).consensus.clone();
    let replies = consensus.front().snapshot(stream::iter(parts));
    let replies = replies.expect("it runs");
    let written = move || consensus.written().map_or(0, |position| position.index);
    let answered = tokio::spawn(async move {
        let replies: Vec<_> = replies.collect().await;
        (replies, written())
    });
    // As long as the disk hangs.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!answered.is_finished(), "{:?}", answered.await);
    cluster.node(follower).log.hold_syncs(false);
    let (replies, written) = answered.await.expect("replies");
    let last = replies.into_iter().next_back().expect("a reply");
    assert_eq!(last.expect("an answer").reply, Some(Reply::Vote(vote)));
    assert!(written >= index, "{written} of {index}");
    cluster.shutdown().await;
}
