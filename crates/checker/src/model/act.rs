use crate::history::{JobStats, TubeStats};

/// What an operation does or sees, as the tube has it. Jobs are named by their place in the tube.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Put {
        job: usize,
        priority: u32,
        delay: u32,
    },
    /// `RESERVED`: by a reserve if `in_turn`, else by a reserve-job.
    Take {
        job: usize,
        by: u64,
        in_turn: bool,
    },
    /// A reserve-job that got nothing.
    NotTaken {
        job: usize,
    },
    Delete {
        job: usize,
        by: u64,
        done: bool,
    },
    Release {
        job: usize,
        by: u64,
        priority: u32,
        delay: u32,
    },
    Bury {
        job: usize,
        by: u64,
        priority: u32,
    },
    Touch {
        job: usize,
        by: u64,
    },
    /// A release, bury or touch that got `NOT_FOUND`.
    NotHeld {
        job: usize,
        by: u64,
    },
    KickJob {
        job: usize,
        done: bool,
    },
    /// `count` is `None` if nobody heard it.
    Kick {
        bound: u32,
        count: Option<u32>,
    },
    /// `peek`.
    See {
        job: usize,
        there: bool,
    },
    SeeHead {
        head: Head,
        job: Option<usize>,
    },
    Stats {
        job: usize,
        seen: Option<JobStats>,
        /// Whether everything was over then.
        last: bool,
    },
    Counts {
        seen: TubeStats,
    },
    /// `TIMED_OUT`.
    Empty,
    /// `firm` if the pause cannot have been lost together with the tube.
    Pause {
        delay: u32,
        firm: bool,
    },
}

/// Which end of a tube a peek looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Ready,
    Delayed,
    Buried,
}

impl Act {
    /// The job concerned, if it is one.
    pub(crate) fn job(&self) -> Option<usize> {
        match self {
            Self::Put { job, .. }
            | Self::Take { job, .. }
            | Self::NotTaken { job }
            | Self::Delete { job, .. }
            | Self::Release { job, .. }
            | Self::Bury { job, .. }
            | Self::Touch { job, .. }
            | Self::NotHeld { job, .. }
            | Self::KickJob { job, .. }
            | Self::See { job, .. }
            | Self::Stats { job, .. } => Some(*job),
            Self::SeeHead { job, .. } => *job,
            Self::Kick { .. } | Self::Counts { .. } | Self::Empty | Self::Pause { .. } => None,
        }
    }

    /// Whether it leaves a mark on its job that somebody may see much later.
    pub(crate) fn leaves_a_mark(&self) -> bool {
        matches!(
            self,
            Self::Release { .. } | Self::Bury { .. } | Self::Take { .. } | Self::KickJob { .. }
        )
    }

    /// Whether any job of the tube can decide how it goes.
    pub(crate) fn is_about_the_tube(&self) -> bool {
        matches!(
            self,
            Self::Kick { .. } | Self::SeeHead { .. } | Self::Counts { .. }
        )
    }

    /// Whether it looks at what is there while the run goes on.
    pub(crate) fn is_read(&self) -> bool {
        matches!(
            self,
            Self::See { .. }
                | Self::SeeHead { .. }
                | Self::Stats { last: false, .. }
                | Self::Counts { .. }
                | Self::Empty
        )
    }

    /// Whether it was to change something and did not.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NotTaken { .. }
                | Self::NotHeld { .. }
                | Self::Delete { done: false, .. }
                | Self::KickJob { done: false, .. }
        )
    }
}
