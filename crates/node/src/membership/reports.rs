//! Each node tells the leader how it is, and learns how the others are: the table of runs, terms
//! and flushed indexes, room on disks, versions, and whether the states are equal.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tonic::Status;
use tracing::{error, warn};
use trellis_consensus::{Consensus, blocking};
use trellis_rpc::{Lane, pb};
use trellis_types::{NodeId, Run};

use super::{
    Difference, DigestSample, DiskSpace, FEATURE_LEVEL, Judgement, Known, Seen, Standing, convert,
};

/// How often a node reports. The figures that hellos are checked against are at most this old.
const REPORT_PACE: Duration = Duration::from_millis(500);

/// Room on disk is asked for this often: it changes slowly.
const DISK_PACE: u32 = 4;

/// Digests of one report that are looked at: more than any version tells.
const SAMPLES_MAX: usize = 64;

/// Reports for as long as the node takes part. Never returns.
pub(crate) async fn report(standing: Arc<Standing>, consensus: Consensus) {
    let mut space = DiskSpace::default();
    let mut round = 0_u32;
    loop {
        sleep(REPORT_PACE).await;
        if round.is_multiple_of(DISK_PACE) {
            let disk = standing.disk.clone();
            match blocking(move || disk.space()).await {
                Ok(now) => space = now,
                Err(error) => warn!(%error, "room on disk is not known"),
            }
        }
        round = round.wrapping_add(1);
        let own = own(&standing, &consensus, space);
        // The own row is what status and house-keeping read, too.
        let (id, seen, age) = row(&own);
        standing.table.learn(id, seen, age);
        if standing.leads().is_some() {
            watch_peers(&standing, &consensus);
            judge_self(&standing).await;
        } else if let Some(leader) = standing.leader() {
            tell(&standing, leader, own).await;
        }
    }
}

fn own(standing: &Standing, consensus: &Consensus, space: DiskSpace) -> pb::Report {
    let metrics = consensus.metrics();
    let samples = standing.witnessed.digests.telling();
    let flushed = consensus.flushed().map_or(0, |position| position.index);
    pb::Report {
        node: standing.id().0,
        run: standing.identity.run().0,
        // What a candidate or follower knows may not be on its disk yet; a leader's term is.
        term: standing.leads().unwrap_or_default(),
        // Only what is committed can't be truncated any more.
        flushed: flushed.min(consensus.committed()),
        applied: metrics.applied.unwrap_or_default(),
        disk_free: space.free,
        disk_total: space.total,
        level: FEATURE_LEVEL,
        version: standing.version.clone(),
        address: standing.address.clone(),
        digests: samples.into_iter().map(convert::sample_message).collect(),
        quarantined: standing.quarantined.get().is_some(),
    }
}

/// A node's own report as a row. What it says of run, term and index is on its disk.
fn row(report: &pb::Report) -> (NodeId, Seen, Duration) {
    let seen = Seen {
        known: Known {
            run: Run(report.run),
            term: report.term,
            flushed: report.flushed,
        },
        applied: report.applied,
        disk: DiskSpace {
            free: report.disk_free,
            total: report.disk_total,
        },
        level: report.level,
        version: report.version.clone(),
        address: report.address.clone(),
        quarantined: report.quarantined,
    };
    (NodeId(report.node), seen, Duration::ZERO)
}

/// What followers have acknowledged of the log counts even if they have not reported since.
fn watch_peers(standing: &Standing, consensus: &Consensus) {
    let metrics = consensus.metrics();
    let committed = consensus.committed();
    for peer in metrics.peers {
        let Some((mut seen, age)) = standing.table.get(peer.node) else {
            continue;
        };
        if let Some(matched) = peer.matched {
            // An acknowledgement in this term means that the term is on the follower's disk.
            seen.known.term = seen.known.term.max(metrics.term);
            seen.known.flushed = seen.known.flushed.max(matched.min(committed));
            standing.table.learn(peer.node, seen, age);
        }
    }
    let membership = consensus.membership();
    standing
        .table
        .retain(|node| membership.members.contains_key(&node));
    let mut jury = standing.jury.lock();
    jury.retain(|node| membership.members.contains_key(&node));
}

async fn tell(standing: &Arc<Standing>, leader: NodeId, report: pb::Report) {
    let Some(member) = standing.membership().members.remove(&leader) else {
        return;
    };
    let asked = async {
        let mut peer = standing
            .peers
            .peer(leader, &member.address, Lane::Control)?;
        peer.report(pb::ReportRequest {
            report: Some(report),
        })
        .await
    };
    // A report that is lost is made good by the next.
    let Ok(Ok(reply)) = timeout(REPORT_PACE * 2, asked).await else {
        return;
    };
    let reply = reply.into_inner();
    for message in reply.table {
        let (node, seen, age) = convert::seen(message);
        if node != standing.id() {
            standing.table.learn(node, seen, age);
        }
    }
    let theirs: Vec<DigestSample> = reply.digests.into_iter().map(convert::sample).collect();
    compare(standing, leader, theirs);
    let (index, from) = (reply.differs_at, NodeId(reply.differs_from));
    let judgement = match pb::Judgement::try_from(reply.judgement) {
        Ok(pb::Judgement::Wrong) => Judgement::Wrong { index, from },
        Ok(pb::Judgement::Undecided) => Judgement::Undecided { index, from },
        Ok(pb::Judgement::Sound) | Err(_) => Judgement::Sound,
    };
    accept(standing, judgement).await;
}

/// The leader is judged like everybody else.
async fn judge_self(standing: &Arc<Standing>) {
    let (me, membership) = (standing.id(), standing.membership());
    let judgement = standing.jury.lock().judge(me, me, &membership);
    accept(standing, judgement).await;
}

/// What is thought of this node's own state.
async fn accept(standing: &Arc<Standing>, judgement: Judgement) {
    let name = |node: NodeId| match standing.membership().members.remove(&node) {
        Some(member) => member.name,
        None => node.to_string(),
    };
    match judgement {
        Judgement::Sound => standing.doubt(None),
        Judgement::Undecided { index, from } => standing.doubt(Some(format!(
            "the state differs from that of {} at index {index}, and no majority tells which is right",
            name(from)
        ))),
        Judgement::Wrong { index, from } => {
            let why = format!(
                "the state differs at index {index} from that of {}, which a majority has",
                name(from)
            );
            standing.quarantine(why).await;
        }
    }
}

/// The leader's answer to a report.
pub(crate) fn answer(standing: &Standing, report: pb::Report) -> Result<pb::ReportReply, Status> {
    let term = standing
        .leads()
        .ok_or_else(|| Status::unavailable("this node does not lead"))?;
    let (node, seen, age) = row(&report);
    let membership = standing.membership();
    if !membership.members.contains_key(&node) {
        return Err(Status::not_found(format!("node {node} is no member")));
    }
    standing.table.learn(node, seen, age);
    let digests = report.digests.into_iter().take(SAMPLES_MAX);
    let samples: Vec<DigestSample> = digests.map(convert::sample).collect();
    compare(standing, node, samples.clone());
    let (judged, own) = {
        let (me, jury) = (standing.id(), standing.jury.lock());
        let judge = |node| jury.judge(node, me, &membership);
        (judge(node), judge(me))
    };
    let (judgement, differs_at, differs_from) = match judged {
        Judgement::Sound => (pb::Judgement::Sound, 0, NodeId::default()),
        Judgement::Undecided { index, from } => (pb::Judgement::Undecided, index, from),
        Judgement::Wrong { index, from } => (pb::Judgement::Wrong, index, from),
    };
    let ours = samples.iter().filter_map(|DigestSample { index, .. }| {
        let digest = standing.witnessed.digests.at(*index)?;
        Some(convert::sample_message(DigestSample {
            index: *index,
            digest,
        }))
    });
    let table = standing.table.all().into_iter();
    Ok(pb::ReportReply {
        term,
        outvoted: own != Judgement::Sound,
        judgement: judgement.into(),
        differs_at,
        differs_from: differs_from.0,
        digests: ours.collect(),
        table: table
            .map(|(node, seen, age)| convert::seen_message(node, seen, age))
            .collect(),
    })
}

/// Takes another node's samples in; a difference is counted and logged once. Promise P7.
fn compare(standing: &Standing, node: NodeId, samples: Vec<DigestSample>) {
    let digests = &standing.witnessed.digests;
    let mut jury = standing.jury.lock();
    let found = jury.hear(node, samples, standing.id(), |index| digests.at(index));
    for Difference { index, one, other } in found {
        standing.digest_mismatches.fetch_add(1, Ordering::Relaxed);
        error!(index, %one, %other, "two replicas are not equal");
    }
}
