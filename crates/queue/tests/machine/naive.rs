//! The machine's rules once more, in the simplest way that can be right: lists, linear scans, and
//! beanstalkd's own dispatch loop after every event. Slow and obvious.

use trellis_queue::{
    Answer, Batch, Command, Content, Entry, Event, Fate, JobView, LeaderCommand, OriginView,
    ServerView, Setting, TubeView, Verdict,
};
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
        if entry.at > self.now {
            self.now = entry.at;
        }
        let mut fired = 0;
        while fired < limits::DUE_PER_ENTRY_MAX && self.fire_one() {
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
                let session = self.waits.remove(at.unwrap()).session;
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

    fn is_suspended(&self, origin: OriginId) -> bool {
        self.nodes
            .iter()
            .any(|n| (n.node, n.run) == (origin.node, origin.run) && n.suspended)
    }

    // ---- batches

    fn batch(&mut self, batch: &Batch) {
        let OriginId { node, run } = batch.origin;
        let known = self
            .nodes
            .iter_mut()
            .find(|n| n.node == node && n.run == run && n.open);
        let fate = match known {
            None => Some(Fate::NotOpen),
            Some(known) if batch.seq <= known.last_seq => Some(Fate::Duplicate),
            Some(known) if batch.seq > known.last_seq + 1 => Some(Fate::Hole {
                last: known.last_seq,
            }),
            Some(known) => {
                known.last_seq += 1;
                None
            }
        };
        let mut caused = vec![];
        let fate = fate.unwrap_or_else(|| {
            let before = std::mem::take(&mut self.events);
            let mut skipped = vec![];
            let verdicts = batch
                .items
                .iter()
                .map(|item| {
                    let session = SessionId {
                        origin: batch.origin,
                        connection: item.connection,
                    };
                    let exempt = matches!(
                        item.command,
                        Command::EndWait | Command::CloseSession | Command::TubeRef { .. }
                    );
                    let parked = self.waits.iter().any(|wait| wait.session == session);
                    if !exempt && (parked || skipped.contains(&session)) {
                        skipped.push(session);
                        return Verdict::Skipped;
                    }
                    if item.command == Command::CloseSession {
                        skipped.push(session);
                    }
                    self.command(session, &item.command)
                })
                .collect();
            caused = std::mem::replace(&mut self.events, before);
            Fate::Applied(verdicts)
        });
        self.events.push(Event::Batch {
            origin: batch.origin,
            seq: batch.seq,
            fate,
        });
        self.events.extend(caused);
    }

    fn command(&mut self, session: SessionId, command: &Command) -> Verdict {
        let verdict = self.decide(session, command);
        self.dispatch();
        self.drop_unwanted_tubes();
        verdict
    }

    fn decide(&mut self, session: SessionId, command: &Command) -> Verdict {
        let now = self.now;
        let later = |delay: Seconds| Timestamp(now.0.saturating_add(u64::from(delay.0) * 1_000));
        let answer = match command {
            Command::Put {
                tube,
                priority,
                delay,
                ttr,
                body,
            } => {
                let bytes: u64 = self.jobs.iter().map(|job| u64::from(job.body_bytes)).sum();
                if self.puts_refused
                    || self.jobs.len() as u64 >= self.jobs_max
                    || bytes + body.len() as u64 > self.job_bytes_max
                    || !self.has_or_makes_tube(tube)
                {
                    return Verdict::Answer(Answer::OutOfMemory);
                }
                self.jobs_put += 1;
                self.tube_mut(tube).unwrap().total_jobs += 1;
                let id = JobId(self.jobs_put);
                self.jobs.push(Job {
                    id,
                    tube: tube.clone(),
                    state: if delay.0 > 0 {
                        State::Delayed(later(*delay))
                    } else {
                        State::Ready
                    },
                    priority: *priority,
                    delay: *delay,
                    ttr: if ttr.0 == 0 { Seconds(1) } else { *ttr },
                    created: now,
                    reserves: 0,
                    timeouts: 0,
                    releases: 0,
                    buries: 0,
                    kicks: 0,
                    body_bytes: body.len() as u32,
                    body_crc: crc32c::crc32c(body),
                });
                Answer::Inserted(id)
            }
            Command::Reserve { tubes, timeout } => {
                return self.reserve(session, tubes, *timeout);
            }
            Command::ReserveJob { job } => match self.find(*job) {
                Some(found) if !matches!(found.state, State::Held(..)) => self.hold(*job, session),
                _ => Answer::NotFound,
            },
            Command::Delete { job } => match self.find(*job) {
                Some(found) if !matches!(found.state, State::Held(who, ..) if who != session) => {
                    let tube = found.tube.clone();
                    self.tube_mut(&tube).unwrap().deletes += 1;
                    self.jobs.retain(|other| other.id != *job);
                    Answer::Deleted
                }
                _ => Answer::NotFound,
            },
            Command::Release {
                job,
                priority,
                delay,
            } => match self.held(session, *job) {
                Some(found) => {
                    found.priority = *priority;
                    found.delay = *delay;
                    found.releases += 1;
                    found.state = if delay.0 > 0 {
                        State::Delayed(later(*delay))
                    } else {
                        State::Ready
                    };
                    Answer::Released
                }
                None => Answer::NotFound,
            },
            Command::Bury { job, priority } => {
                self.counter += 1;
                let counter = self.counter;
                match self.held(session, *job) {
                    Some(found) => {
                        found.priority = *priority;
                        found.buries += 1;
                        found.state = State::Buried(counter);
                        Answer::Buried
                    }
                    None => Answer::NotFound,
                }
            }
            Command::Touch { job } => match self.held(session, *job) {
                Some(found) => {
                    if let State::Held(_, deadline, _) = &mut found.state {
                        *deadline = later(found.ttr);
                    }
                    Answer::Touched
                }
                None => Answer::NotFound,
            },
            Command::Kick { tube, bound } => {
                let of_buried = self.first_buried(tube).is_some();
                let mut kicked = 0;
                while kicked < *bound {
                    let next = if of_buried {
                        self.first_buried(tube)
                    } else {
                        self.first_delayed(tube)
                    };
                    let Some(next) = next else { break };
                    let job = self.find(next).unwrap();
                    job.state = State::Ready;
                    job.kicks += 1;
                    kicked += 1;
                    self.dispatch();
                }
                Answer::Kicked(kicked)
            }
            Command::KickJob { job } => match self.find(*job) {
                Some(found) if matches!(found.state, State::Buried(_) | State::Delayed(_)) => {
                    found.state = State::Ready;
                    found.kicks += 1;
                    Answer::KickedJob
                }
                _ => Answer::NotFound,
            },
            Command::PauseTube { tube, delay } => match self.tube_mut(tube) {
                Some(tube) => {
                    tube.pause = (delay.0 > 0).then(|| (*delay, later(*delay)));
                    tube.pauses += 1;
                    Answer::Paused
                }
                None => Answer::NotFound,
            },
            Command::EndWait => {
                if self.waits.iter().any(|wait| wait.session == session) {
                    self.waits.retain(|wait| wait.session != session);
                    self.events.push(Event::Deferred {
                        session,
                        answer: Answer::TimedOut,
                    });
                }
                return Verdict::Silent;
            }
            Command::CloseSession => {
                self.waits.retain(|wait| wait.session != session);
                self.return_holds(|who| who == session);
                return Verdict::Silent;
            }
            Command::TubeRef { tube, set: true } => {
                if !self.has_or_makes_tube(tube) {
                    return Verdict::Answer(Answer::OutOfMemory);
                }
                let references = &mut self.tube_mut(tube).unwrap().references;
                if !references.contains(&session.origin) {
                    references.push(session.origin);
                }
                Answer::Referenced
            }
            Command::TubeRef { tube, set: false } => {
                if let Some(tube) = self.tube_mut(tube) {
                    tube.references.retain(|origin| *origin != session.origin);
                }
                Answer::Referenced
            }
            Command::Undecodable => Answer::Undecodable,
        };
        Verdict::Answer(answer)
    }

    fn reserve(
        &mut self,
        session: SessionId,
        tubes: &[TubeName],
        timeout: Option<Seconds>,
    ) -> Verdict {
        if tubes.len() > self.watch_names_max as usize {
            return Verdict::Answer(Answer::OutOfMemory);
        }
        let best = self
            .jobs
            .iter()
            .filter(|job| job.state == State::Ready && tubes.contains(&job.tube))
            .filter(|job| !self.is_paused(&job.tube))
            .min_by_key(|job| (job.priority, job.id))
            .map(|job| job.id);
        let poll = timeout == Some(Seconds(0));
        if let Some(best) = best
            && (poll || !self.is_suspended(session.origin))
        {
            return Verdict::Answer(self.hold(best, session));
        }
        if self
            .earliest_deadline(session)
            .is_some_and(|deadline| self.now.0 + 1_000 >= deadline.0)
        {
            return Verdict::Answer(Answer::DeadlineSoon);
        }
        if poll {
            return Verdict::Answer(Answer::TimedOut);
        }
        let until = timeout
            .map(|seconds| Timestamp(self.now.0.saturating_add(u64::from(seconds.0) * 1_000)));
        let mut watched: Vec<TubeName> = vec![];
        for tube in tubes {
            if !watched.contains(tube) {
                watched.push(tube.clone());
            }
        }
        self.waits.push(Wait {
            session,
            tubes: watched,
            until,
        });
        Verdict::Parked
    }

    fn return_holds(&mut self, whose: impl Fn(SessionId) -> bool) {
        let mut holds: Vec<(u64, JobId)> = self
            .jobs
            .iter()
            .filter_map(|job| match job.state {
                State::Held(who, _, which) if whose(who) => Some((which, job.id)),
                _ => None,
            })
            .collect();
        holds.sort_unstable();
        for (_, id) in holds {
            self.find(id).unwrap().state = State::Ready;
            self.dispatch();
        }
    }

    // ---- the leader

    fn lead(&mut self, command: &LeaderCommand) {
        match command {
            LeaderCommand::OpenOrigin(OriginId { node, run }) => {
                let known = self.nodes.iter().position(|known| known.node == *node);
                if self.retired.contains(node) || known.is_some_and(|at| self.nodes[at].run >= *run)
                {
                    return;
                }
                if let Some(at) = known {
                    let run = self.nodes[at].run;
                    self.end(OriginId { node: *node, run });
                    self.nodes.remove(at);
                }
                self.nodes.push(Node {
                    node: *node,
                    run: *run,
                    open: true,
                    last_seq: 0,
                    suspended: false,
                });
                self.nodes.sort_by_key(|known| known.node);
                self.events.push(Event::Opened(OriginId {
                    node: *node,
                    run: *run,
                }));
            }
            LeaderCommand::SuspendOrigin(origin) => self.set_suspended(*origin, true),
            LeaderCommand::ResumeOrigin(origin) => {
                self.set_suspended(*origin, false);
                self.dispatch();
            }
            LeaderCommand::ExpireOrigin(origin) => self.end(*origin),
            LeaderCommand::Tick => {}
            LeaderCommand::Set(setting) => match *setting {
                Setting::PutsRefused(refused) => self.puts_refused = refused,
                Setting::JobsMax(max) => self.jobs_max = max,
                Setting::JobBytesMax(max) => self.job_bytes_max = max,
                Setting::TubesMax(max) => self.tubes_max = max,
                Setting::WatchNamesMax(max) => self.watch_names_max = max,
                Setting::FeatureLevel(level) => {
                    self.feature_level = self.feature_level.max(level);
                }
            },
            LeaderCommand::RetireNode(node) => {
                if self.retired.contains(node) {
                    return;
                }
                if let Some(known) = self.nodes.iter().find(|known| known.node == *node) {
                    let run = known.run;
                    self.end(OriginId { node: *node, run });
                }
                self.retired.push(*node);
                self.events.push(Event::Retired(*node));
            }
        }
    }

    fn set_suspended(&mut self, origin: OriginId, suspended: bool) {
        for known in &mut self.nodes {
            if known.open && (known.node, known.run) == (origin.node, origin.run) {
                known.suspended = suspended;
            }
        }
    }

    fn end(&mut self, origin: OriginId) {
        let Some(known) = self
            .nodes
            .iter_mut()
            .find(|n| n.open && (n.node, n.run) == (origin.node, origin.run))
        else {
            return;
        };
        known.open = false;
        known.last_seq = 0;
        known.suspended = false;
        self.waits.retain(|wait| wait.session.origin != origin);
        self.return_holds(|who| who.origin == origin);
        for tube in &mut self.tubes {
            tube.references.retain(|other| *other != origin);
        }
        self.drop_unwanted_tubes();
        self.events.push(Event::Ended(origin));
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
