//! A disk without room.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use bytes::Bytes;
use trellis_checker::history::NodeEvent;
use trellis_tests::Client;
use trellis_types::{JobId, Priority, Seconds, TubeName};
use trellis_wire::beanstalk::{Reply, Request};

use super::{
    Scene, Told,
    account::Fault,
    cluster::{Cluster, NODES},
    stopping::{post, returns},
    told, within,
};

/// Below so many free bytes a node's disk counts as low.
const LOW_BYTES: u64 = 32 * 1024 * 1024;

/// What is left of a disk that is low.
const LEFT_BYTES: u64 = 16 * 1024 * 1024;

/// What lies on it besides, so that the mark is not a share of next to nothing.
const BALLAST_BYTES: u64 = 256 * 1024 * 1024;

/// How long the cluster may take to refuse puts, and to take them again.
const TURNS_WITHIN: Duration = Duration::from_secs(15);

/// How long a node that lacks room may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// What a put is answered.
fn put(address: SocketAddr, body: &'static [u8]) -> Result<Reply> {
    let mut client = Client::at_tube(address, &TubeName::parse(b"full")?)?;
    Ok(client.ask(&Request::Put {
        priority: Priority(0),
        delay: Seconds(0),
        ttr: Seconds(60),
        body: Bytes::from_static(body),
    })?)
}

/// A job of our own.
fn job(address: SocketAddr) -> Result<JobId> {
    match put(address, b"to be deleted")? {
        Reply::Inserted(job) => Ok(job),
        other => bail!("a put was answered {other:?}"),
    }
}

fn delete(address: SocketAddr, job: JobId) -> Result<Reply> {
    let mut client = Client::at_tube(address, &TubeName::parse(b"full")?)?;
    Ok(client.ask(&Request::Delete(job))?)
}

/// A node's disk falls below its mark and gets room again. Who looks on here puts jobs of its own, so nothing else is
/// recorded; a recorded load meets the same in `make chaos STORY=disk-low`.
pub(super) fn low(scene: &Scene) -> Result<Told> {
    let mut plan = scene.plan.clone();
    plan.set = vec![
        format!("disk_low_bytes={LOW_BYTES}"),
        "disk_low_percent=90".to_owned(),
    ];
    let cluster = Cluster::start(plan)?;
    let leader = cluster.leader(&[0, 1, 2])?;
    let (poor, other) = ((leader + 1) % NODES, (leader + 2) % NODES);
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(job(cluster.clients(other))?);
    }

    std::fs::File::create(cluster.disk(poor).path().join("ballast"))?.set_len(BALLAST_BYTES)?;
    let used = cluster.disk(poor).tell("room all")?["used"].as_u64();
    let room = used.unwrap_or_default() + LEFT_BYTES;
    cluster.disk(poor).tell(&format!("room {room}"))?;
    let begin = Instant::now();
    let refused = within("puts to be refused", TURNS_WITHIN, || {
        Ok(put(cluster.clients(other), b"refused?")? == Reply::OutOfMemory)
    })?;
    let mut everywhere = Vec::new();
    for node in 0..NODES {
        everywhere.push(put(cluster.clients(node), b"refused?")?);
    }
    let mut deleted = Vec::new();
    for (node, job) in jobs.into_iter().enumerate() {
        deleted.push(delete(cluster.clients(node), job)?);
    }
    let named = cluster.status(other)?.to_string();

    cluster.disk(poor).tell("room all")?;
    let lasted = begin.elapsed();
    let taken = within("puts to be taken again", TURNS_WITHIN, || {
        match put(cluster.clients(other), b"taken?")? {
            Reply::Inserted(job) => Ok(delete(cluster.clients(other), job)? == Reply::Deleted),
            _ => Ok(false),
        }
    })?;
    scene.say(format!(
        "puts refused after {refused:?}, taken again after {taken:?}; meanwhile puts: {everywhere:?}, deletes: {deleted:?}"
    ));
    let seen = Fault {
        fault: 30,
        kind: scene.name.to_owned(),
        with: None,
        seen: format!("{LEFT_BYTES} bytes free"),
        nodes: vec![Cluster::name(poor)],
        from: 0,
        to: lasted.as_nanos() as u64,
        gap_ms: 0,
    };
    let told = Told {
        end: None,
        seen: vec![seen],
        figures: serde_json::Map::new(),
        short: Vec::new(),
    };
    Ok(told
        .figure("refused_after_ms", refused.as_millis() as u64)
        .figure("taken_again_after_ms", taken.as_millis() as u64)
        .shows(
            everywhere.iter().all(|reply| *reply == Reply::OutOfMemory),
            format!("puts on the three nodes: {everywhere:?}"),
        )
        .shows(
            deleted.iter().all(|reply| *reply == Reply::Deleted),
            format!("deletes on the three nodes: {deleted:?}"),
        )
        .shows(
            named.contains("disk"),
            format!("the status says nothing of disks: {named}"),
        ))
}

/// Nothing can be written to a part of a node's folder.
pub(super) fn hard(scene: &Scene) -> Result<Told> {
    let mut cluster = Cluster::start(scene.plan.clone())?;
    let args = &scene.args;
    let told = told::Told::begin(&cluster, scene.name, args.seed, &args.profile, 3)?;
    let mut seen = Vec::new();
    for (part, leads) in [
        ("log", true),
        ("log", false),
        ("state", false),
        ("snapshots", true),
    ] {
        told.wait_for_answers(&cluster, 200)?;
        let leader = cluster.leader(&[0, 1, 2])?;
        let node = if leads { leader } else { (leader + 1) % NODES };
        for operation in ["write", "create"] {
            let rule = format!("on {operation} fail ENOSPC path={part}/*");
            cluster.disk(node).tell(&rule)?;
        }
        let begin = Instant::now();
        within("a write to fail", ENDS_WITHIN, || {
            if part != "log" {
                // What the state needs is written now and then; a snapshot needs it now.
                let _ = post(cluster.admin(node), "/v1/snapshot");
            }
            Ok(cluster.disk(node).strikes()? > 0)
        })?;
        told.node(node, NodeEvent::DiskFailed);
        told.broken(30, &format!("ENOSPC on {part}"), &[node]);
        let status = cluster.wait_for_end(node, ENDS_WITHIN);
        let ended = begin.elapsed();
        let role = if leads { "leader" } else { "follower" };
        match status {
            Ok(status) => {
                told.node(node, NodeEvent::Killed);
                let log = cluster.log(node);
                let last = log.lines().last().unwrap_or_default().to_owned();
                scene.say(format!(
                    "ENOSPC on {part} of the {role}: {status} after {ended:?}: {last}"
                ));
                seen.push((part, role, status.code(), last));
                told.wait_for_answers(&cluster, 100)?;
                returns(&mut cluster, &told, node, 30)?;
            }
            Err(error) => {
                scene.say(format!("ENOSPC on {part} of the {role}: it goes on"));
                cluster.disk(node).tell("off all")?;
                told.node(node, NodeEvent::Started);
                told.mended(30, "room again", &[node]);
                seen.push((part, role, None, format!("{error:#}")));
            }
        }
    }
    told.wait_for_answers(&cluster, 100)?;
    let mut result = Told::of(told.end(&cluster)?);
    for (part, role, code, last) in seen {
        result = result
            .figure(&format!("{part}_{role}_exit_code"), code)
            .figure(&format!("{part}_{role}_last_line"), last.clone())
            .shows(
                code == Some(74),
                format!("ENOSPC on {part} of the {role}: {code:?}: {last}"),
            );
    }
    Ok(result)
}
