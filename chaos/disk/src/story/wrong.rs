//! A disk that says yes and did something else.

use std::{fs, time::Duration};

use anyhow::Result;
use rand::{Rng, SeedableRng, rngs::StdRng};
use rustix::process::Signal;
use trellis_checker::history::NodeEvent;

use super::{
    Scene, Told,
    cluster::{Cluster, NODES},
    told, within,
};

/// How long a start may take to be refused.
const DECIDED_WITHIN: Duration = Duration::from_secs(30);

/// A write of a follower's log is lost, or lands a page further on; the follower is killed and started again. It may
/// not notice only if it is none the worse for it.
pub(super) fn lost_write(scene: &Scene) -> Result<Told> {
    let mut chance = StdRng::seed_from_u64(scene.args.seed);
    let mut cluster = Cluster::start(scene.plan.clone())?;
    let args = &scene.args;
    let rounds = args.rounds.min(6);
    let told = told::Told::begin(
        &cluster,
        scene.name,
        args.seed,
        &args.profile,
        u64::from(rounds),
    )?;
    let (mut refused, mut sound, mut lines) = (0, 0, Vec::new());
    for round in 0..rounds {
        told.wait_for_answers(&cluster, 200)?;
        let leader = cluster.leader(&[0, 1, 2])?;
        let node = (leader + 1) % NODES;
        let effect = ["lose", "misdirect"][round as usize % 2];
        let rule = format!(
            "on write {effect} path=log/*.segment times=1 after={}",
            chance.random_range(0..40)
        );
        cluster.disk(node).tell(&rule)?;
        within("a write to go wrong", DECIDED_WITHIN, || {
            Ok(cluster.disk(node).strikes()? > 0)
        })?;
        told.broken(36, &rule, &[node]);
        // Sound writes follow, so that it is no torn tail.
        told.wait_for_answers(&cluster, 200)?;
        cluster.signal(node, Signal::KILL);
        cluster.wait_for_end(node, DECIDED_WITHIN)?;
        told.node(node, NodeEvent::Killed);
        cluster.disk(node).tell("off all")?;
        cluster.start_node(node)?;
        match cluster.wait_until_ready(&[node]) {
            Ok(_) => sound += 1,
            Err(error) => {
                let last = cluster
                    .log(node)
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .to_owned();
                scene.say(format!("{rule}: {last}"));
                if cluster.wait_for_end(node, DECIDED_WITHIN).is_err()
                    && !last.starts_with("trellis: ")
                {
                    return Err(error);
                }
                refused += 1;
                lines.push(last);
                // What the message says: an empty folder, and it joins anew.
                for item in fs::read_dir(cluster.disk(node).path())? {
                    let path = item?.path();
                    match path.is_dir() {
                        true => fs::remove_dir_all(path)?,
                        false => fs::remove_file(path)?,
                    }
                }
                cluster.start_node(node)?;
                cluster.wait_until_ready(&[node])?;
            }
        }
        told.node(node, NodeEvent::Started);
        told.mended(36, &rule, &[node]);
    }
    told.wait_for_answers(&cluster, 100)?;
    let end = told.end(&cluster)?;
    Ok(Told::of(end)
        .figure("writes_gone_wrong", rounds)
        .figure("starts_refused", refused)
        .figure("starts_none_the_worse", sound)
        .figure("lines", lines))
}
