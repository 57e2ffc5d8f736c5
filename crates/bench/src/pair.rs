//! Two servers in turn, so that what else the machine does strikes both alike.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::figures::Figures;
use crate::plan::{Load, Plan, report_failures};
use crate::{drive, table};

/// `trellis-bench pair`
#[derive(Debug, Args)]
pub(crate) struct PairArgs {
    /// The first server: host:port, or several with commas between them.
    #[arg(long)]
    a: String,
    /// The second one; ratios are B to A.
    #[arg(long)]
    b: String,
    /// How often each is measured, in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[command(flatten)]
    load: Load,
    /// Write the figures of all rounds as JSON into this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Measures A B A B … and prints every round, the medians and their ratio. False if an operation failed.
pub(crate) fn run(args: &PairArgs) -> anyhow::Result<bool> {
    let plans = [("A", &args.a), ("B", &args.b)].map(|(name, target)| {
        Plan::new(std::slice::from_ref(target), &args.load, &[]).map(|plan| (name, plan))
    });
    let [a, b] = plans;
    let plans = [a?, b?];

    let mut sound = true;
    let mut rounds: [Vec<Figures>; 2] = Default::default();
    for _ in 0..args.rounds.max(1) {
        for ((name, plan), figures) in plans.iter().zip(&mut rounds) {
            let found = drive::run(plan)?;
            println!("{name} {:.0}/s  {}", found.per_second, table::cpu(&found));
            sound &= report_failures(&found);
            figures.push(found);
        }
    }

    let rows = ["A", "B"].into_iter().zip(&rounds).map(|(name, figures)| {
        let mut row = vec![name.to_owned()];
        row.extend(median_cells(figures));
        row
    });
    print!(
        "{}",
        table::grid(&["", "per second", "p50", "p99", "p99.9"], rows)
    );
    let [of_a, of_b] = rounds
        .each_ref()
        .map(|figures| median(figures, |it| it.per_second));
    println!("B/A: {:.2}", of_b / of_a);
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&rounds)?)
            .with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(sound)
}

/// Medians over the rounds: operations per second, p50, p99, p99.9 of the whole operation.
pub(crate) fn median_cells(rounds: &[Figures]) -> Vec<String> {
    let latency = |pick: fn(&crate::figures::Latency) -> f64| {
        table::duration(median(rounds, |it| {
            table::main_latency(it).map_or(f64::NAN, pick)
        }))
    };
    vec![
        format!("{:.0}", median(rounds, |it| it.per_second)),
        latency(|it| it.p50_us),
        latency(|it| it.p99_us),
        latency(|it| it.p999_us),
    ]
}

/// The median of a figure; with an even number of rounds the lower of the middle two. NaN if there is none.
pub(crate) fn median(rounds: &[Figures], pick: impl Fn(&Figures) -> f64) -> f64 {
    let mut all: Vec<f64> = rounds.iter().map(pick).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(f64::NAN)
}
