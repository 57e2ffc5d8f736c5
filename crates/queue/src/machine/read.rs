//! Questions. They change nothing and never enter the log; `now` is what the asker takes for the
//! present, because time in the machine stands still between entries.
//!
//! Source: architecture, section 8; protocol specification, 5.10, 5.14, 5.15 and 7.

use trellis_types::{JobId, NodeId, OriginId, SessionId, Timestamp, TubeName};

use super::{Machine, jobs::Standing};
use crate::{JobView, OriginView, ServerView, TubeView};

impl Machine {
    /// Cluster time of the last entry.
    pub fn now(&self) -> Timestamp {
        self.meta.now
    }

    /// What `stats-job` tells of a job at `now`; `None` if there is none.
    pub fn job(&self, id: JobId, now: Timestamp) -> Option<JobView> {
        let job = self.jobs.get(id)?;
        let hold = self.holds.get(&id);
        let (state, end) = match job.standing {
            Standing::Ready => ("ready", None),
            Standing::Delayed(until) => ("delayed", Some(until)),
            Standing::Reserved => ("reserved", hold.map(|hold| hold.deadline)),
            Standing::Buried(_) => ("buried", None),
        };
        Some(JobView {
            id,
            tube: self.tubes.get(job.tube)?.name.clone(),
            state,
            holder: hold.map(|hold| hold.holder),
            priority: job.priority,
            age_seconds: now.seconds_since(job.created),
            delay: job.delay,
            ttr: job.ttr,
            time_left_seconds: end.map_or(0, |end| end.seconds_since(now)),
            reserves: job.reserves,
            timeouts: job.timeouts,
            releases: job.releases,
            buries: job.buries,
            kicks: job.kicks,
            body_bytes: job.body_bytes,
            body_crc: job.body_crc,
        })
    }

    /// What `stats-tube` tells of a tube at `now`; `None` if there is none.
    pub fn tube(&self, name: &TubeName, now: Timestamp) -> Option<TubeView> {
        let tube = self.tube_named(name)?;
        Some(TubeView {
            name: tube.name.clone(),
            urgent: tube.urgent,
            ready: count(tube.ready.len()),
            reserved: tube.reserved,
            delayed: count(tube.delayed.len()),
            buried: count(tube.buried.len()),
            total_jobs: tube.total_jobs,
            waiting: self
                .origins
                .values()
                .filter_map(|live| live.lines.get(name))
                .fold(0, |sum, line| sum.saturating_add(count(line.len()))),
            deletes: tube.deletes,
            pauses: tube.pauses,
            pause: tube.pause,
            pause_left_seconds: if tube.is_paused() {
                tube.pause_until.seconds_since(now)
            } else {
                0
            },
        })
    }

    /// The replicated part of `stats`.
    pub fn server(&self) -> ServerView {
        ServerView {
            urgent: self.counts.urgent,
            ready: self.counts.ready,
            reserved: count(self.holds.len()),
            delayed: count(self.due.delayed.len()),
            buried: self.counts.buried,
            job_bytes: self.counts.job_bytes,
            job_timeouts: self.meta.job_timeouts,
            total_jobs: self.meta.total_jobs,
            tubes: count(self.tubes.len()),
            waiting: self.counts.waiting,
            puts_refused: self.meta.puts_refused,
            feature_level: self.meta.feature_level,
        }
    }

    /// The names of all tubes, in order of creation.
    pub fn tubes(&self) -> impl Iterator<Item = &TubeName> + '_ {
        self.tubes.values().map(|tube| &tube.name)
    }

    /// The ready job that is first by (priority, order). A pause plays no part.
    pub fn peek_ready(&self, tube: &TubeName) -> Option<JobId> {
        self.tube_named(tube)?.ready.first().map(|place| place.job)
    }

    /// The delayed job that matures first.
    pub fn peek_delayed(&self, tube: &TubeName) -> Option<JobId> {
        self.tube_named(tube)?.delayed.first().map(|(_, job)| *job)
    }

    /// The job that has been buried longest.
    pub fn peek_buried(&self, tube: &TubeName) -> Option<JobId> {
        self.tube_named(tube)?
            .buried
            .first_key_value()
            .map(|(_, job)| *job)
    }

    /// Whether an immediate reserve over `tubes` would get a job (a paused tube gives none).
    pub fn would_reserve(&self, tubes: &[TubeName]) -> bool {
        tubes
            .iter()
            .filter_map(|name| self.tube_named(name))
            .any(|tube| tube.offered().is_some())
    }

    /// Whether a session holds a job.
    pub fn holds_any(&self, session: SessionId) -> bool {
        self.session(session)
            .is_some_and(|session| !session.holds.is_empty())
    }

    /// Whether a reserve of this session is parked.
    pub fn is_waiting(&self, session: SessionId) -> bool {
        self.is_parked(session)
    }

    /// Whether the machine knows that sessions of `origin` use or watch `tube`.
    pub fn has_reference(&self, origin: OriginId, tube: &TubeName) -> bool {
        self.tube_named(tube)
            .is_some_and(|tube| tube.references.binary_search(&origin).is_ok())
    }

    /// What is known of a node's origins; `None` if it never opened one.
    pub fn origin(&self, node: NodeId) -> Option<OriginView> {
        let row = self.origin_row(node)?;
        Some(OriginView {
            node,
            highest_run: row.highest_run,
            open: row.open.then_some(OriginId {
                node,
                run: row.highest_run,
            }),
            last_seq: row.last_seq,
            suspended: row.suspended,
        })
    }

    /// The same of all nodes that ever opened one, by node id.
    pub fn origins(&self) -> impl Iterator<Item = OriginView> + '_ {
        self.runs.keys().filter_map(|node| self.origin(*node))
    }

    /// Whether the node was removed from the cluster for ever.
    pub fn is_retired(&self, node: NodeId) -> bool {
        self.meta.retired.binary_search(&node).is_ok()
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
