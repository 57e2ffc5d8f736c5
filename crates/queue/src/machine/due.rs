use std::collections::BTreeSet;

use trellis_types::{JobId, SessionId, Timestamp};

use super::Machine;
use crate::{Answer, Outcome, TubeId};

/// Everything that happens by itself, by kind; within a kind by (moment, id).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Due {
    /// Delayed jobs that become ready.
    pub(super) delayed: BTreeSet<(Timestamp, JobId)>,
    /// Pauses that end.
    pub(super) pauses: BTreeSet<(Timestamp, TubeId)>,
    /// Holds whose TTR runs out: 1 ms after the deadline.
    pub(super) ttr: BTreeSet<(Timestamp, JobId)>,
    /// Waits of sessions of which a hold enters its safety margin.
    pub(super) margins: BTreeSet<(Timestamp, SessionId)>,
    /// Waits that time out.
    pub(super) timeouts: BTreeSet<(Timestamp, SessionId)>,
}

/// One thing that is due. The order of the variants is the order at one moment: part of the
/// feature level, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Delayed(JobId),
    Pause(TubeId),
    Ttr(JobId),
    Margin(SessionId),
    Timeout(SessionId),
}

impl Due {
    /// The next thing in order of (due moment, kind, id).
    fn first(&self) -> Option<(Timestamp, Kind)> {
        [
            self.delayed
                .first()
                .map(|(at, id)| (*at, Kind::Delayed(*id))),
            self.pauses.first().map(|(at, id)| (*at, Kind::Pause(*id))),
            self.ttr.first().map(|(at, id)| (*at, Kind::Ttr(*id))),
            self.margins
                .first()
                .map(|(at, id)| (*at, Kind::Margin(*id))),
            self.timeouts
                .first()
                .map(|(at, id)| (*at, Kind::Timeout(*id))),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl Machine {
    /// When something happens by itself next; not later than [`Self::now`] if the bound per entry
    /// has left some over. `None` if only a command can change anything.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| at)
    }

    /// Lets everything happen that is due, in order of (due moment, kind, id), at most
    /// `bound`; the rest comes with the next entry.
    ///
    /// What begins here (the TTR of a job handed to a waiter) begins now, not at the moment at
    /// which it was due: a pause of the cluster eats no worker's time.
    ///
    /// Source: architecture, section 3.
    pub(super) fn fall_due(&mut self, bound: usize, out: &mut Outcome) {
        for _ in 0..bound {
            match self.due.first() {
                Some((at, kind)) if at <= self.meta.now => self.fire(kind, out),
                _ => return,
            }
        }
    }

    fn fire(&mut self, kind: Kind, out: &mut Outcome) {
        match kind {
            Kind::Delayed(job) => self.make_ready(job, out),
            Kind::Pause(tube) => self.end_pause(tube, out),
            Kind::Ttr(job) => {
                self.meta.job_timeouts = self.meta.job_timeouts.saturating_add(1);
                let count = |job: &mut super::jobs::Job| {
                    job.timeouts = job.timeouts.saturating_add(1);
                };
                self.make_ready_and(job, count, out);
            }
            Kind::Margin(session) => self.end_wait(session, Answer::DeadlineSoon, out),
            Kind::Timeout(session) => self.time_out(session, out),
        }
    }
}
