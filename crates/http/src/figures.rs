use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use prometheus_client::{
    collector::Collector,
    encoding::{
        DescriptorEncoder, MetricEncoder, NoLabelSet,
        text::{encode_eof, encode_registry},
    },
    metrics::MetricType,
    registry::Registry,
};

use crate::View;

/// Figures that are gathered when somebody asks for them.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// `version`, `node`, `name`, `cluster`: labels of `build_info` and `node_info`.
    pub version: String,
    /// This node's id.
    pub node: String,
    /// This node's name.
    pub name: String,
    /// Name and value of every gauge without labels, with its meaning.
    pub gauges: Vec<(&'static str, &'static str, i64)>,
    /// Name and value of every counter without labels, with its meaning.
    pub counters: Vec<(&'static str, &'static str, u64)>,
    /// Commands by their name in the protocol, since the start.
    pub commands: Vec<(&'static str, u64)>,
    /// How far the other members are, on the leader.
    pub peers: Vec<PeerFigures>,
    /// Jobs of single tubes: not all of them, the number of label values is bounded.
    pub tubes: Vec<TubeFigures>,
}

/// How far a member is.
#[derive(Clone, Debug, Default)]
pub struct PeerFigures {
    /// Its name.
    pub name: String,
    /// Entries that it lacks, if this node knows.
    pub lag: Option<u64>,
    /// Whether it is present.
    pub present: bool,
}

/// Jobs of one tube by state.
#[derive(Clone, Debug, Default)]
pub struct TubeFigures {
    /// The tube.
    pub name: String,
    /// Ready, reserved, delayed, buried.
    pub jobs: [u64; 4],
    /// Parked reserves that watch it.
    pub waiting: u64,
}

const STATES: [&str; 4] = ["ready", "reserved", "delayed", "buried"];

/// `GET /metrics`
pub(crate) async fn metrics(State(view): State<View>) -> Response {
    let mut text = String::with_capacity(16 * 1024);
    let mut gathered = Registry::with_prefix("trellis");
    if let Some(figures) = (view.figures)() {
        gathered.register_collector(Box::new(figures));
    }
    // The text ends with one end marker, whatever it is made of.
    let written = view
        .registry
        .get()
        .map_or(Ok(()), |registry| encode_registry(&mut text, registry))
        .and_then(|()| encode_registry(&mut text, &gathered))
        .and_then(|()| encode_eof(&mut text));
    if let Err(error) = written {
        tracing::error!(%error, "metrics could not be written");
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let info = [("version", self.version.as_str())];
        encoder
            .encode_descriptor(
                "build_info",
                "The version of this binary",
                None,
                MetricType::Gauge,
            )?
            .encode_family(&info)?
            .encode_gauge(&1_i64)?;
        let info = [("node", self.node.as_str()), ("name", self.name.as_str())];
        encoder
            .encode_descriptor("node_info", "Who this node is", None, MetricType::Gauge)?
            .encode_family(&info)?
            .encode_gauge(&1_i64)?;
        for (name, help, value) in &self.gauges {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(value)?;
        }
        for (name, help, value) in &self.counters {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(value, None)?;
        }
        if !self.commands.is_empty() {
            let mut metric = encoder.encode_descriptor(
                "commands",
                "Well-formed commands of clients",
                None,
                MetricType::Counter,
            )?;
            for (command, count) in &self.commands {
                metric
                    .encode_family(&[("command", *command)])?
                    .encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        self.encode_peers(&mut encoder)?;
        self.encode_tubes(&mut encoder)
    }
}

impl Figures {
    fn encode_peers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if self.peers.is_empty() {
            return Ok(());
        }
        let mut lag = encoder.encode_descriptor(
            "raft_replication_lag_entries",
            "Entries that a member lacks, as the leader knows",
            None,
            MetricType::Gauge,
        )?;
        each(&mut lag, &self.peers, |peer| Some((&peer.name, peer.lag?)))?;
        let mut present = encoder.encode_descriptor(
            "peer_present",
            "Whether a member was heard lately",
            None,
            MetricType::Gauge,
        )?;
        each(&mut present, &self.peers, |peer| {
            Some((&peer.name, peer.present.into()))
        })
    }

    fn encode_tubes(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if self.tubes.is_empty() {
            return Ok(());
        }
        let mut jobs = encoder.encode_descriptor(
            "tube_jobs",
            "Jobs of a tube by state; of the first tubes only",
            None,
            MetricType::Gauge,
        )?;
        for tube in &self.tubes {
            for (state, count) in STATES.into_iter().zip(tube.jobs) {
                let labels = [("tube", tube.name.as_str()), ("state", state)];
                jobs.encode_family(&labels)?
                    .encode_gauge(&to_gauge(count))?;
            }
        }
        let mut waiting = encoder.encode_descriptor(
            "tube_waiting",
            "Parked reserves that watch a tube; of the first tubes only",
            None,
            MetricType::Gauge,
        )?;
        for tube in &self.tubes {
            let labels = [("tube", tube.name.as_str())];
            waiting
                .encode_family(&labels)?
                .encode_gauge(&to_gauge(tube.waiting))?;
        }
        Ok(())
    }
}

fn each<'a>(
    metric: &mut MetricEncoder<'_>,
    peers: &'a [PeerFigures],
    figure: impl Fn(&'a PeerFigures) -> Option<(&'a String, u64)>,
) -> Result<(), std::fmt::Error> {
    for (name, value) in peers.iter().filter_map(figure) {
        metric
            .encode_family(&[("peer", name.as_str())])?
            .encode_gauge(&to_gauge(value))?;
    }
    Ok(())
}

fn to_gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_prometheus_reads_them() {
        let mut registry = Registry::with_prefix("trellis");
        registry.register_collector(Box::new(Figures {
            version: "1".into(),
            node: "00".into(),
            name: "trellis-0".into(),
            gauges: vec![("raft_term", "The term", 3)],
            counters: vec![("job_timeouts", "Expiries", 4)],
            commands: vec![("put", 5)],
            peers: vec![
                PeerFigures {
                    name: "trellis-1".into(),
                    lag: Some(6),
                    present: true,
                },
                PeerFigures {
                    name: "trellis-2".into(),
                    ..PeerFigures::default()
                },
            ],
            tubes: vec![TubeFigures {
                name: "mail".into(),
                jobs: [1, 2, 3, 4],
                waiting: 7,
            }],
        }));
        let mut text = String::new();
        encode_registry(&mut text, &registry).expect("a string takes everything");
        for line in [
            "trellis_build_info{version=\"1\"} 1",
            "trellis_node_info{node=\"00\",name=\"trellis-0\"} 1",
            "trellis_raft_term 3",
            "trellis_job_timeouts_total 4",
            "trellis_commands_total{command=\"put\"} 5",
            "trellis_raft_replication_lag_entries{peer=\"trellis-1\"} 6",
            "trellis_peer_present{peer=\"trellis-1\"} 1",
            "trellis_peer_present{peer=\"trellis-2\"} 0",
            "trellis_tube_jobs{tube=\"mail\",state=\"buried\"} 4",
            "trellis_tube_waiting{tube=\"mail\"} 7",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no line {line:?} in\n{text}"
            );
        }
        assert!(
            !text.contains("lag_entries{peer=\"trellis-2\"}"),
            "what is not known is not said:\n{text}"
        );
    }
}
