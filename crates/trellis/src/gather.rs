use std::sync::{Arc, OnceLock};

use trellis_http::{Figures, PeerFigures, TubeFigures};
use trellis_node::{Counters, Node, membership::Status};
use trellis_queue::{Machine, ServerView};
use trellis_wire::beanstalk::Counted;

/// Tubes that have a label of their own in the metrics: each costs the scraper five series.
const TUBES_SHOWN: usize = 200;

/// Gathers what the metrics show of a node, when they are asked for.
pub(crate) struct Gather {
    node: Arc<OnceLock<Node>>,
}

impl Gather {
    pub(crate) fn new(node: Arc<OnceLock<Node>>) -> Self {
        Self { node }
    }

    /// The figures of now; `None` while there is no node.
    pub(crate) fn figures(&self) -> Option<Figures> {
        let node = self.node.get()?;
        let status = node.members().status();
        let counters = node.core().counters();
        // One short look; no more than a few tubes are visited.
        let (server, tubes) = node
            .core()
            .look(|machine| (machine.server(), tubes(machine)))?;
        Some(Figures {
            version: status.version.clone(),
            node: status.node.clone(),
            name: status.name.clone(),
            gauges: gauges(&status, &server, &counters),
            counters: totals(&status, &server, &counters),
            commands: Counted::ALL
                .iter()
                .zip(counters.commands)
                .map(|(counted, count)| (counted.key().trim_start_matches("cmd-"), count))
                .collect(),
            peers: peers(&status),
            tubes,
        })
    }
}

/// Figures of a process that has no node: it is starting, or it `is_out`, quarantined. What is
/// missing sets off no alert.
pub(crate) fn without_node(name: &str, is_out: bool) -> Figures {
    Figures {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: name.to_owned(),
        gauges: vec![quarantined(is_out), ready(false), draining(false)],
        ..Figures::default()
    }
}

fn ready(is_ready: bool) -> (&'static str, &'static str, i64) {
    let meaning = "Whether clients should be sent here, as /readyz says";
    ("ready", meaning, is_ready.into())
}

fn draining(is_draining: bool) -> (&'static str, &'static str, i64) {
    let meaning = "Whether this node is on its way out";
    ("draining", meaning, is_draining.into())
}

fn quarantined(is_out: bool) -> (&'static str, &'static str, i64) {
    (
        "quarantined",
        "Whether this node took itself out because its data is not to be relied upon",
        is_out.into(),
    )
}

fn tubes(machine: &Machine) -> Vec<TubeFigures> {
    let now = machine.now();
    let views = machine
        .tubes()
        .take(TUBES_SHOWN)
        .filter_map(|name| machine.tube(name, now));
    views
        .map(|view| TubeFigures {
            name: view.name.as_str().to_owned(),
            jobs: [view.ready, view.reserved, view.delayed, view.buried],
            waiting: view.waiting,
        })
        .collect()
}

fn peers(status: &Status) -> Vec<PeerFigures> {
    let others = status
        .members
        .iter()
        .filter(|member| member.node != status.node);
    others
        .map(|member| PeerFigures {
            name: member.name.clone(),
            lag: member.lag,
            present: member.present,
        })
        .collect()
}

fn gauges(
    status: &Status,
    server: &ServerView,
    counters: &Counters,
) -> Vec<(&'static str, &'static str, i64)> {
    let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let voters = status.members.iter().filter(|member| member.voter).count() as u64;
    let learners = status.members.len() as u64 - voters;
    let disk = status.disk.unwrap_or_default();
    vec![
        quarantined(status.quarantined.is_some()),
        (
            "raft_is_leader",
            "Whether this node leads, with a majority behind it",
            status.leads.into(),
        ),
        (
            "raft_has_leader",
            "Whether this node hears a leader",
            status.leader.is_some().into(),
        ),
        ("raft_term", "The newest term known", whole(status.term)),
        (
            "raft_last_log_index",
            "The last index in the log",
            whole(status.last_log),
        ),
        (
            "raft_commit_index",
            "The last committed index known",
            whole(status.committed),
        ),
        (
            "raft_applied_index",
            "The last applied index",
            whole(status.applied),
        ),
        (
            "raft_flushed_index",
            "The last index on this node's disk",
            whole(status.flushed),
        ),
        ("raft_voters", "Members that vote", whole(voters)),
        (
            "raft_learners",
            "Members that do not vote yet",
            whole(learners),
        ),
        ready(status.ready),
        draining(status.draining),
        (
            "client_connections",
            "Open client connections",
            whole(counters.connections),
        ),
        (
            "client_producers",
            "Open connections that have put",
            whole(counters.producers),
        ),
        (
            "client_workers",
            "Open connections that have reserved",
            whole(counters.workers),
        ),
        (
            "waits",
            "Parked reserves in the cluster",
            whole(server.waiting),
        ),
        ("tubes", "Tubes in the cluster", whole(server.tubes)),
        (
            "jobs_urgent",
            "Ready jobs of priority below 1024",
            whole(server.urgent),
        ),
        (
            "jobs_ready",
            "Ready jobs in the cluster",
            whole(server.ready),
        ),
        (
            "jobs_reserved",
            "Held jobs in the cluster",
            whole(server.reserved),
        ),
        (
            "jobs_delayed",
            "Delayed jobs in the cluster",
            whole(server.delayed),
        ),
        (
            "jobs_buried",
            "Buried jobs in the cluster",
            whole(server.buried),
        ),
        (
            "job_bytes",
            "Body bytes of all jobs",
            whole(server.job_bytes),
        ),
        (
            "puts_refused",
            "Whether puts are refused for want of disk",
            server.puts_refused.into(),
        ),
        (
            "puts_refused_here",
            "Whether puts of this node's own clients are refused (SIGUSR1)",
            status.puts_refused_here.into(),
        ),
        (
            "feature_level",
            "The replicated feature level",
            server.feature_level.into(),
        ),
        (
            "storage_disk_free_bytes",
            "Free bytes of this node's volume",
            whole(disk.free),
        ),
        (
            "storage_disk_total_bytes",
            "Size of this node's volume",
            whole(disk.total),
        ),
    ]
}

fn totals(
    status: &Status,
    server: &ServerView,
    counters: &Counters,
) -> Vec<(&'static str, &'static str, u64)> {
    vec![
        (
            "client_connections_accepted",
            "Client connections since the start",
            counters.connections_total,
        ),
        ("put", "Jobs accepted by the cluster", server.total_jobs),
        (
            "job_timeouts",
            "Holds that ran out of time",
            server.job_timeouts,
        ),
        (
            "digest_mismatches",
            "Times that two replicas differed",
            status.digest_mismatches,
        ),
    ]
}
