use bytes::Bytes;
use trellis_types::{JobId, Priority, Seconds, TubeName, limits};

use super::{
    Machine,
    jobs::{Job, Standing},
};
use crate::{Answer, Change, JobState, Key, Outcome};

impl Machine {
    /// A new job. It gets the next id, becomes delayed or ready, and goes to a waiter at once if
    /// there is one. `ttr` 0 becomes 1 s.
    ///
    /// Refused with [`Answer::OutOfMemory`], without burning an id, at the bounds for jobs, body
    /// bytes and tubes, and while puts are refused for want of disk.
    ///
    /// Source: protocol specification, 5.1; architecture, section 11.
    pub(super) fn put(
        &mut self,
        tube: &TubeName,
        priority: Priority,
        delay: Seconds,
        ttr: Seconds,
        body: &Bytes,
        out: &mut Outcome,
    ) -> Answer {
        let body_bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if !self.has_room(body_bytes) {
            return Answer::OutOfMemory;
        }
        let Some(tube) = self.open_tube(tube) else {
            return Answer::OutOfMemory;
        };

        let id = JobId(self.meta.next_job);
        self.meta.next_job = id.0.saturating_add(1);
        self.meta.total_jobs = self.meta.total_jobs.saturating_add(1);
        self.touch(Key::Tube(tube));
        if let Some(tube) = self.tubes.get_mut(tube) {
            tube.total_jobs = tube.total_jobs.saturating_add(1);
        }

        let state = self.ready_or_delayed(delay);
        let job = Job {
            id,
            order: id.0,
            tube,
            created: self.meta.now,
            standing: Standing::of(state),
            priority,
            delay,
            ttr: ttr.max(Seconds(1)),
            reserves: 0,
            timeouts: 0,
            releases: 0,
            buries: 0,
            kicks: 0,
            body_bytes,
            body_crc: crc32c::crc32c(body),
        };
        self.admit(job, state);
        // A copy: a slice would keep the whole entry in memory for as long as the body is known.
        out.changes.push(Change::Body {
            job: id,
            body: Bytes::copy_from_slice(body),
        });
        if state == JobState::Ready {
            self.offer(tube, out);
        }
        Answer::Inserted(id)
    }

    /// Where a job goes that was put or released with this delay, counted from now.
    pub(super) fn ready_or_delayed(&self, delay: Seconds) -> JobState {
        if delay == Seconds(0) {
            JobState::Ready
        } else {
            JobState::Delayed {
                until: self.meta.now.after(delay),
            }
        }
    }

    fn has_room(&self, body_bytes: u32) -> bool {
        let bytes = self.counts.job_bytes.saturating_add(u64::from(body_bytes));
        !self.meta.puts_refused
            && self.meta.next_job <= limits::JOB_ID_MAX
            && self.jobs.len() < self.meta.jobs_max
            && bytes <= self.meta.job_bytes_max
    }
}
