use std::fmt;

use serde::{Deserialize, Serialize};

/// A promise that a history can break. The numbers are those of the list of invariants that all
/// test instruments share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)] // `promise` says what each means
pub enum Invariant {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    I11,
    I12,
    I17,
    I19,
    I20,
}

impl Invariant {
    /// All that this checker decides.
    pub const ALL: [Self; 15] = [
        Self::I1,
        Self::I2,
        Self::I3,
        Self::I4,
        Self::I5,
        Self::I6,
        Self::I7,
        Self::I8,
        Self::I9,
        Self::I10,
        Self::I11,
        Self::I12,
        Self::I17,
        Self::I19,
        Self::I20,
    ];

    /// What is promised, in one sentence.
    pub fn promise(self) -> &'static str {
        match self {
            Self::I1 => "an acknowledged put is never lost",
            Self::I2 => "a job whose delete was acknowledged never comes back",
            Self::I3 => "a job has at most one live reservation",
            Self::I4 => "who no longer holds a job cannot change it",
            Self::I5 => "a hold ends when its TTR has run out, not earlier and not later",
            Self::I6 => "no job is stuck: what is ready and wanted is delivered",
            Self::I7 => "ids are unique and increase in the order of commits",
            Self::I8 => "a tube delivers in order of (priority, id), and nothing while paused",
            Self::I9 => "a delayed job matures when its delay is over, not earlier and not later",
            Self::I10 => "counters say what is there",
            Self::I11 => "nodes at the same applied index hold the same state",
            Self::I12 => "the cluster's time never runs back, nor ahead of real time",
            Self::I17 => "an answer is never older than what was finished before the question",
            Self::I19 => "a node that cannot write its disk stops answering",
            Self::I20 => "a body comes out as it went in",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
