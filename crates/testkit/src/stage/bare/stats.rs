use bytes::Bytes;
use trellis_queue::{JobView, ServerView, TubeView};
use trellis_wire::beanstalk::{Counted, yaml::Dict};

/// What a node would know of its own connections.
#[derive(Clone, Debug)]
pub(super) struct Gauges {
    pub(super) counters: [u64; 22],
    pub(super) body_bytes_max: u32,
    pub(super) connections: u64,
    pub(super) producers: u64,
    pub(super) workers: u64,
    pub(super) total_connections: u64,
    pub(super) uptime_seconds: u64,
    pub(super) draining: bool,
}

/// Specification 7.2.
pub(super) fn server(view: &ServerView, gauges: &Gauges) -> Bytes {
    let mut out = Dict::new();
    out.number("current-jobs-urgent", view.urgent)
        .number("current-jobs-ready", view.ready)
        .number("current-jobs-reserved", view.reserved)
        .number("current-jobs-delayed", view.delayed)
        .number("current-jobs-buried", view.buried);
    for counted in Counted::ALL {
        out.number(counted.key(), gauges.counters[counted.index()]);
    }
    out.number("job-timeouts", view.job_timeouts)
        .number("total-jobs", view.total_jobs)
        .number("max-job-size", gauges.body_bytes_max.into())
        .number("current-tubes", view.tubes)
        .number("current-connections", gauges.connections)
        .number("current-producers", gauges.producers)
        .number("current-workers", gauges.workers)
        .number("current-waiting", view.waiting)
        .number("total-connections", gauges.total_connections)
        .number("pid", 1)
        .quoted("version", "bare")
        .seconds("rusage-utime", 0)
        .seconds("rusage-stime", 0)
        .number("uptime", gauges.uptime_seconds)
        .number("binlog-oldest-index", 0)
        .number("binlog-current-index", 0)
        .number("binlog-records-migrated", 0)
        .number("binlog-records-written", 0)
        .number("binlog-max-size", 10_485_760)
        .bare("draining", if gauges.draining { "true" } else { "false" })
        .bare("id", "0000000000000001")
        .quoted("hostname", "bare")
        .quoted("os", "none")
        .quoted("platform", "none");
    out.finish()
}

/// Specification 7.3.
pub(super) fn tube(view: &TubeView, using: u64, watching: u64) -> Bytes {
    let mut out = Dict::new();
    out.quoted("name", view.name.as_str())
        .number("current-jobs-urgent", view.urgent)
        .number("current-jobs-ready", view.ready)
        .number("current-jobs-reserved", view.reserved)
        .number("current-jobs-delayed", view.delayed)
        .number("current-jobs-buried", view.buried)
        .number("total-jobs", view.total_jobs)
        .number("current-using", using)
        .number("current-watching", watching)
        .number("current-waiting", view.waiting)
        .number("cmd-delete", view.deletes)
        .number("cmd-pause-tube", view.pauses)
        .number("pause", view.pause.0.into())
        .number("pause-time-left", view.pause_left_seconds);
    out.finish()
}

/// Specification 7.4.
pub(super) fn job(view: &JobView) -> Bytes {
    let mut out = Dict::new();
    out.number("id", view.id.0)
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
        .number("kicks", view.kicks.into());
    out.finish()
}
