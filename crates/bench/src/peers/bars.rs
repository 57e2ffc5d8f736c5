//! What Trellis means to reach beside each peer, and whether it did.

use super::measured::Measured;
use super::peer::Peer;
use super::task::Task;
use crate::plan::Mix;
use crate::table;

/// The least that Trellis' rate may be of the peer's, under a load.
const RATES: &[(&str, Peer, f64)] = &[
    ("put:256", Peer::Beanstalkd, 1.0),
    ("put:256", Peer::BeanstalkdF0, 10.0),
    ("put:256", Peer::Etcd, 5.0),
    ("put:256", Peer::Redis, 2.0),
    ("put:256", Peer::Rabbitmq, 3.0),
    ("put:256", Peer::NatsAlways, 5.0),
    ("cycle:256", Peer::Beanstalkd, 0.8),
    ("put:1:1000", Peer::Beanstalkd, 0.5),
];

/// fsyncs of one node per 1,000 puts at 256 connections.
const SYNCS_MAX: f64 = 16.0;
/// How much longer than the put itself a delivery to a waiting worker may take.
const DELIVERY_MAX: f64 = 1.3;

/// What Trellis is to reach beside `peer`.
pub(crate) fn rate(task: Task, peer: Peer) -> Option<f64> {
    let name = task.to_string();
    RATES
        .iter()
        .find(|(load, with, _)| *load == name && *with == peer)
        .map(|(_, _, bar)| *bar)
}

/// One line for each bar that was measured.
pub(crate) fn verdicts(all: &[Measured]) -> Vec<String> {
    let mut lines = Vec::new();
    for measured in all {
        if let (Some(bar), Some(ratio)) = (rate(measured.task, measured.peer), measured.ratio()) {
            lines.push(verdict(
                ratio >= bar,
                &format!(
                    "{}: {ratio:.2} × {} (bar: at least {bar:.1})",
                    measured.task,
                    measured.peer.title()
                ),
            ));
        }
    }
    // The rest is of Trellis alone: the first time that it was measured under the load, of however many.
    let of = |name: &str| {
        all.iter()
            .find(|it| it.task.to_string() == name && it.sound())
    };
    if let Some(measured) = of("put:1") {
        let p50 = measured.trellis_p50();
        let disk = measured.disk.p50_us;
        let bar = 2.0 * disk + 1500.0;
        lines.push(verdict(
            p50 <= bar,
            &format!(
                "put:1: p50 {} (bar: at most 2 × fdatasync p50 + 1.5 ms = {})",
                table::duration(p50),
                table::duration(bar)
            ),
        ));
    }
    for measured in all
        .iter()
        .filter(|it| it.task.mix == Mix::Delivery && it.task.connections == 1 && it.sound())
        .take(1)
    {
        let (put, delivery) = (measured.trellis_put_p50(), measured.trellis_p50());
        let ratio = delivery / put;
        lines.push(verdict(
            ratio <= DELIVERY_MAX,
            &format!(
                "{}: put → delivered p50 {} = {ratio:.2} × put p50 (bar: at most {DELIVERY_MAX})",
                measured.task,
                table::duration(delivery)
            ),
        ));
    }
    if let Some(syncs) = of("put:256").and_then(|it| it.trellis_syncs_per_node()) {
        lines.push(verdict(
            syncs <= SYNCS_MAX,
            &format!(
                "put:256: {syncs:.1} fsyncs of a node per 1,000 puts (bar: at most {SYNCS_MAX})"
            ),
        ));
    }
    lines
}

fn verdict(holds: bool, what: &str) -> String {
    format!(
        "{} {what}",
        if holds { "holds      " } else { "FALLS SHORT" }
    )
}
