//! What came of a story: one line of JSON, from which the report is made.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use trellis_checker::history::{self, Nanos, Record};

/// What came of a story.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Account {
    /// `chaos`.
    pub instrument: String,
    /// Which story.
    pub story: String,
    /// Whether clients also came through HAProxy.
    #[serde(default)]
    pub balanced: bool,
    /// What replays it.
    pub seed: u64,
    /// The version of the binary, and the commit of the source.
    pub version: String,
    /// When it began, seconds since 1970.
    pub at: u64,
    /// How long the load ran, in seconds.
    pub seconds: f64,
    /// Of these, in how many nobody could be served, or few: the fault is made for that, or the two of a
    /// pair left no majority of whole nodes.
    pub outage_seconds: f64,
    /// Answers in those seconds.
    #[serde(default)]
    pub outage_answers: u64,
    /// Operations that were acknowledged.
    pub acknowledged: u64,
    /// Operations whose outcome stayed unknown.
    pub unknown: u64,
    /// Invariants that were decided.
    pub invariants: Vec<String>,
    /// Each thing that was broken.
    pub faults: Vec<Fault>,
    /// What is said of it.
    pub verdict: Word,
    /// Why, if it is not sound.
    pub why: Vec<String>,
    /// Where the history and the logs are, if it is not sound.
    pub kept: Option<PathBuf>,
}

/// One thing that was broken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fault {
    /// Its number in the list of faults.
    pub fault: u32,
    /// The nemesis.
    pub kind: String,
    /// The nemesis during which it happened, or that happened during it.
    pub with: Option<String>,
    /// What was seen of it.
    pub seen: String,
    /// The nodes concerned.
    pub nodes: Vec<String>,
    /// When it began and when everything was well again, on the run's clock.
    pub from: Nanos,
    /// As `from`.
    pub to: Nanos,
    /// The longest time meanwhile in which no client of the other nodes (of any node, if all were
    /// concerned) was acknowledged anything, in milliseconds.
    pub gap_ms: u64,
}

/// What is said of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// It proves something, and nothing was broken in it.
    Sound,
    /// A promise was broken.
    Broken,
    /// It proves nothing.
    Rejected,
}

impl Account {
    /// The command that tells the story again.
    pub fn replay(&self) -> String {
        format!("make chaos SEED={} STORY='{}'", self.seed, self.story)
    }

    /// Acknowledged operations in each second in which nothing kept the whole cluster from them.
    pub fn rate(&self) -> f64 {
        let acknowledged = self.acknowledged.saturating_sub(self.outage_answers);
        acknowledged as f64 / (self.seconds - self.outage_seconds).max(1.0)
    }

    /// Adds the line to a file of results.
    ///
    /// # Errors
    ///
    /// As the file system has it.
    pub fn append(&self, results: &Path) -> Result<()> {
        if let Some(folder) = results.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = fs::File::options()
            .create(true)
            .append(true)
            .open(results)?;
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(file.write_all(&line)?)
    }
}

/// When clients were acknowledged something, by node.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged(BTreeMap<String, Vec<Nanos>>);

impl Acknowledged {
    /// Reads it from a history.
    ///
    /// # Errors
    ///
    /// The history can't be read.
    pub(crate) fn of(history: &Path) -> Result<Self> {
        let input = io::BufReader::new(fs::File::open(history)?);
        let mut nodes: BTreeMap<u64, String> = BTreeMap::new();
        let mut asked: BTreeMap<u64, u64> = BTreeMap::new();
        let mut found = Self::default();
        for record in history::read(input) {
            match record? {
                Record::Opened {
                    connection, node, ..
                } => {
                    nodes.insert(connection, node);
                }
                Record::Invoked { op, connection, .. } => {
                    asked.insert(op, connection);
                }
                Record::Replied { t, op, reply } => {
                    let node = asked.remove(&op).and_then(|at| nodes.get(&at));
                    if !reply.is_refusal()
                        && reply != history::Reply::InternalError
                        && let Some(node) = node
                    {
                        found.0.entry(node.clone()).or_default().push(t);
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// The longest time between `from` and `to` in which no client of another node than `but` was
    /// acknowledged anything; of any node, if no other was asked anything.
    pub(crate) fn gap(&self, but: &BTreeSet<String>, from: Nanos, to: Nanos) -> Nanos {
        let of = |wanted: &dyn Fn(&String) -> bool| {
            let nodes = self.0.iter().filter(|(node, _)| wanted(node));
            let mut times: Vec<Nanos> = nodes
                .flat_map(|(_, times)| times.iter().copied())
                .filter(|t| (from..=to).contains(t))
                .collect();
            times.sort_unstable();
            times
        };
        let mut times = of(&|node| !but.contains(node));
        if times.is_empty() {
            times = of(&|_| true);
        }
        let ends = times.iter().copied().chain([to]);
        let begins = [from].into_iter().chain(times.iter().copied());
        begins.zip(ends).map(|(a, b)| b - a).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_what_clients_of_the_others_saw() {
        let told = [("a", vec![10, 20, 90]), ("b", vec![15, 40, 60])];
        let told = Acknowledged(told.map(|(node, times)| (node.to_owned(), times)).into());
        let but = |name: &str| BTreeSet::from([name.to_owned()]);
        assert_eq!(told.gap(&but("a"), 15, 70), 25);
        assert_eq!(told.gap(&but("c"), 15, 70), 20);
        assert_eq!(told.gap(&but("b"), 20, 95), 70);
    }
}
