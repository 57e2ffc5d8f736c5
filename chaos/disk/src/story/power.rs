//! Power cuts.

use std::thread;

use anyhow::Result;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::json;
use trellis_checker::history::NodeEvent;

use super::{
    Scene, Told,
    cluster::{Cluster, NODES},
    stopping::post,
    told,
};

/// The power of `count` nodes goes at once, as often as asked for; what survives of unsynced bytes differs by round.
pub(super) fn cut(scene: &Scene, count: usize, profile: &str) -> Result<Told> {
    let mut chance = StdRng::seed_from_u64(scene.args.seed);
    let mut cluster = Cluster::start(scene.plan.clone())?;
    let args = &scene.args;
    let faults = u64::from(args.rounds);
    let told = told::Told::begin(&cluster, scene.name, args.seed, profile, faults)?;
    let (mut bytes, mut kept, mut names, mut slowest) = (0, 0, 0, 0);
    for round in 1..=args.rounds {
        told.wait_for_answers(&cluster, 300)?;
        let mut victims: Vec<usize> = (0..NODES).collect();
        victims.shuffle(&mut chance);
        victims.truncate(count);
        // So that something is under way when the power goes: a sync takes a moment, as it does on real disks.
        for node in &victims {
            cluster.disk(*node).tell("on sync delay 15")?;
        }
        // Every other time a snapshot is being made, so that files and names are under way, too.
        if round % 2 == 0 {
            let rule = ["names strict", "names journal"][round as usize / 2 % 2];
            for node in &victims {
                cluster.disk(*node).tell(rule)?;
                let admin = cluster.admin(*node);
                // It dies with its node.
                thread::spawn(move || post(admin, "/v1/snapshot"));
            }
        }
        told.wait_for_answers(&cluster, chance.random_range(10..40))?;
        let keep = ["nothing", "prefix", "pages"][round as usize % 3];
        let first = ["nothing", "prefix"][round as usize / 2 % 2];
        let how = format!("keep={keep} names={first}");
        let lost = cluster.cut_power(&victims, &how, chance.random())?;
        for node in &victims {
            told.node(*node, NodeEvent::Killed);
        }
        told.broken(31, "power cut", &victims);
        for lost in &lost {
            bytes += lost["bytes"].as_u64().unwrap_or_default();
            kept += lost["bytes_kept"].as_u64().unwrap_or_default();
            names += lost["names"].as_u64().unwrap_or_default();
        }
        victims.shuffle(&mut chance);
        for node in &victims {
            cluster.start_node(*node)?;
        }
        let took = cluster.wait_until_ready(&victims)?;
        slowest = slowest.max(took.as_millis() as u64);
        for node in &victims {
            told.node(*node, NodeEvent::Started);
        }
        told.mended(31, "power cut", &victims);
        scene.say(format!(
            "round {round}: nodes {victims:?}, {how}: lost {}; ready after {} ms",
            json!(lost),
            took.as_millis()
        ));
    }
    told.wait_for_answers(&cluster, 100)?;
    let end = told.end(&cluster)?;
    Ok(Told::of(end)
        .figure("power_cuts", args.rounds)
        .figure("nodes_at_once", count)
        .figure("unsynced_bytes_lost", bytes)
        .figure("unsynced_bytes_that_survived", kept)
        .figure("unsynced_names_lost", names)
        .figure("slowest_ready_ms", slowest)
        .shows(
            bytes + names > 0,
            "no power cut took anything: nothing was shown",
        ))
}

/// Shows that the instrument sees what it is for: disks that lie about syncs lose acknowledged jobs in a power cut.
pub(super) fn lies(scene: &Scene) -> Result<Told> {
    let mut cluster = Cluster::start(scene.plan.clone())?;
    let args = &scene.args;
    let told = told::Told::begin(&cluster, scene.name, args.seed, &args.profile, 1)?;
    told.wait_for_answers(&cluster, 300)?;
    let all: Vec<usize> = (0..NODES).collect();
    for node in &all {
        cluster.disk(*node).tell("on sync lie")?;
    }
    told.wait_for_answers(&cluster, 300)?;
    let mut lies = 0;
    for node in &all {
        lies += cluster.disk(*node).strikes()?;
    }
    let lost = cluster.cut_power(&all, "keep=nothing", 1)?;
    told.broken(31, "power cut of disks that lied", &all);
    for node in &all {
        told.node(*node, NodeEvent::Killed);
        cluster.start_node(*node)?;
    }
    cluster.wait_until_ready(&all)?;
    for node in &all {
        told.node(*node, NodeEvent::Started);
    }
    told.wait_for_answers(&cluster, 100)?;
    let end = told.end(&cluster)?;
    let first = end.verdict.first().map(|it| format!("{it:?}"));
    Ok(Told::of(end)
        .figure("lies", lies)
        .figure("lost", json!(lost))
        .figure("found_broken", json!(first))
        .shows(lies > 0, "no sync lied"))
}
