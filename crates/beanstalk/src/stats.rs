use std::{collections::hash_map::RandomState, hash::BuildHasher as _, sync::OnceLock};

use bytes::Bytes;
use trellis_node::{ServerStats, TubeStats};
use trellis_queue::JobView;
use trellis_wire::beanstalk::{Counted, yaml::Dict};

/// `stats-job`: 14 keys in beanstalkd's order. Source: protocol specification, 7.4.
pub(crate) fn job(view: &JobView) -> Bytes {
    Dict::new()
        .number("id", view.id.0)
        .quoted("tube", view.tube.as_str())
        .bare("state", view.state)
        .number("pri", view.priority.0.into())
        .number("age", view.age_seconds)
        .number("delay", view.delay.0.into())
        .number("ttr", view.ttr.0.into())
        .number("time-left", view.time_left_seconds)
        .number("file", 0)
        .number("reserves", view.reserves.into())
        .number("timeouts", view.timeouts.into())
        .number("releases", view.releases.into())
        .number("buries", view.buries.into())
        .number("kicks", view.kicks.into())
        .finish()
}

/// `stats-tube`: 14 keys in beanstalkd's order. Source: protocol specification, 7.3.
pub(crate) fn tube(stats: &TubeStats) -> Bytes {
    let view = &stats.view;
    Dict::new()
        .quoted("name", view.name.as_str())
        .number("current-jobs-urgent", view.urgent)
        .number("current-jobs-ready", view.ready)
        .number("current-jobs-reserved", view.reserved)
        .number("current-jobs-delayed", view.delayed)
        .number("current-jobs-buried", view.buried)
        .number("total-jobs", view.total_jobs)
        .number("current-using", stats.using)
        .number("current-watching", stats.watching)
        .number("current-waiting", view.waiting)
        .number("cmd-delete", view.deletes)
        .number("cmd-pause-tube", view.pauses)
        .number("pause", view.pause.0.into())
        .number("pause-time-left", view.pause_left_seconds)
        .finish()
}

/// `stats`: 51 keys in beanstalkd's order, then Trellis' own. Source: specification, 7.2;
/// architecture, section 8.
pub(crate) fn server(stats: &ServerStats) -> Bytes {
    let ServerStats { view, counters, .. } = stats;
    let process = Process::this();
    let (user_micros, system_micros) = cpu_micros();
    let mut dict = Dict::new();
    dict.number("current-jobs-urgent", view.urgent)
        .number("current-jobs-ready", view.ready)
        .number("current-jobs-reserved", view.reserved)
        .number("current-jobs-delayed", view.delayed)
        .number("current-jobs-buried", view.buried);
    for (counted, count) in Counted::ALL.iter().zip(counters.commands) {
        dict.number(counted.key(), count);
    }
    dict.number("job-timeouts", view.job_timeouts)
        .number("total-jobs", view.total_jobs)
        .number("max-job-size", stats.body_bytes_max.into())
        .number("current-tubes", view.tubes)
        .number("current-connections", counters.connections)
        .number("current-producers", counters.producers)
        .number("current-workers", counters.workers)
        .number("current-waiting", view.waiting)
        .number("total-connections", counters.connections_total)
        .number("pid", process.pid)
        .quoted("version", VERSION)
        .seconds("rusage-utime", user_micros)
        .seconds("rusage-stime", system_micros)
        .number("uptime", stats.uptime_seconds)
        .number("binlog-oldest-index", 0)
        .number("binlog-current-index", 0)
        .number("binlog-records-migrated", 0)
        .number("binlog-records-written", 0)
        .number("binlog-max-size", BINLOG_BYTES_MAX)
        .bare("draining", if stats.draining { "true" } else { "false" })
        .bare("id", &process.id)
        .quoted("hostname", &process.host_name)
        .quoted("os", &process.os)
        .quoted("platform", &process.platform);
    dict.quoted("trellis-node", &stats.node)
        .quoted("trellis-leader", stats.leader.as_deref().unwrap_or(""))
        .number("trellis-members", stats.members)
        .quoted("trellis-silent-nodes", &stats.silent.join(" "))
        .number("trellis-job-bytes", view.job_bytes)
        .bare(
            "trellis-puts-refused",
            if view.puts_refused { "true" } else { "false" },
        )
        .number("trellis-feature-level", view.feature_level.into());
    dict.finish()
}

const VERSION: &str = concat!("trellis ", env!("CARGO_PKG_VERSION"));

/// What beanstalkd shows even without a binlog (sharp edge 126).
const BINLOG_BYTES_MAX: u64 = 10_485_760;

/// What `stats` says of the process; it does not change.
struct Process {
    pid: u64,
    /// Sixteen hexadecimal digits, different for every process.
    id: String,
    host_name: String,
    os: String,
    platform: String,
}

impl Process {
    fn this() -> &'static Self {
        static THIS: OnceLock<Process> = OnceLock::new();
        THIS.get_or_init(|| {
            let system = rustix::system::uname();
            // The standard library seeds its hashers at random.
            let id = RandomState::new().hash_one(std::process::id());
            Self {
                pid: std::process::id().into(),
                id: format!("{id:016x}"),
                host_name: system.nodename().to_string_lossy().into_owned(),
                os: system.version().to_string_lossy().into_owned(),
                platform: system.machine().to_string_lossy().into_owned(),
            }
        })
    }
}

/// CPU time of this process so far in microseconds: its own and the kernel's.
fn cpu_micros() -> (u64, u64) {
    use nix::sys::{
        resource::{UsageWho, getrusage},
        time::TimeValLike as _,
    };
    let micros = |time: i64| u64::try_from(time).unwrap_or(0);
    getrusage(UsageWho::RUSAGE_SELF).map_or((0, 0), |usage| {
        (
            micros(usage.user_time().num_microseconds()),
            micros(usage.system_time().num_microseconds()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sharp edges 123 to 125.
    #[test]
    fn stats_has_beanstalkds_51_keys_in_order_and_then_our_own() {
        let text = server(&ServerStats::default());
        let text = std::str::from_utf8(&text).expect("it is text");
        let keys: Vec<&str> = text
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .map(|(key, _)| key)
            .collect();
        assert_eq!(
            &keys[..6],
            [
                "current-jobs-urgent",
                "current-jobs-ready",
                "current-jobs-reserved",
                "current-jobs-delayed",
                "current-jobs-buried",
                "cmd-put",
            ]
        );
        assert_eq!(
            &keys[26..29],
            ["cmd-pause-tube", "job-timeouts", "total-jobs"]
        );
        assert_eq!(keys[50], "platform");
        assert!(
            keys[51..].iter().all(|key| key.starts_with("trellis-")),
            "{:?}",
            &keys[51..]
        );
    }
}
