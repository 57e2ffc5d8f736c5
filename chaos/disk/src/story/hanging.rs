//! A disk that hangs.

use std::time::{Duration, Instant};

use anyhow::Result;
use trellis_checker::history::NodeEvent;

use super::{
    Scene, Told,
    cluster::{Cluster, NODES},
    stopping::returns,
    told, within,
};

/// How long the disk hangs, in seconds.
const HANGS_S: u64 = 30;

/// A leader whose log can't be written for so long hands leadership on (architecture, section 10, rule 7: 2 s, and an
/// election).
const MOVES_WITHIN: Duration = Duration::from_secs(8);

/// The leader's fsyncs hang for 30 s.
pub(super) fn leader(scene: &Scene) -> Result<Told> {
    let mut cluster = Cluster::start(scene.plan.clone())?;
    let args = &scene.args;
    let told = told::Told::begin(&cluster, scene.name, args.seed, &args.profile, 1)?;
    told.wait_for_answers(&cluster, 200)?;
    let leader = cluster.leader(&[0, 1, 2])?;
    let others: Vec<usize> = (0..NODES).filter(|node| *node != leader).collect();
    let begin = Instant::now();
    cluster
        .disk(leader)
        .tell(&format!("on sync hang {HANGS_S} path=log/*"))?;
    within("a sync to hang", Duration::from_secs(10), || {
        Ok(cluster.disk(leader).strikes()? > 0)
    })?;
    told.broken(28, "fsync hangs", &[leader]);
    let moved = within("leadership to move", MOVES_WITHIN + MOVES_WITHIN, || {
        let said = trellis_tests::stats(cluster.clients(others[0]));
        let other = trellis_tests::stats(cluster.clients(others[1]));
        let leads = |stats: &std::io::Result<std::collections::BTreeMap<String, String>>| {
            stats
                .as_ref()
                .is_ok_and(|it| it.get("trellis-node") == it.get("trellis-leader"))
        };
        Ok(leads(&said) || leads(&other))
    })?;
    let served = told.wait_for_answers(&cluster, 100)?;
    let red = within(
        "the node's health to be red",
        Duration::from_secs(20),
        || Ok(!cluster.is_ready(leader)),
    )?;
    let red_after = begin.elapsed();
    scene.say(format!(
        "leadership moved after {moved:?}; 100 answers {served:?} later; not ready {red:?} later ({red_after:?} after the first hang)"
    ));
    // A process whose thread hangs in the kernel is gone only when that lets go.
    let status = cluster.wait_for_end(leader, Duration::from_secs(HANGS_S + 20))?;
    let ended_after = begin.elapsed();
    told.node(leader, NodeEvent::Killed);
    let last = cluster
        .log(leader)
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned();
    scene.say(format!(
        "node {leader} ended after {ended_after:?}: {status}: {last}"
    ));
    returns(&mut cluster, &told, leader, 28)?;
    told.wait_for_answers(&cluster, 100)?;
    let end = told.end(&cluster)?;
    Ok(Told::of(end)
        .figure("hangs_s", HANGS_S)
        .figure("leadership_moved_after_ms", moved.as_millis() as u64)
        .figure("not_ready_after_ms", red_after.as_millis() as u64)
        .figure("ended_after_ms", ended_after.as_millis() as u64)
        .figure("ended_with", status.to_string())
        .figure("last_line", last)
        .shows(
            moved <= MOVES_WITHIN,
            format!("leadership took {moved:?} to move"),
        ))
}
