use std::fmt;

use serde::{Deserialize, Serialize};
use trellis_types::{JobId, Priority, Seconds, TubeName};

use super::Body;

/// A question of a client. Each names the tube that its connection uses or watches, so that none
/// has to be remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
#[allow(missing_docs)] // the fields are the protocol's own
pub enum Call {
    Put {
        tube: TubeName,
        priority: Priority,
        delay: Seconds,
        ttr: Seconds,
        body: Body,
    },
    Reserve {
        tubes: Vec<TubeName>,
        /// `None` waits for ever.
        timeout: Option<Seconds>,
    },
    ReserveJob {
        job: JobId,
    },
    Delete {
        job: JobId,
    },
    Release {
        job: JobId,
        priority: Priority,
        delay: Seconds,
    },
    Bury {
        job: JobId,
        priority: Priority,
    },
    Touch {
        job: JobId,
    },
    Kick {
        tube: TubeName,
        bound: u32,
    },
    KickJob {
        job: JobId,
    },
    Peek {
        job: JobId,
    },
    PeekReady {
        tube: TubeName,
    },
    PeekDelayed {
        tube: TubeName,
    },
    PeekBuried {
        tube: TubeName,
    },
    StatsJob {
        job: JobId,
    },
    StatsTube {
        tube: TubeName,
    },
    /// Somebody must use or watch the tube all the while, or the pause may go with the tube.
    PauseTube {
        tube: TubeName,
        delay: Seconds,
    },
}

impl Call {
    /// The job that it names, if it names one.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::ReserveJob { job }
            | Self::Delete { job }
            | Self::Release { job, .. }
            | Self::Bury { job, .. }
            | Self::Touch { job }
            | Self::KickJob { job }
            | Self::Peek { job }
            | Self::StatsJob { job } => Some(*job),
            _ => None,
        }
    }

    /// Whether it only looks.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Peek { .. }
                | Self::PeekReady { .. }
                | Self::PeekDelayed { .. }
                | Self::PeekBuried { .. }
                | Self::StatsJob { .. }
                | Self::StatsTube { .. }
        )
    }

    /// Whether its answer can come without the log: a read, or a poll of a queue that looks empty.
    pub fn may_bypass_log(&self) -> bool {
        self.is_read()
            || matches!(
                self,
                Self::Reserve {
                    timeout: Some(Seconds(0)),
                    ..
                }
            )
    }
}

/// As a person would type it, with the tube where the line itself does not say it.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put {
                tube,
                priority,
                delay,
                ttr,
                body,
            } => {
                let key = body.key.as_deref().unwrap_or("?");
                let (priority, delay, ttr) = (priority.0, delay.0, ttr.0);
                write!(
                    f,
                    "put {priority} {delay} {ttr} {} [{key}] in {tube}",
                    body.bytes
                )
            }
            Self::Reserve { tubes, timeout } => {
                match timeout {
                    None => write!(f, "reserve")?,
                    Some(seconds) => write!(f, "reserve-with-timeout {}", seconds.0)?,
                }
                let names: Vec<_> = tubes.iter().map(TubeName::as_str).collect();
                write!(f, " from {}", names.join(","))
            }
            Self::ReserveJob { job } => write!(f, "reserve-job {job}"),
            Self::Delete { job } => write!(f, "delete {job}"),
            Self::Release {
                job,
                priority,
                delay,
            } => write!(f, "release {job} {} {}", priority.0, delay.0),
            Self::Bury { job, priority } => write!(f, "bury {job} {}", priority.0),
            Self::Touch { job } => write!(f, "touch {job}"),
            Self::Kick { tube, bound } => write!(f, "kick {bound} in {tube}"),
            Self::KickJob { job } => write!(f, "kick-job {job}"),
            Self::Peek { job } => write!(f, "peek {job}"),
            Self::PeekReady { tube } => write!(f, "peek-ready in {tube}"),
            Self::PeekDelayed { tube } => write!(f, "peek-delayed in {tube}"),
            Self::PeekBuried { tube } => write!(f, "peek-buried in {tube}"),
            Self::StatsJob { job } => write!(f, "stats-job {job}"),
            Self::StatsTube { tube } => write!(f, "stats-tube {tube}"),
            Self::PauseTube { tube, delay } => write!(f, "pause-tube {tube} {}", delay.0),
        }
    }
}
