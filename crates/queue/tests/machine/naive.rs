//! The machine's rules once more, in the simplest way that can be right: lists, linear scans, and
//! beanstalkd's own dispatch loop after every event. Slow and obvious.

mod commands;
mod leader;
mod looking;

use trellis_queue::{Answer, Content, Entry, Event};
use trellis_types::{
    JobId, NodeId, OriginId, Priority, Run, Seconds, SessionId, Timestamp, TubeName, limits,
};

#[derive(Clone)]
struct Job {
    id: JobId,
    tube: TubeName,
    state: State,
    priority: Priority,
    delay: Seconds,
    ttr: Seconds,
    created: Timestamp,
    reserves: u32,
    timeouts: u32,
    releases: u32,
    buries: u32,
    kicks: u32,
    body_bytes: u32,
    body_crc: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Ready,
    Delayed(Timestamp),
    /// By whom, until when, and which hold of all holds this is.
    Held(SessionId, Timestamp, u64),
    /// Which burial of all burials this is.
    Buried(u64),
}

#[derive(Clone)]
struct Tube {
    number: u64,
    name: TubeName,
    references: Vec<OriginId>,
    pause: Option<(Seconds, Timestamp)>,
    total_jobs: u64,
    deletes: u64,
    pauses: u64,
}

#[derive(Clone)]
struct Wait {
    session: SessionId,
    tubes: Vec<TubeName>,
    until: Option<Timestamp>,
}

#[derive(Clone)]
struct Node {
    node: NodeId,
    run: Run,
    open: bool,
    last_seq: u64,
    suspended: bool,
}

#[derive(Clone)]
pub(crate) struct Naive {
    pub(crate) now: Timestamp,
    jobs: Vec<Job>,
    /// In order of creation.
    tubes: Vec<Tube>,
    /// In order of arrival.
    waits: Vec<Wait>,
    nodes: Vec<Node>,
    retired: Vec<NodeId>,
    pub(crate) jobs_put: u64,
    tubes_made: u64,
    counter: u64,
    job_timeouts: u64,
    puts_refused: bool,
    jobs_max: u64,
    job_bytes_max: u64,
    tubes_max: u64,
    watch_names_max: u32,
    feature_level: u32,
    events: Vec<Event>,
}

impl Naive {
    pub(crate) fn new() -> Self {
        let mut naive = Self {
            now: Timestamp(0),
            jobs: vec![],
            tubes: vec![],
            waits: vec![],
            nodes: vec![],
            retired: vec![],
            jobs_put: 0,
            tubes_made: 0,
            counter: 0,
            job_timeouts: 0,
            puts_refused: false,
            jobs_max: limits::JOBS_MAX_DEFAULT,
            job_bytes_max: limits::JOB_BYTES_MAX_DEFAULT,
            tubes_max: limits::TUBES_MAX_DEFAULT,
            watch_names_max: limits::WATCH_NAMES_MAX_DEFAULT as u32,
            feature_level: 0,
            events: vec![],
        };
        naive.make_tube(&TubeName::default_tube());
        naive
    }

    pub(crate) fn apply(&mut self, entry: &Entry) -> Vec<Event> {
        let is_behind = self.next_due().is_some_and(|at| at <= self.now);
        if entry.at > self.now {
            self.now = entry.at;
        }
        let bound = match &entry.content {
            _ if !is_behind => limits::DUE_AT_ONCE_MAX,
            Content::Batches(batches) => {
                let commands: usize = batches.iter().map(|batch| batch.items.len()).sum();
                limits::DUE_PER_BATCHES_MAX.max(commands * limits::DUE_PER_COMMAND_MAX)
            }
            Content::Leader(_) => limits::DUE_PER_TICK_MAX,
        };
        let mut fired = 0;
        while fired < bound && self.fire_one() {
            fired += 1;
        }
        match &entry.content {
            Content::Batches(batches) => batches.iter().for_each(|batch| self.batch(batch)),
            Content::Leader(commands) => commands.iter().for_each(|command| self.lead(command)),
        }
        std::mem::take(&mut self.events)
    }

    // ---- time

    /// All moments at which something happens: (moment, kind, id, index).
    fn agenda(&self) -> Vec<(Timestamp, u8, [u64; 3])> {
        let mut agenda = vec![];
        for job in &self.jobs {
            match job.state {
                State::Delayed(until) => agenda.push((until, 0, [job.id.0, 0, 0])),
                State::Held(_, deadline, _) => {
                    agenda.push((Timestamp(deadline.0.saturating_add(1)), 2, [job.id.0, 0, 0]));
                }
                State::Ready | State::Buried(_) => {}
            }
        }
        for tube in &self.tubes {
            if let Some((_, until)) = tube.pause {
                agenda.push((until, 1, [tube.number, 0, 0]));
            }
        }
        for wait in &self.waits {
            let SessionId { origin, connection } = wait.session;
            let id = [origin.node.0, origin.run.0, connection.0];
            if let Some(deadline) = self.earliest_deadline(wait.session) {
                agenda.push((Timestamp(deadline.0.saturating_sub(1_000)), 3, id));
            }
            if let Some(until) = wait.until {
                agenda.push((until, 4, id));
            }
        }
        agenda
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.agenda().into_iter().min().map(|(at, ..)| at)
    }

    fn fire_one(&mut self) -> bool {
        let Some((at, kind, id)) = self.agenda().into_iter().min() else {
            return false;
        };
        if at > self.now {
            return false;
        }
        match kind {
            0 => self.find(JobId(id[0])).unwrap().state = State::Ready,
            1 => {
                self.tubes
                    .iter_mut()
                    .find(|tube| tube.number == id[0])
                    .unwrap()
                    .pause = None
            }
            2 => {
                self.job_timeouts += 1;
                let job = self.find(JobId(id[0])).unwrap();
                job.timeouts += 1;
                job.state = State::Ready;
            }
            _ => {
                let at = self.waits.iter().position(|wait| {
                    let SessionId { origin, connection } = wait.session;
                    [origin.node.0, origin.run.0, connection.0] == id
                });
                let at = at.unwrap();
                if kind == 4 && self.is_passed_over(&self.waits[at]) {
                    let later = Timestamp(self.now.0.saturating_add(500));
                    self.waits[at].until = Some(later);
                    return true;
                }
                let session = self.waits.remove(at).session;
                let answer = if kind == 3 {
                    Answer::DeadlineSoon
                } else {
                    Answer::TimedOut
                };
                self.events.push(Event::Deferred { session, answer });
            }
        }
        self.dispatch();
        true
    }

    fn earliest_deadline(&self, session: SessionId) -> Option<Timestamp> {
        self.jobs
            .iter()
            .filter_map(|job| match job.state {
                State::Held(who, deadline, _) if who == session => Some(deadline),
                _ => None,
            })
            .min()
    }

    // ---- dispatch (6.2)

    fn dispatch(&mut self) {
        loop {
            let mut ready: Vec<&Job> = self
                .jobs
                .iter()
                .filter(|j| j.state == State::Ready)
                .collect();
            ready.sort_by_key(|job| (job.priority, job.id));
            let pair = ready.into_iter().find_map(|job| {
                if self.is_paused(&job.tube) {
                    return None;
                }
                let waiter = self.waits.iter().position(|wait| {
                    wait.tubes.contains(&job.tube) && !self.is_suspended(wait.session.origin)
                })?;
                Some((job.id, waiter))
            });
            let Some((job, waiter)) = pair else { return };
            let session = self.waits.remove(waiter).session;
            let answer = self.hold(job, session);
            self.events.push(Event::Deferred { session, answer });
        }
    }

    fn hold(&mut self, id: JobId, session: SessionId) -> Answer {
        self.counter += 1;
        let (now, counter) = (self.now, self.counter);
        let job = self.find(id).unwrap();
        job.reserves += 1;
        let deadline = Timestamp(now.0.saturating_add(u64::from(job.ttr.0) * 1_000));
        job.state = State::Held(session, deadline, counter);
        Answer::Reserved {
            job: id,
            attempt: job.reserves,
            body_bytes: job.body_bytes,
        }
    }

    fn is_paused(&self, tube: &TubeName) -> bool {
        self.tubes
            .iter()
            .any(|t| t.name == *tube && t.pause.is_some())
    }

    fn is_passed_over(&self, wait: &Wait) -> bool {
        let ready = |job: &Job| {
            job.state == State::Ready
                && wait.tubes.contains(&job.tube)
                && !self.is_paused(&job.tube)
        };
        self.is_suspended(wait.session.origin) && self.jobs.iter().any(ready)
    }

    fn is_suspended(&self, origin: OriginId) -> bool {
        self.nodes
            .iter()
            .any(|n| (n.node, n.run) == (origin.node, origin.run) && n.suspended)
    }

    // ---- tubes

    fn has_or_makes_tube(&mut self, name: &TubeName) -> bool {
        if self.tube_mut(name).is_none() {
            if self.tubes.len() as u64 >= self.tubes_max {
                return false;
            }
            self.make_tube(name);
        }
        true
    }

    fn make_tube(&mut self, name: &TubeName) {
        self.tubes_made += 1;
        self.tubes.push(Tube {
            number: self.tubes_made,
            name: name.clone(),
            references: vec![],
            pause: None,
            total_jobs: 0,
            deletes: 0,
            pauses: 0,
        });
    }

    fn drop_unwanted_tubes(&mut self) {
        let jobs = &self.jobs;
        self.tubes.retain(|tube| {
            tube.name.is_default()
                || !tube.references.is_empty()
                || jobs.iter().any(|job| job.tube == tube.name)
        });
    }

    // ---- looking

    fn find(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.id == id)
    }

    fn held(&mut self, session: SessionId, id: JobId) -> Option<&mut Job> {
        self.find(id)
            .filter(|job| matches!(job.state, State::Held(who, ..) if who == session))
    }

    fn tube_mut(&mut self, name: &TubeName) -> Option<&mut Tube> {
        self.tubes.iter_mut().find(|tube| tube.name == *name)
    }
}
