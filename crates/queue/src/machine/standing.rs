//! Where jobs stand. The only place that changes the indexes over jobs and their counts.

use trellis_types::{
    JobId, SessionId,
    seeded::{Bug, planted},
};

use super::{
    Hold, Machine,
    jobs::{Job, Place, Standing},
};
use crate::{JobState, Key, Outcome, TubeId};

impl Machine {
    pub(super) fn state_of(&self, job: &Job) -> JobState {
        match job.standing {
            Standing::Ready => JobState::Ready,
            Standing::Delayed(until) => JobState::Delayed { until },
            Standing::Buried(sequence) => JobState::Buried { sequence },
            Standing::Reserved => match self.holds.get(&job.id) {
                Some(hold) => JobState::Reserved {
                    holder: hold.holder,
                    deadline: hold.deadline,
                    sequence: hold.sequence,
                },
                // Cannot be (`check`); a job that nobody holds may be reserved.
                None => JobState::Ready,
            },
        }
    }

    /// The hold of `session` on this job, if it has one.
    pub(super) fn hold_of(&self, session: SessionId, id: JobId) -> Option<Hold> {
        self.holds
            .get(&id)
            .copied()
            .filter(|hold| hold.holder == session || planted(Bug::StaleOwnerSettles))
    }

    /// Lets a new job in. Its standing must not have been indexed before.
    pub(super) fn admit(&mut self, job: Job, state: JobState) {
        let (id, place, tube) = (job.id, job.place(), job.tube);
        self.touch(Key::Job(id));
        self.counts.job_bytes = self
            .counts
            .job_bytes
            .saturating_add(u64::from(job.body_bytes));
        self.jobs.insert(job);
        self.index(tube, place, state);
    }

    /// Moves a job to `state`; `change` may alter its header on the way, when it stands nowhere.
    pub(super) fn shift(&mut self, id: JobId, state: JobState, change: impl FnOnce(&mut Job)) {
        let Some(job) = self.jobs.get(id) else { return };
        let (place, tube, old) = (job.place(), job.tube, self.state_of(job));
        self.touch(Key::Job(id));
        self.unindex(tube, place, old);
        if let Some(job) = self.jobs.get_mut(id) {
            change(job);
            job.standing = Standing::of(state);
            let place = job.place();
            self.index(tube, place, state);
        }
    }

    /// Ends a job; the tube may end with it.
    pub(super) fn dismiss(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let (place, tube, state) = (job.place(), job.tube, self.state_of(job));
        let bytes = u64::from(job.body_bytes);
        self.touch(Key::Job(id));
        self.unindex(tube, place, state);
        self.jobs.remove(id);
        self.counts.job_bytes = self.counts.job_bytes.saturating_sub(bytes);
        self.reap_tube(tube);
    }

    /// Makes a job ready, whatever it was, and hands it to the first waiter in the same breath.
    ///
    /// Source: architecture, section 6; protocol specification, 6.2.
    pub(super) fn make_ready(&mut self, id: JobId, out: &mut Outcome) {
        self.make_ready_and(id, |_| {}, out);
    }

    /// The same; `change` alters the header before anybody can get the job.
    pub(super) fn make_ready_and(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut Job),
        out: &mut Outcome,
    ) {
        let Some(tube) = self.jobs.get(id).map(|job| job.tube) else {
            return;
        };
        self.shift(id, JobState::Ready, change);
        self.offer(tube, out);
    }

    pub(super) fn index(&mut self, tube: TubeId, place: Place, state: JobState) {
        if let Some(tube) = self.tubes.get_mut(tube) {
            tube.enter(place, state);
        }
        match state {
            JobState::Ready => {
                self.counts.ready = self.counts.ready.saturating_add(1);
                if place.priority.is_urgent() {
                    self.counts.urgent = self.counts.urgent.saturating_add(1);
                }
            }
            JobState::Delayed { until } => {
                self.due.delayed.insert((until, place.job));
            }
            JobState::Buried { .. } => {
                self.counts.buried = self.counts.buried.saturating_add(1);
            }
            JobState::Reserved {
                holder,
                deadline,
                sequence,
            } => {
                self.holds.insert(
                    place.job,
                    Hold {
                        holder,
                        deadline,
                        sequence,
                    },
                );
                self.due.ttr.insert((expiry(deadline), place.job));
                if let Some(live) = self.origins.get_mut(&holder.origin) {
                    let session = live.sessions.entry(holder.connection).or_default();
                    session.holds.insert(sequence, place.job);
                    session.deadlines.insert((deadline, place.job));
                }
                self.set_margin(holder);
            }
        }
    }

    fn unindex(&mut self, tube: TubeId, place: Place, state: JobState) {
        if let Some(tube) = self.tubes.get_mut(tube) {
            tube.leave(place, state);
        }
        match state {
            JobState::Ready => {
                self.counts.ready = self.counts.ready.saturating_sub(1);
                if place.priority.is_urgent() {
                    self.counts.urgent = self.counts.urgent.saturating_sub(1);
                }
            }
            JobState::Delayed { until } => {
                self.due.delayed.remove(&(until, place.job));
            }
            JobState::Buried { .. } => {
                self.counts.buried = self.counts.buried.saturating_sub(1);
            }
            JobState::Reserved {
                holder,
                deadline,
                sequence,
            } => {
                self.holds.remove(&place.job);
                self.due.ttr.remove(&(expiry(deadline), place.job));
                if let Some(live) = self.origins.get_mut(&holder.origin)
                    && let Some(session) = live.sessions.get_mut(&holder.connection)
                {
                    session.holds.remove(&sequence);
                    session.deadlines.remove(&(deadline, place.job));
                }
                self.set_margin(holder);
                self.drop_idle(holder);
            }
        }
    }
}

/// When a hold's TTR is due: beanstalkd's condition is now > deadline (6.5).
fn expiry(deadline: trellis_types::Timestamp) -> trellis_types::Timestamp {
    deadline.after_ms(1)
}
