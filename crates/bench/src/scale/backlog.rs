//! Many jobs: what they take, and how long a restart does.

use std::time::Duration;

use bytes::Bytes;
use trellis_types::TubeName;

use super::Ground;
use super::client::{Client, delete_many, put_many};
use super::cluster::{growth, largest};
use super::progress::Progress;
use super::verdict::{Verdict, bytes};

/// How long the disk's side may take to come to rest before memory is looked at.
const SETTLE: Duration = Duration::from_secs(8);
/// What the smaller of two bars is set for.
pub(super) const MILLION: u64 = 1_000_000;
/// Bytes of a small job.
const BODY: &[u8] = &[b'x'; 256];

/// Ready jobs: memory for each, and from start to serving with all of them.
pub(super) fn ready(ground: &Ground) -> anyhow::Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    if ground.args.jobs > MILLION {
        verdicts.extend(ready_of(ground, MILLION)?);
        ground.site.clear()?;
    }
    verdicts.extend(ready_of(ground, ground.args.jobs)?);
    Ok(verdicts)
}

fn ready_of(ground: &Ground, count: u64) -> anyhow::Result<Vec<Verdict>> {
    let mut cluster = ground.cluster("ready", &[])?;
    let tube = TubeName::parse(b"ready")?;
    let before = cluster.rss();
    let begun = std::time::Instant::now();
    put_many(
        &cluster.targets(),
        &tube,
        count,
        &Bytes::from_static(BODY),
        || 0,
    )?;
    let filled = begun.elapsed();
    std::thread::sleep(SETTLE);
    let each = largest(&growth(&before, &cluster.rss())) / count as f64;

    cluster.stop();
    let stopped = cluster.start_again()?;
    let after_restart = largest(&cluster.rss()) / count as f64;
    cluster.kill();
    let killed = cluster.start_again()?;
    let found = ready_in(&cluster.targets(), &tube)?;
    anyhow::ensure!(
        found == count,
        "{found} of {count} jobs are there after two restarts"
    );

    let bar = 3.0 * (count as f64 / 1e6).max(1.0);
    let restart = |how: &str, took: Duration| {
        Verdict::new(
            format!("{count} ready jobs: all nodes {how}, from start to a put on each"),
            format!("{:.2} s", took.as_secs_f64()),
            format!("at most {bar:.0} s"),
            took.as_secs_f64() <= bar,
        )
    };
    Ok(vec![
        Verdict::told(
            format!("{count} puts over 3 connections"),
            format!("{:.0}/s", count as f64 / filled.as_secs_f64()),
        ),
        Verdict::new(
            format!("{count} ready 256-byte jobs: memory that a node took for each"),
            format!("{each:.0} B (the whole process after a restart: {after_restart:.0} B)"),
            "at most 200 B",
            each <= 200.0,
        ),
        restart("stopped", stopped),
        restart("killed", killed),
    ])
}

fn ready_in(targets: &[String], tube: &TubeName) -> anyhow::Result<u64> {
    let first = targets.first().map(String::as_str).unwrap_or_default();
    Client::open(first)?.stat(Some(tube), "current-jobs-ready")
}

/// Memory after many jobs came and went.
pub(super) fn gone(ground: &Ground) -> anyhow::Result<Vec<Verdict>> {
    let count = ground.args.gone;
    let portion = (count / 10).max(1);
    let cluster = ground.cluster("gone", &[])?;
    let progress = Progress::towards(count, "jobs put and deleted");
    let targets = cluster.targets();
    let tube = TubeName::parse(b"gone")?;
    std::thread::sleep(Duration::from_secs(2));
    let fresh = largest(&cluster.rss());
    let mut warm = fresh;
    for round in 0..10 {
        let jobs = put_many(&targets, &tube, portion, &Bytes::from_static(BODY), || 0)?;
        delete_many(&targets, &jobs)?;
        progress.add(portion);
        if round == 0 {
            warm = largest(&cluster.rss());
        }
    }
    std::thread::sleep(SETTLE);
    let after = largest(&cluster.rss());
    Ok(vec![Verdict::new(
        format!("{count} jobs put and deleted, {portion} at a time: memory of the largest node"),
        format!(
            "{} before, {} after the first tenth, {} after all: {:.2} × the beginning, {:.2} × the first tenth",
            bytes(fresh),
            bytes(warm),
            bytes(after),
            after / fresh,
            after / warm
        ),
        "at most 1.2 × the beginning",
        after <= 1.2 * fresh,
    )])
}
