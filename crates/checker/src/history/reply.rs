use std::fmt;

use serde::{Deserialize, Serialize};
use trellis_types::{JobId, Priority, Seconds, TubeName};

use super::Body;

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "say")]
#[allow(missing_docs)] // the variants are the protocol's own words
pub enum Reply {
    Inserted {
        job: JobId,
    },
    Reserved {
        job: JobId,
        body: Body,
    },
    Found {
        job: JobId,
        body: Body,
    },
    DeadlineSoon,
    TimedOut,
    Deleted,
    Released,
    Buried,
    Touched,
    Kicked {
        count: u32,
    },
    KickedJob,
    Paused,
    NotFound,
    OutOfMemory,
    Draining,
    InternalError,
    JobStats(JobStats),
    TubeStats(TubeStats),
    /// Something that no question here should get: the line.
    Other {
        line: String,
    },
}

/// A job's state as the protocol names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum JobState {
    Ready,
    Delayed,
    Reserved,
    Buried,
}

/// What `stats-job` said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the fields are the protocol's own
pub struct JobStats {
    pub job: JobId,
    pub tube: TubeName,
    pub state: JobState,
    pub priority: Priority,
    pub age: u64,
    pub delay: Seconds,
    pub ttr: Seconds,
    pub time_left: u64,
    pub reserves: u32,
    pub timeouts: u32,
    pub releases: u32,
    pub buries: u32,
    pub kicks: u32,
}

/// What `stats-tube` said, as far as a history can check it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the fields are the protocol's own
pub struct TubeStats {
    pub tube: TubeName,
    pub urgent: u64,
    pub ready: u64,
    pub reserved: u64,
    pub delayed: u64,
    pub buried: u64,
    pub total_jobs: u64,
    pub deletes: u64,
}

impl Reply {
    /// Whether the server neither did nor will do what was asked for.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::OutOfMemory | Self::Draining | Self::Other { .. }
        )
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Reserved => "reserved",
            Self::Buried => "buried",
        })
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = |body: &Body| body.key.clone().unwrap_or_else(|| "?".to_owned());
        match self {
            Self::Inserted { job } => write!(f, "INSERTED {job}"),
            Self::Reserved { job, body } => {
                write!(f, "RESERVED {job} {} [{}]", body.bytes, key(body))
            }
            Self::Found { job, body } => write!(f, "FOUND {job} {} [{}]", body.bytes, key(body)),
            Self::DeadlineSoon => f.write_str("DEADLINE_SOON"),
            Self::TimedOut => f.write_str("TIMED_OUT"),
            Self::Deleted => f.write_str("DELETED"),
            Self::Released => f.write_str("RELEASED"),
            Self::Buried => f.write_str("BURIED"),
            Self::Touched => f.write_str("TOUCHED"),
            Self::Kicked { count } => write!(f, "KICKED {count}"),
            Self::KickedJob => f.write_str("KICKED"),
            Self::Paused => f.write_str("PAUSED"),
            Self::NotFound => f.write_str("NOT_FOUND"),
            Self::OutOfMemory => f.write_str("OUT_OF_MEMORY"),
            Self::Draining => f.write_str("DRAINING"),
            Self::InternalError => f.write_str("INTERNAL_ERROR"),
            Self::JobStats(stats) => write!(
                f,
                "{} pri {} age {} left {} reserves {} timeouts {} releases {} buries {} kicks {}",
                stats.state,
                stats.priority.0,
                stats.age,
                stats.time_left,
                stats.reserves,
                stats.timeouts,
                stats.releases,
                stats.buries,
                stats.kicks
            ),
            Self::TubeStats(stats) => write!(
                f,
                "ready {} reserved {} delayed {} buried {} total {}",
                stats.ready, stats.reserved, stats.delayed, stats.buried, stats.total_jobs
            ),
            Self::Other { line } => write!(f, "{line:?}"),
        }
    }
}
