//! What came of a story: one line of JSON in the form of the other chaos stories, with figures of its own beside.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    process::Command,
};

use serde::Serialize;
use serde_json::{Map, Value};
use trellis_checker::history::{Nanos, Record, Reply, Stage};

/// The line.
#[derive(Debug, Serialize)]
pub(super) struct Account {
    /// `disks`.
    pub(super) instrument: &'static str,
    /// Which story.
    pub(super) story: String,
    /// What replays it.
    pub(super) seed: u64,
    /// The version of the binary, and the commit of the source.
    pub(super) version: String,
    /// When it began, seconds since 1970.
    pub(super) at: u64,
    /// How long it took, in seconds.
    pub(super) seconds: f64,
    /// Of these, in how many nobody could be served by intent.
    pub(super) outage_seconds: f64,
    /// Operations that were acknowledged.
    pub(super) acknowledged: u64,
    /// Operations whose outcome stayed unknown.
    pub(super) unknown: u64,
    /// Invariants that were decided.
    pub(super) invariants: Vec<String>,
    /// Each thing that was broken.
    pub(super) faults: Vec<Fault>,
    /// `sound`, `broken` or `rejected`.
    pub(super) verdict: &'static str,
    /// Why, if it is not sound.
    pub(super) why: Vec<String>,
    /// Where the history is, if it is not sound.
    pub(super) kept: Option<PathBuf>,
    /// What was seen besides.
    pub(super) figures: Map<String, Value>,
}

/// One thing that was broken.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fault {
    /// Its number in the list of faults.
    pub(super) fault: u32,
    /// The story.
    pub(super) kind: String,
    /// Nothing else was broken meanwhile.
    pub(super) with: Option<String>,
    /// What was done.
    pub(super) seen: String,
    /// The nodes concerned.
    pub(super) nodes: Vec<String>,
    /// When it began and was mended, on the run's clock.
    pub(super) from: Nanos,
    /// As `from`.
    pub(super) to: Nanos,
    /// The longest time meanwhile in which no client of the other nodes (of any node, if all were concerned) was
    /// acknowledged anything, in milliseconds.
    pub(super) gap_ms: u64,
}

/// The faults of a history, with the gaps that clients saw.
pub(super) fn faults(story: &str, records: &[Record]) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    let mut open: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    let mut nodes_of: HashMap<u64, &str> = HashMap::new();
    let mut asked: HashMap<u64, u64> = HashMap::new();
    let mut heard: BTreeMap<&str, Vec<Nanos>> = BTreeMap::new();
    for record in records {
        match record {
            Record::Nemesis {
                t,
                fault,
                what,
                nodes,
                stage: Stage::Begin,
                ..
            } => {
                open.insert(sorted(nodes), faults.len());
                faults.push(Fault {
                    fault: *fault,
                    kind: story.to_owned(),
                    with: None,
                    seen: what.clone(),
                    nodes: nodes.clone(),
                    from: *t,
                    to: *t,
                    gap_ms: 0,
                });
            }
            Record::Nemesis {
                t,
                nodes,
                stage: Stage::End,
                ..
            } => {
                let begun = open.remove(&sorted(nodes));
                if let Some(fault) = begun.and_then(|at| faults.get_mut(at)) {
                    fault.to = *t;
                }
            }
            Record::Opened {
                connection, node, ..
            } => {
                nodes_of.insert(*connection, node);
            }
            Record::Invoked { op, connection, .. } => {
                asked.insert(*op, *connection);
            }
            Record::Replied { t, op, reply } => {
                let node = asked.remove(op).and_then(|it| nodes_of.get(&it).copied());
                if let Some(node) = node
                    && !reply.is_refusal()
                    && *reply != Reply::InternalError
                {
                    heard.entry(node).or_default().push(*t);
                }
            }
            _ => {}
        }
    }
    for fault in &mut faults {
        let concerned: BTreeSet<&str> = fault.nodes.iter().map(String::as_str).collect();
        let all = heard.keys().all(|node| concerned.contains(node));
        let mut times: Vec<Nanos> = heard
            .iter()
            .filter(|(node, _)| all || !concerned.contains(*node))
            .flat_map(|(_, times)| times)
            .copied()
            .filter(|t| (fault.from..=fault.to).contains(t))
            .collect();
        times.push(fault.to);
        times.sort_unstable();
        let mut last = fault.from;
        let mut gap = 0;
        for t in times {
            gap = gap.max(t.saturating_sub(last));
            last = t;
        }
        fault.gap_ms = gap / 1_000_000;
    }
    faults
}

/// Nodes may be named in another order when they are mended.
fn sorted(nodes: &[String]) -> Vec<String> {
    let mut nodes = nodes.to_vec();
    nodes.sort();
    nodes
}

/// What of the source this is.
pub(super) fn commit() -> String {
    let git = |words: &[&str]| {
        let done = Command::new("git").args(words).output().ok()?;
        let text = String::from_utf8_lossy(&done.stdout).trim().to_owned();
        done.status.success().then_some(text)
    };
    let head = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changed) if !changed.is_empty() => format!("{head}, changed"),
        _ => head,
    }
}
