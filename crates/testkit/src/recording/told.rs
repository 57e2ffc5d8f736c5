//! The checker's words from and to the wire's.

use std::{collections::HashMap, time::Duration};

use trellis_checker::history::{Body, Call, JobState, JobStats, Reply, TubeStats};
use trellis_types::{JobId, Priority, Seconds, TubeName};
use trellis_wire::beanstalk::{self, Request};

/// How long a client waits for an answer beyond what it asked for, before it gives the connection
/// up. Above the time after which a node without a majority says so.
pub const PATIENCE: Duration = Duration::from_secs(12);

/// How long it waits for the answer to a question.
pub fn patience(call: &Call) -> Duration {
    match call {
        Call::Reserve {
            timeout: Some(seconds),
            ..
        } => PATIENCE + Duration::from_millis(seconds.as_ms()),
        _ => PATIENCE,
    }
}

/// What a client sends for a question.
pub fn request(call: &Call) -> Request {
    match call.clone() {
        Call::Put {
            priority,
            delay,
            ttr,
            body,
            ..
        } => {
            let key = body.key.unwrap_or_default();
            Request::Put {
                priority,
                delay,
                ttr,
                body: Body::content(&key, body.bytes).into(),
            }
        }
        Call::Reserve { timeout: None, .. } => Request::Reserve,
        Call::Reserve {
            timeout: Some(seconds),
            ..
        } => Request::ReserveWithTimeout(seconds),
        Call::ReserveJob { job } => Request::ReserveJob(job),
        Call::Delete { job } => Request::Delete(job),
        Call::Release {
            job,
            priority,
            delay,
        } => Request::Release {
            job,
            priority,
            delay,
        },
        Call::Bury { job, priority } => Request::Bury { job, priority },
        Call::Touch { job } => Request::Touch(job),
        Call::Kick { bound, .. } => Request::Kick { bound },
        Call::KickJob { job } => Request::KickJob(job),
        Call::Peek { job } => Request::Peek(job),
        Call::PeekReady { .. } => Request::PeekReady,
        Call::PeekDelayed { .. } => Request::PeekDelayed,
        Call::PeekBuried { .. } => Request::PeekBuried,
        Call::StatsJob { job } => Request::StatsJob(job),
        Call::StatsTube { tube } => Request::StatsTube(tube),
        Call::PauseTube { tube, delay } => Request::PauseTube { tube, delay },
    }
}

/// What is recorded of an answer.
pub fn reply(call: &Call, reply: beanstalk::Reply) -> Reply {
    use beanstalk::Reply as Wire;
    match reply {
        Wire::Inserted(job) => Reply::Inserted { job },
        Wire::Reserved { job, body } => Reply::Reserved {
            job,
            body: Body::seen(&body),
        },
        Wire::Found { job, body } => Reply::Found {
            job,
            body: Body::seen(&body),
        },
        Wire::DeadlineSoon => Reply::DeadlineSoon,
        Wire::TimedOut => Reply::TimedOut,
        Wire::Deleted => Reply::Deleted,
        Wire::Released => Reply::Released,
        Wire::Buried => Reply::Buried,
        Wire::Touched => Reply::Touched,
        Wire::Kicked(count) => Reply::Kicked { count },
        Wire::KickedJob => Reply::KickedJob,
        Wire::Paused => Reply::Paused,
        Wire::NotFound => Reply::NotFound,
        Wire::OutOfMemory => Reply::OutOfMemory,
        Wire::Draining => Reply::Draining,
        Wire::InternalError => Reply::InternalError,
        Wire::Ok(yaml) => {
            let yaml = Yaml::read(&yaml);
            let told = match call {
                Call::StatsJob { .. } => yaml.job().map(Reply::JobStats),
                Call::StatsTube { .. } => yaml.tube().map(Reply::TubeStats),
                _ => None,
            };
            told.unwrap_or_else(|| Reply::Other {
                line: format!("OK {:?}", yaml.0),
            })
        }
        other => Reply::Other {
            line: format!("{other:?}"),
        },
    }
}

/// A dictionary as the statistics are written.
#[derive(Debug)]
pub struct Yaml(HashMap<String, String>);

impl Yaml {
    /// Reads what stands behind `OK`.
    pub fn read(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let pairs = text.lines().filter_map(|line| line.split_once(": "));
        Self(
            pairs
                .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()))
                .collect(),
        )
    }

    /// The entries of a list.
    pub fn list(text: &[u8]) -> Vec<String> {
        let text = String::from_utf8_lossy(text);
        let entries = text.lines().filter_map(|line| line.strip_prefix("- "));
        entries.map(str::to_owned).collect()
    }

    /// A number under `key`.
    pub fn number<N: std::str::FromStr>(&self, key: &str) -> Option<N> {
        self.0.get(key)?.parse().ok()
    }

    fn name(&self, key: &str) -> Option<TubeName> {
        TubeName::parse(self.0.get(key)?.as_bytes()).ok()
    }

    /// What `stats-job` tells.
    pub fn job(&self) -> Option<JobStats> {
        let state = match self.0.get("state")?.as_str() {
            "ready" => JobState::Ready,
            "delayed" => JobState::Delayed,
            "reserved" => JobState::Reserved,
            "buried" => JobState::Buried,
            _ => return None,
        };
        Some(JobStats {
            job: JobId(self.number("id")?),
            tube: self.name("tube")?,
            state,
            priority: Priority(self.number("pri")?),
            age: self.number("age")?,
            delay: Seconds(self.number("delay")?),
            ttr: Seconds(self.number("ttr")?),
            time_left: self.number("time-left")?,
            reserves: self.number("reserves")?,
            timeouts: self.number("timeouts")?,
            releases: self.number("releases")?,
            buries: self.number("buries")?,
            kicks: self.number("kicks")?,
        })
    }

    /// What `stats-tube` tells.
    pub fn tube(&self) -> Option<TubeStats> {
        Some(TubeStats {
            tube: self.name("name")?,
            urgent: self.number("current-jobs-urgent")?,
            ready: self.number("current-jobs-ready")?,
            reserved: self.number("current-jobs-reserved")?,
            delayed: self.number("current-jobs-delayed")?,
            buried: self.number("current-jobs-buried")?,
            total_jobs: self.number("total-jobs")?,
            deletes: self.number("cmd-delete")?,
        })
    }
}
