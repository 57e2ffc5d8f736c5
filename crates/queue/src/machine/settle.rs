//! How a job leaves its holder's hands. Who does not hold it is told `NOT_FOUND`, as if there were
//! no such job: the protocol has one word for both.

use trellis_types::{JobId, Priority, Seconds, SessionId};

use super::Machine;
use crate::{Answer, JobState, Key, Outcome};

impl Machine {
    /// Ends a job. A held one can only be deleted by its holder, any other by anybody.
    ///
    /// Source: protocol specification, 5.5.
    pub(super) fn delete(&mut self, session: SessionId, id: JobId) -> Answer {
        let Some(job) = self.jobs.get(id) else {
            return Answer::NotFound;
        };
        if self
            .holds
            .get(&id)
            .is_some_and(|hold| hold.holder != session)
        {
            return Answer::NotFound;
        }
        let tube = job.tube;
        self.touch(Key::Tube(tube));
        if let Some(tube) = self.tubes.get_mut(tube) {
            tube.deletes = tube.deletes.saturating_add(1);
        }
        self.dismiss(id);
        Answer::Deleted
    }

    /// Gives a held job back, at once or after `delay`, with a new priority. Among jobs of equal
    /// priority it takes its old place: order goes by age, not by release.
    ///
    /// Source: protocol specification, 5.6.
    pub(super) fn release(
        &mut self,
        session: SessionId,
        id: JobId,
        priority: Priority,
        delay: Seconds,
        out: &mut Outcome,
    ) -> Answer {
        if self.hold_of(session, id).is_none() {
            return Answer::NotFound;
        }
        let change = |job: &mut super::jobs::Job| {
            job.priority = priority;
            job.delay = delay;
            job.releases = job.releases.saturating_add(1);
        };
        match self.ready_or_delayed(delay) {
            JobState::Ready => self.make_ready_and(id, change, out),
            delayed => self.shift(id, delayed, change),
        }
        Answer::Released
    }

    /// Lays a held job aside, behind the tube's earlier burials, with a new priority.
    ///
    /// Source: protocol specification, 5.7.
    pub(super) fn bury(&mut self, session: SessionId, id: JobId, priority: Priority) -> Answer {
        if self.hold_of(session, id).is_none() {
            return Answer::NotFound;
        }
        let sequence = self.take_sequence();
        self.shift(id, JobState::Buried { sequence }, |job| {
            job.priority = priority;
            job.buries = job.buries.saturating_add(1);
        });
        Answer::Buried
    }

    /// Starts the TTR again. The hold keeps its place among the holds of its session.
    ///
    /// Source: protocol specification, 5.8.
    pub(super) fn touch_job(&mut self, session: SessionId, id: JobId) -> Answer {
        let Some(hold) = self.hold_of(session, id) else {
            return Answer::NotFound;
        };
        let Some(job) = self.jobs.get(id) else {
            return Answer::NotFound;
        };
        let deadline = self.meta.now.after(job.ttr);
        let state = JobState::Reserved {
            holder: session,
            deadline,
            sequence: hold.sequence,
        };
        self.shift(id, state, |_| {});
        Answer::Touched
    }
}
