//! Everything that can be asked, counted from scratch.

use trellis_queue::{JobView, OriginView, ServerView, TubeView};
use trellis_types::{JobId, NodeId, OriginId, Seconds, SessionId, Timestamp, TubeName};

use super::{Job, Naive, State};

impl Naive {
    pub(crate) fn first_ready(&self, tube: &TubeName) -> Option<JobId> {
        self.jobs
            .iter()
            .filter(|job| job.tube == *tube && job.state == State::Ready)
            .min_by_key(|job| (job.priority, job.id))
            .map(|job| job.id)
    }

    pub(crate) fn first_delayed(&self, tube: &TubeName) -> Option<JobId> {
        let delayed = self.jobs.iter().filter(|job| job.tube == *tube);
        delayed
            .filter_map(|job| match job.state {
                State::Delayed(until) => Some((until, job.id)),
                _ => None,
            })
            .min()
            .map(|(_, id)| id)
    }

    pub(crate) fn first_buried(&self, tube: &TubeName) -> Option<JobId> {
        let buried = self.jobs.iter().filter(|job| job.tube == *tube);
        buried
            .filter_map(|job| match job.state {
                State::Buried(which) => Some((which, job.id)),
                _ => None,
            })
            .min()
            .map(|(_, id)| id)
    }

    pub(crate) fn would_reserve(&self, tubes: &[TubeName]) -> bool {
        tubes
            .iter()
            .any(|tube| !self.is_paused(tube) && self.first_ready(tube).is_some())
    }

    pub(crate) fn holds_any(&self, session: SessionId) -> bool {
        self.earliest_deadline(session).is_some()
    }

    pub(crate) fn is_waiting(&self, session: SessionId) -> bool {
        self.waits.iter().any(|wait| wait.session == session)
    }

    pub(crate) fn has_reference(&self, origin: OriginId, tube: &TubeName) -> bool {
        self.tubes
            .iter()
            .any(|t| t.name == *tube && t.references.contains(&origin))
    }

    pub(crate) fn is_retired(&self, node: NodeId) -> bool {
        self.retired.contains(&node)
    }

    pub(crate) fn tubes(&self) -> Vec<TubeName> {
        self.tubes.iter().map(|tube| tube.name.clone()).collect()
    }

    pub(crate) fn origins(&self) -> Vec<OriginView> {
        self.nodes
            .iter()
            .map(|known| OriginView {
                node: known.node,
                highest_run: known.run,
                open: known.open.then_some(OriginId {
                    node: known.node,
                    run: known.run,
                }),
                last_seq: known.last_seq,
                suspended: known.suspended,
            })
            .collect()
    }

    pub(crate) fn job(&self, id: JobId, now: Timestamp) -> Option<JobView> {
        let job = self.jobs.iter().find(|job| job.id == id)?;
        let (state, holder, end) = match job.state {
            State::Ready => ("ready", None, now),
            State::Delayed(until) => ("delayed", None, until),
            State::Held(who, deadline, _) => ("reserved", Some(who), deadline),
            State::Buried(_) => ("buried", None, now),
        };
        Some(JobView {
            id,
            tube: job.tube.clone(),
            state,
            holder,
            priority: job.priority,
            age_seconds: now.0.saturating_sub(job.created.0) / 1_000,
            delay: job.delay,
            ttr: job.ttr,
            time_left_seconds: end.0.saturating_sub(now.0) / 1_000,
            reserves: job.reserves,
            timeouts: job.timeouts,
            releases: job.releases,
            buries: job.buries,
            kicks: job.kicks,
            body_bytes: job.body_bytes,
            body_crc: job.body_crc,
        })
    }

    pub(crate) fn tube(&self, name: &TubeName, now: Timestamp) -> Option<TubeView> {
        let tube = self.tubes.iter().find(|tube| tube.name == *name)?;
        let jobs: Vec<&Job> = self.jobs.iter().filter(|job| job.tube == *name).collect();
        let of = |wanted: fn(&State) -> bool| {
            jobs.iter().filter(|job| wanted(&job.state)).count() as u64
        };
        let urgent = |job: &&&Job| job.state == State::Ready && job.priority.0 < 1024;
        Some(TubeView {
            name: name.clone(),
            urgent: jobs.iter().filter(urgent).count() as u64,
            ready: of(|state| *state == State::Ready),
            reserved: of(|state| matches!(state, State::Held(..))),
            delayed: of(|state| matches!(state, State::Delayed(_))),
            buried: of(|state| matches!(state, State::Buried(_))),
            total_jobs: tube.total_jobs,
            waiting: self
                .waits
                .iter()
                .filter(|wait| wait.tubes.contains(name))
                .count() as u64,
            deletes: tube.deletes,
            pauses: tube.pauses,
            pause: tube.pause.map_or(Seconds(0), |(length, _)| length),
            pause_left_seconds: tube
                .pause
                .map_or(0, |(_, until)| until.0.saturating_sub(now.0) / 1_000),
        })
    }

    pub(crate) fn server(&self) -> ServerView {
        let sum = |figure: fn(&TubeView) -> u64| -> u64 {
            self.tubes
                .iter()
                .filter_map(|tube| self.tube(&tube.name, self.now))
                .map(|view| figure(&view))
                .sum()
        };
        ServerView {
            urgent: sum(|tube| tube.urgent),
            ready: sum(|tube| tube.ready),
            reserved: sum(|tube| tube.reserved),
            delayed: sum(|tube| tube.delayed),
            buried: sum(|tube| tube.buried),
            job_bytes: self.jobs.iter().map(|job| u64::from(job.body_bytes)).sum(),
            job_timeouts: self.job_timeouts,
            total_jobs: self.jobs_put,
            tubes: self.tubes.len() as u64,
            waiting: self.waits.len() as u64,
            puts_refused: self.puts_refused,
            feature_level: self.feature_level,
        }
    }
}
