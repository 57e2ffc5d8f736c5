//! Between the messages of `proto/trellis/peer.proto` and the words of this folder.

use std::time::Duration;

use bytes::Bytes;
use trellis_consensus::Membership;
use trellis_rpc::{ClusterId, pb};
use trellis_types::{NodeId, Run};

use super::{BindRequest, DigestSample, DiskSpace, HelloAnswer, Known, Seed, Seen};

pub(crate) fn cluster_bytes(cluster: ClusterId) -> Bytes {
    Bytes::copy_from_slice(&cluster.0.to_be_bytes())
}

/// `None` for anything that is no sixteen bytes, and for "no cluster".
pub(crate) fn cluster_id(raw: &[u8]) -> Option<ClusterId> {
    let raw: [u8; 16] = raw.try_into().ok()?;
    Some(ClusterId(u128::from_be_bytes(raw))).filter(|cluster| *cluster != ClusterId::NONE)
}

pub(crate) fn hello_answer(reply: pb::HelloReply) -> HelloAnswer {
    HelloAnswer {
        from: NodeId(reply.from),
        name: reply.name,
        cluster: reply.cluster.as_deref().and_then(cluster_id),
        formed: reply.formed,
        leads: reply.leads,
        leader: reply.leader.map(NodeId),
        membership: reply.membership.map(Membership::from).unwrap_or_default(),
        knows: Known {
            run: Run(reply.run),
            term: reply.term,
            flushed: reply.flushed,
        },
        removed: reply.removed,
    }
}

pub(crate) fn seed(seed: pb::Seed) -> Seed {
    Seed {
        name: seed.name,
        address: seed.address,
    }
}

/// `None` if the cluster id is none.
pub(crate) fn bind_request(request: pb::BindRequest) -> Option<BindRequest> {
    Some(BindRequest {
        cluster: cluster_id(&request.cluster)?,
        from: request.from_name,
        initial: request.initial.into_iter().map(seed).collect(),
    })
}

pub(crate) fn seen_message(node: NodeId, seen: Seen, age: Duration) -> pb::Seen {
    pb::Seen {
        node: node.0,
        run: seen.known.run.0,
        term: seen.known.term,
        flushed: seen.known.flushed,
        applied: seen.applied,
        disk_free: seen.disk.free,
        disk_total: seen.disk.total,
        level: seen.level,
        version: seen.version,
        age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        address: seen.address,
        quarantined: seen.quarantined,
    }
}

pub(crate) fn seen(message: pb::Seen) -> (NodeId, Seen, Duration) {
    let seen = Seen {
        known: Known {
            run: Run(message.run),
            term: message.term,
            flushed: message.flushed,
        },
        applied: message.applied,
        disk: DiskSpace {
            free: message.disk_free,
            total: message.disk_total,
        },
        level: message.level,
        version: message.version,
        address: message.address,
        quarantined: message.quarantined,
    };
    (
        NodeId(message.node),
        seen,
        Duration::from_millis(message.age_ms),
    )
}

pub(crate) fn sample(message: pb::DigestSample) -> DigestSample {
    DigestSample {
        index: message.index,
        digest: message.digest,
    }
}

pub(crate) fn sample_message(sample: DigestSample) -> pb::DigestSample {
    pb::DigestSample {
        index: sample.index,
        digest: sample.digest,
    }
}
