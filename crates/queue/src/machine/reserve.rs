use trellis_types::{JobId, Seconds, SessionId, TubeName};

use super::Machine;
use crate::{Answer, JobState, Verdict};

impl Machine {
    /// The best ready job over all of `tubes`, or a place in line.
    ///
    /// A ready job beats `DEADLINE_SOON`, which beats waiting and `TIMED_OUT`. A paused tube gives
    /// nothing. A reserve of a suspended origin takes no job but waits, so that a node that is
    /// away swallows none; with time-out 0 it is decided as usual.
    ///
    /// The first in line needs no regard: nobody whose turn it is waits beside a ready job.
    ///
    /// Refused with [`Answer::OutOfMemory`] if it lists more names than the setting allows.
    ///
    /// Source: protocol specification, 5.3 and 6.6; architecture, section 6.
    pub(super) fn reserve(
        &mut self,
        session: SessionId,
        tubes: &[TubeName],
        timeout: Option<Seconds>,
    ) -> Verdict {
        if tubes.len() > usize::try_from(self.meta.watch_names_max).unwrap_or(usize::MAX) {
            return Verdict::Answer(Answer::OutOfMemory);
        }
        let polls = timeout == Some(Seconds(0));
        let suspended = self
            .origins
            .get(&session.origin)
            .is_none_or(|live| live.suspended);
        if (polls || !suspended)
            && let Some(job) = self.best_of(tubes)
            && let Some(answer) = self.hold(job, session)
        {
            return Verdict::Answer(answer);
        }
        // Also of a suspended origin, beside a ready job: it would be warned by the next entry.
        if self.is_inside_margin(session) {
            return Verdict::Answer(Answer::DeadlineSoon);
        }
        if polls {
            return Verdict::Answer(Answer::TimedOut);
        }
        self.park(
            session,
            tubes,
            timeout.map(|timeout| self.meta.now.after(timeout)),
        );
        Verdict::Parked
    }

    /// That very job: ready, delayed or buried, in whatever tube, paused or not.
    ///
    /// [`Answer::NotFound`] if there is none or somebody holds it, the asker included.
    ///
    /// Source: protocol specification, 5.4.
    pub(super) fn reserve_job(&mut self, session: SessionId, id: JobId) -> Answer {
        if self.holds.contains_key(&id) {
            return Answer::NotFound;
        }
        self.hold(id, session).unwrap_or(Answer::NotFound)
    }

    /// Begins a hold: one reservation more, a whole TTR from now. `None` if there is no such job.
    pub(super) fn hold(&mut self, id: JobId, holder: SessionId) -> Option<Answer> {
        let job = self.jobs.get(id)?;
        let (ttr, body_bytes) = (job.ttr, job.body_bytes);
        let attempt = job.reserves.saturating_add(1);
        let deadline = self.meta.now.after(ttr);
        let sequence = self.take_sequence();
        let state = JobState::Reserved {
            holder,
            deadline,
            sequence,
        };
        self.shift(id, state, |job| job.reserves = attempt);
        Some(Answer::Reserved {
            job: id,
            attempt,
            body_bytes,
        })
    }

    /// The smallest (priority, order) over the heads of these tubes; their order plays no part.
    pub(super) fn best_of(&self, tubes: &[TubeName]) -> Option<JobId> {
        tubes
            .iter()
            .filter_map(|name| self.tube_named(name)?.offered())
            .min()
            .map(|place| place.job)
    }
}
