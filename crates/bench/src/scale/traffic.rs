//! Large bodies, and small jobs for minutes.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use trellis_types::TubeName;

use super::Ground;
use super::client::put_many;
use super::cluster::{closed, growth, largest};
use super::progress::Progress;
use super::verdict::{Verdict, bytes};
use crate::plan::{Load, Mix};
use crate::table;

/// The largest body that the settings allow by default, and a very large one.
const LARGE: usize = 65_535;
const VERY_LARGE: usize = 16 << 20;

/// Put, reserve and delete of large jobs.
pub(super) fn bodies(ground: &Ground) -> anyhow::Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for (size, connections, settings) in [
        (LARGE, 16, &[][..]),
        (VERY_LARGE, 4, &["body_bytes_max=67108864"][..]),
    ] {
        let cluster = ground.cluster(&format!("bodies-{size}"), settings)?;
        let load = Load {
            body_bytes: size,
            ..closed(Mix::Cycle, connections, 6.0)
        };
        let figures = cluster.load(&load)?;
        let latency = table::main_latency(&figures).context("nothing was timed")?;
        verdicts.push(Verdict::new(
            format!(
                "cycles of {} bodies, {connections} connections",
                bytes(size as f64)
            ),
            format!(
                "{:.1}/s, {}/s; p50 {}, p99 {}; largest node {}",
                figures.per_second,
                bytes(figures.per_second * size as f64),
                table::duration(latency.p50_us),
                table::duration(latency.p99_us),
                bytes(largest(&cluster.rss()))
            ),
            "no failure",
            figures.operations > 0,
        ));
    }
    Ok(verdicts)
}

/// Short jobs beside one that stays: the disk must not grow.
pub(super) fn churn(ground: &Ground) -> anyhow::Result<Vec<Verdict>> {
    const SLICE: f64 = 9.0;

    let minutes = ground.args.minutes;
    let cluster = ground.cluster("churn", &[])?;
    let tube = TubeName::parse(b"old")?;
    put_many(
        &cluster.targets(),
        &tube,
        1,
        &Bytes::from_static(&[b'x'; 256]),
        || 0,
    )?;
    let written = cluster.written();
    let begun = Instant::now();
    let (progress, mut said) = (
        Progress::towards((60.0 * minutes) as u64, "seconds of cycles"),
        0,
    );
    let (mut operations, mut sizes, mut rates) = (0.0, Vec::new(), Vec::new());
    while begun.elapsed() < Duration::from_secs_f64(60.0 * minutes) {
        let load = closed(Mix::Cycle, 64, SLICE);
        let figures = cluster.load(&load)?;
        // What was done while nothing counted was written as well.
        operations += figures.per_second * (load.seconds + load.warm_up);
        rates.push(figures.per_second);
        sizes.push(cluster.disk_bytes() as f64);
        progress.add(begun.elapsed().as_secs().saturating_sub(said));
        said = begun.elapsed().as_secs();
    }
    let per_node = largest(&growth(&written, &cluster.written()));
    let amplification = per_node / (operations * 256.0);
    let (early, late) = sizes.split_at(sizes.len() / 2);
    let (early, late) = (largest(early), largest(late));
    ensure!(
        early.is_finite() && late.is_finite(),
        "--minutes is {minutes}; two looks at the disk take at least half a minute"
    );
    Ok(vec![
        Verdict::new(
            format!(
                "{minutes} min of cycles, 64 connections, beside one old job: disk of all nodes"
            ),
            format!(
                "at most {} in the first half, {} in the second",
                bytes(early),
                bytes(late)
            ),
            "at most 1.1 × the first half",
            late <= 1.1 * early,
        ),
        Verdict::new(
            format!(
                "{operations:.0} cycles at {:.0}/s: bytes a node wrote to its disk per byte of body",
                rates.iter().sum::<f64>() / rates.len() as f64
            ),
            format!("{amplification:.2}"),
            "at most 2.5",
            amplification <= 2.5,
        ),
    ])
}
