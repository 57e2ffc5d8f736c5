use bytes::Bytes;
use trellis_node::{ServerStats, TubeStats};
use trellis_queue::JobView;
use trellis_wire::beanstalk::yaml::Dict;

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

/// `stats`: 51 keys in beanstalkd's order, then Trellis' own. Source: specification, 7.2.
pub(crate) fn server(_stats: &ServerStats) -> Bytes {
    Dict::new().finish()
}
