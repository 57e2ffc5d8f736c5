use serde::Serialize;

use super::peer::Peer;
use super::task::Task;
use crate::disk;
use crate::figures::{Figures, Latency};
use crate::pair::median;
use crate::table;

/// A peer and Trellis in turn under one load.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    #[serde(serialize_with = "as_text")]
    pub(crate) task: Task,
    pub(crate) peer: Peer,
    /// The disk just before.
    pub(crate) disk: disk::Sync,
    pub(crate) of_peer: Vec<Figures>,
    pub(crate) of_trellis: Vec<Figures>,
    /// CPU that each used while the other was loaded, in cores.
    pub(crate) idle_peer_cores: f64,
    pub(crate) idle_trellis_cores: f64,
    /// Calls that make data durable, per 1,000 operations, of all processes; `None` if it was not counted.
    pub(crate) syncs_of_peer: Option<f64>,
    pub(crate) syncs_of_trellis: Option<f64>,
    pub(crate) trellis_nodes: u16,
}

impl Measured {
    /// Nothing measured yet.
    pub(crate) fn new(task: Task, peer: Peer, disk: disk::Sync, trellis_nodes: u16) -> Self {
        Self {
            task,
            peer,
            disk,
            of_peer: Vec::new(),
            of_trellis: Vec::new(),
            idle_peer_cores: f64::NAN,
            idle_trellis_cores: f64::NAN,
            syncs_of_peer: None,
            syncs_of_trellis: None,
            trellis_nodes,
        }
    }

    /// True if no operation failed.
    pub(crate) fn sound(&self) -> bool {
        self.of_peer
            .iter()
            .chain(&self.of_trellis)
            .all(|figures| figures.failed == 0)
    }

    /// Trellis' rate to the peer's: the median over the pairs of rounds. `None` if an operation failed.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let mut ratios: Vec<f64> = self
            .of_peer
            .iter()
            .zip(&self.of_trellis)
            .map(|(peer, trellis)| trellis.per_second / peer.per_second)
            .collect();
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.get(ratios.len().saturating_sub(1) / 2).copied();
        middle.filter(|_| self.sound())
    }

    pub(crate) fn trellis_p50(&self) -> f64 {
        median(&self.of_trellis, |it| {
            table::main_latency(it).map_or(f64::NAN, |it| it.p50_us)
        })
    }

    pub(crate) fn trellis_put_p50(&self) -> f64 {
        median(&self.of_trellis, |it| {
            it.latency.get("put").map_or(f64::NAN, |it| it.p50_us)
        })
    }

    pub(crate) fn trellis_syncs_per_node(&self) -> Option<f64> {
        Some(self.syncs_of_trellis? / f64::from(self.trellis_nodes))
    }
}

/// One server's line of the table.
pub(crate) fn row(
    measured: &Measured,
    name: &str,
    figures: &[Figures],
    syncs: Option<f64>,
    ratio: String,
) -> Vec<String> {
    let failed: u64 = figures.iter().map(|it| it.failed).sum();
    if failed > 0 {
        let mut row = vec![measured.task.to_string(), name.to_owned()];
        row.push(format!("{failed} FAILED"));
        return row;
    }
    let latency = |pick: fn(&Latency) -> f64| {
        table::duration(median(figures, |it| {
            table::main_latency(it).map_or(f64::NAN, pick)
        }))
    };
    let per_thousand = |it: &Figures| {
        let cores = it.server_cpu_cores.unwrap_or(f64::NAN);
        cores * it.seconds / it.operations as f64 * 1000.0
    };
    let rss = |it: &Figures| it.server_rss_bytes.map_or(f64::NAN, |bytes| bytes as f64);
    vec![
        measured.task.to_string(),
        name.to_owned(),
        format!("{:.0}", median(figures, |it| it.per_second)),
        ratio,
        latency(|it| it.p50_us),
        latency(|it| it.p99_us),
        latency(|it| it.p999_us),
        syncs.map_or_else(|| "-".to_owned(), |it| format!("{it:.1}")),
        format!("{:.3} s", median(figures, per_thousand)),
        format!("{:.0} MiB", median(figures, rss) / f64::from(1 << 20)),
        format!("{:.0} %", 100.0 * client_share(figures)),
        format!(
            "{} / {}",
            table::duration(measured.disk.p50_us),
            table::duration(measured.disk.p99_us)
        ),
        format!("{:.1}", median(figures, |it| it.load_average)),
    ]
}

/// How much of a core the client's busiest thread took.
pub(crate) fn client_share(figures: &[Figures]) -> f64 {
    median(figures, |it| {
        it.own_cpu_by_thread.iter().copied().fold(0.0, f64::max)
    })
}

/// What [`row`] is under.
pub(crate) const HEAD: &[&str] = &[
    "load",
    "server",
    "per second",
    "Trellis is",
    "p50",
    "p99",
    "p99.9",
    "fsyncs per 1,000",
    "CPU per 1,000",
    "RSS",
    "client thread",
    "fdatasync p50 / p99",
    "load average",
];

fn as_text<S: serde::Serializer>(task: &Task, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(task)
}
