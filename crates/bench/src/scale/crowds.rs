//! Many tubes, many waiting connections.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, bail};
use trellis_types::TubeName;
use trellis_wire::beanstalk::{Reply, Request};

use super::Ground;
use super::client::{Client, each};
use super::cluster::{closed, growth, largest, wait_until};
use super::verdict::{Verdict, bytes};
use crate::pair::median;
use crate::plan::{Load, Mix};

/// Names on a watch list, below the bound that Trellis has for it.
const WATCHED_EACH: usize = 1_000;

/// Puts into many tubes in turn against puts into one, each after a `use`.
pub(super) fn tubes(ground: &Ground) -> anyhow::Result<Vec<Verdict>> {
    let count = ground.args.tubes;
    let cluster = ground.cluster("tubes", &[])?;
    // Workers watch all of them on every node, as they would.
    let lists: Vec<Vec<TubeName>> = (0..count)
        .collect::<Vec<_>>()
        .chunks(WATCHED_EACH)
        .map(|chunk| chunk.iter().map(|number| roamed(*number)).collect())
        .collect::<anyhow::Result<_>>()?;
    let begun = std::time::Instant::now();
    let watching = each(&cluster.targets(), |index, _| {
        let target = cluster
            .targets()
            .get(index)
            .cloned()
            .context("no such node")?;
        let mut workers = Vec::new();
        for list in &lists {
            let mut worker = Client::open(&target)?;
            let watches = list.iter().map(|tube| Request::Watch(tube.clone()));
            worker.ask_all(watches, |reply| match reply {
                Reply::Watching(_) => Ok(()),
                other => bail!("a watch is answered with {other:?}"),
            })?;
            workers.push(worker);
        }
        Ok(workers)
    })?;
    let made = begun.elapsed();
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..3 {
        for (roam, figures) in [1, count].into_iter().zip(&mut rounds) {
            let load = Load {
                roam,
                ..closed(Mix::Put, 256, 3.0)
            };
            figures.push(cluster.load(&load)?);
        }
    }
    drop(watching);
    let [one, many] = rounds
        .each_ref()
        .map(|figures| median(figures, |it| it.per_second));
    let ratio = many / one;
    Ok(vec![
        Verdict::told(
            format!("{count} tubes watched on every node: until all stood"),
            format!("{:.1} s", made.as_secs_f64()),
        ),
        Verdict::new(
            format!("use and put, 256 connections: rate with {count} tubes / with 1"),
            format!("{ratio:.2} ({many:.0}/s and {one:.0}/s)"),
            "at least 0.8",
            ratio >= 0.8,
        ),
    ])
}

fn roamed(number: usize) -> anyhow::Result<TubeName> {
    Ok(TubeName::parse(format!("roam-{number}").as_bytes())?)
}

/// Connections that wait in reserve while nothing happens.
pub(super) fn waiting(ground: &Ground) -> anyhow::Result<Vec<Verdict>> {
    const SECONDS: f64 = 10.0;

    let count = ground.args.waiting;
    let cluster = ground.cluster("waiting", &[])?;
    let targets = cluster.targets();
    let watch = || {
        let (cpu, written) = (cluster.cpu(), cluster.written());
        std::thread::sleep(Duration::from_secs_f64(SECONDS));
        let cores: Vec<f64> = growth(&cpu, &cluster.cpu())
            .iter()
            .map(|seconds| seconds / SECONDS)
            .collect();
        (cores, growth(&written, &cluster.written()))
    };
    std::thread::sleep(Duration::from_secs(2));
    let (cores_before, _) = watch();
    let rss = cluster.rss();

    let mut streams = Vec::with_capacity(count);
    for target in targets.iter().cycle().take(count) {
        let mut stream = TcpStream::connect(target)
            .with_context(|| format!("connection {} of {count}", streams.len() + 1))?;
        stream.write_all(b"reserve\r\n")?;
        streams.push(stream);
    }
    let first = targets.first().context("no node")?;
    let mut client = Client::open(first)?;
    wait_until("all wait", Duration::from_secs(60), || {
        let waiting = client.stat(None, "current-waiting")?;
        Ok(if waiting == count as u64 {
            Ok(())
        } else {
            Err(format!("current-waiting: {waiting}"))
        })
    })?;
    drop(client);
    std::thread::sleep(Duration::from_secs(3));
    let (cores, written) = watch();
    let each = largest(&growth(&rss, &cluster.rss())) / (count as f64 / targets.len() as f64);
    let percent = |cores: &[f64]| 100.0 * largest(cores);
    let all = 100.0 * cores.iter().sum::<f64>();
    let disk: f64 = written.iter().sum();
    Ok(vec![
        Verdict::new(
            format!("{count} connections wait: CPU of the busiest node over 10 s"),
            format!(
                "{:.1} % of a core ({all:.1} % all nodes; {:.1} % without connections)",
                percent(&cores),
                percent(&cores_before)
            ),
            "at most 2 %",
            percent(&cores) <= 2.0,
        ),
        Verdict::new(
            format!("{count} connections wait: memory for each"),
            bytes(each),
            "at most 20 KiB",
            each <= 20.0 * 1024.0,
        ),
        Verdict::new(
            format!("{count} connections wait: bytes written in 10 s"),
            bytes(disk),
            "nothing",
            disk == 0.0,
        ),
    ])
}
