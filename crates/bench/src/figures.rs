//! What a run found, as it is reported.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::plan::Mix;

/// The figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) targets: Vec<String>,
    pub(crate) mix: Mix,
    pub(crate) connections: usize,
    pub(crate) depth: usize,
    pub(crate) body_bytes: usize,
    pub(crate) tubes: usize,
    /// Operations per second that were asked for; `None` for a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) warm_up_seconds: f64,
    pub(crate) seconds: f64,
    /// Operations that ended inside the measured time.
    pub(crate) operations: u64,
    pub(crate) per_second: f64,
    pub(crate) failed: u64,
    /// The first few failures, in words.
    pub(crate) failures: Vec<String>,
    /// By step: `put`, `reserve`, `delete`, `cycle`, `delivery`.
    pub(crate) latency: BTreeMap<&'static str, Latency>,
    /// The benchmark's own CPU in the measured time, each thread as a share of one core.
    pub(crate) own_cpu_by_thread: Vec<f64>,
    /// CPU of the watched processes in the measured time, together, in cores.
    pub(crate) server_cpu_cores: Option<f64>,
    /// Memory that the watched processes held together when the measured time ended.
    pub(crate) server_rss_bytes: Option<u64>,
    /// The machine's load average of the last minute when the run began.
    pub(crate) load_average: f64,
}

/// A distribution, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) count: u64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

impl Latency {
    /// Of a histogram in nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let quantile = |q| histogram.value_at_quantile(q) as f64 / 1e3;
        Self {
            count: histogram.len(),
            mean_us: histogram.mean() / 1e3,
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

/// The machine's load average of the last minute; 0 where it can't be known.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}

/// CPU seconds that a process has used so far; `None` if it is gone.
pub(crate) fn cpu_seconds_of(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may hold anything, so count from behind it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Bytes of a process that are in memory; `None` if it is gone.
pub(crate) fn rss_bytes_of(pid: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_some_cpu() {
        let seconds = cpu_seconds_of(std::process::id());
        assert!(
            seconds.is_some_and(|seconds| (0.0..3600.0).contains(&seconds)),
            "{seconds:?}"
        );
        assert_eq!(cpu_seconds_of(u32::MAX), None);
    }

    #[test]
    fn a_distribution_is_read_in_microseconds() {
        let mut histogram = Histogram::new(3).expect("three digits are allowed");
        for micros in 1..=1000u64 {
            histogram.record(micros * 1000).expect("it resizes");
        }
        let latency = Latency::of(&histogram);
        assert!((latency.p50_us - 500.0).abs() < 1.0, "{latency:?}");
        assert!((latency.max_us - 1000.0).abs() < 1.0, "{latency:?}");
    }
}
