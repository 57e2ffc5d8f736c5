//! What others feel while something large happens.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use trellis_types::TubeName;
use trellis_wire::beanstalk::{Reply, Request};

use super::Ground;
use super::client::{Client, put_many};
use super::cluster::{Cluster, others, p99, wait_until};
use super::verdict::Verdict;
use crate::figures::Figures;
use crate::table;

/// Seconds of calm, and of a storm; it breaks this long after the beginning.
const SECONDS: f64 = 10.0;
const LULL: Duration = Duration::from_secs(2);
/// After many puts the disk's side comes to rest before a calm is measured: else it is none, and flatters the storm.
const REST: Duration = Duration::from_secs(6);
/// The whole of it may take so long.
const STORM_MAX: Duration = Duration::from_secs(120);
/// Seconds for which a job of the kick is delayed: longer than the benchmark takes.
const LONG: u32 = 36_000;

/// Many jobs falling due at once, kicked at once, and a snapshot of them all.
pub(super) fn storms(ground: &Ground) -> anyhow::Result<Vec<Verdict>> {
    let count = ground.args.storm;
    let cluster = ground.cluster("storms", &[])?;
    let targets = cluster.targets();
    let first = targets.first().context("no node")?.clone();
    let body = Bytes::from_static(&[b'x'; 64]);
    let mut verdicts = Vec::new();

    // All fall due within the second that begins at `due`: as far ahead as putting them may take.
    let tube = TubeName::parse(b"due")?;
    let ahead = 26 + count / 15_000;
    let begun = Instant::now();
    let delay = || u32::try_from(ahead.saturating_sub(begun.elapsed().as_secs())).unwrap_or(1);
    put_many(&targets, &tube, count, &body, delay)?;
    let due = begun + Duration::from_secs(ahead);
    std::thread::sleep(REST);
    ensure!(
        due.saturating_duration_since(Instant::now()).as_secs_f64() > SECONDS + 6.0,
        "putting the jobs took so long that they are due already"
    );
    let calm = cluster.load(&others(SECONDS))?;
    std::thread::sleep(due.saturating_duration_since(Instant::now() + LULL));
    let (during, took) = in_storm(&cluster, Duration::ZERO, || {
        let mut client = Client::open(&first)?;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        wait_until("all are ready", STORM_MAX, || {
            let ready = client.stat(Some(&tube), "current-jobs-ready")?;
            Ok(if ready == count {
                Ok(())
            } else {
                Err(format!("{ready} of {count}"))
            })
        })
    })?;
    verdicts.push(verdict(
        &format!("{count} delayed jobs fall due in one second"),
        &calm,
        &during,
        took,
    )?);

    let tube = TubeName::parse(b"kick")?;
    put_many(&targets, &tube, count, &body, || LONG)?;
    std::thread::sleep(REST);
    let calm = cluster.load(&others(SECONDS))?;
    let (during, took) = in_storm(&cluster, LULL, || {
        let mut client = Client::open(&first)?;
        client.ask(Request::Use(tube.clone()))?;
        let begun = Instant::now();
        let mut kicked = 0;
        while kicked < count {
            let bound = u32::try_from(count - kicked).unwrap_or(u32::MAX);
            match client.ask(Request::Kick { bound })? {
                Reply::Kicked(number) if number > 0 => kicked += u64::from(number),
                other => anyhow::bail!("after {kicked} a kick is answered with {other:?}"),
            }
        }
        Ok(begun.elapsed())
    })?;
    verdicts.push(verdict(&format!("kick of {count}"), &calm, &during, took)?);

    std::thread::sleep(REST);
    let calm = cluster.load(&others(SECONDS))?;
    let (during, took) = in_storm(&cluster, LULL, || {
        let begun = Instant::now();
        // All at once, each asked until it is written.
        std::thread::scope(|scope| {
            let ask = |node| cluster.post(node, "/v1/snapshot?wait=true");
            let asked: Vec<_> = (0..cluster.nodes())
                .map(|node| scope.spawn(move || ask(node)))
                .collect();
            for asked in asked {
                let said = asked
                    .join()
                    .map_err(|_| anyhow::anyhow!("a thread died that asked for a snapshot"))??;
                ensure!(said.contains("is written"), "a snapshot: {said}");
            }
            Ok(begun.elapsed())
        })
    })?;
    verdicts.push(verdict(
        &format!("each node makes a snapshot of {} jobs", 2 * count),
        &calm,
        &during,
        took,
    )?);
    Ok(verdicts)
}

/// What others see while `storm` happens, `after` the beginning, and how long it took.
fn in_storm(
    cluster: &Cluster,
    after: Duration,
    storm: impl FnOnce() -> anyhow::Result<Duration> + Send,
) -> anyhow::Result<(Figures, Duration)> {
    std::thread::scope(|scope| {
        let storm = scope.spawn(move || {
            std::thread::sleep(after);
            storm()
        });
        let figures = cluster.load(&others(SECONDS));
        let took = storm
            .join()
            .map_err(|_| anyhow::anyhow!("the storm's thread died"))?;
        Ok((figures?, took?))
    })
}

fn verdict(
    what: &str,
    calm: &Figures,
    during: &Figures,
    took: Duration,
) -> anyhow::Result<Verdict> {
    let ratio = p99(during)? / p99(calm)?;
    let worst = table::main_latency(during).map_or(f64::NAN, |it| it.max_us);
    Ok(Verdict::new(
        format!("{what}: put p99 of others / calm"),
        format!(
            "{ratio:.2} ({} and {}; worst {}; it took {:.2} s)",
            table::duration(p99(during)?),
            table::duration(p99(calm)?),
            table::duration(worst),
            took.as_secs_f64()
        ),
        "at most 1.5",
        ratio <= 1.5,
    ))
}

/// Leadership handed over under load, three times.
pub(super) fn transfer(ground: &Ground) -> anyhow::Result<Vec<Verdict>> {
    let cluster = ground.cluster("transfer", &[])?;
    let mut gaps = Vec::new();
    for _ in 0..3 {
        let (during, _) = in_storm(&cluster, Duration::from_secs(3), || {
            let begun = Instant::now();
            cluster.post(0, "/v1/transfer-leader")?;
            Ok(begun.elapsed())
        })?;
        gaps.push(table::main_latency(&during).map_or(f64::NAN, |it| it.max_us));
    }
    gaps.sort_by(f64::total_cmp);
    let median = gaps.get(1).copied().unwrap_or(f64::NAN);
    let all: Vec<String> = gaps.iter().map(|gap| table::duration(*gap)).collect();
    Ok(vec![Verdict::new(
        "leadership handed over under 500 puts/s, no operation failed: the slowest put",
        format!("median {} of {}", table::duration(median), all.join(", ")),
        "at most 100 ms",
        median <= 100_000.0,
    )])
}
