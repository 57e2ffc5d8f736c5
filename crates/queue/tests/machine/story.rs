//! A small language for stories: people on nodes, one line per event, time as a number.

use bytes::Bytes;
use trellis_queue::{
    Answer, Batch, Command, Content, Entry, Event, Fate, Item, JobView, LeaderCommand, Machine,
    Outcome, ServerView, Setting, TubeView, Verdict,
};
use trellis_types::{
    ConnectionId, JobId, NodeId, OriginId, Priority, Run, Seconds, SessionId, Timestamp, TubeName,
};

pub(crate) fn origin(node: u64, run: u64) -> OriginId {
    OriginId {
        node: NodeId(node),
        run: Run(run),
    }
}

pub(crate) fn name(text: &str) -> TubeName {
    TubeName::parse(text.as_bytes()).unwrap()
}

pub(crate) fn names(list: &[&str]) -> Vec<TubeName> {
    list.iter().map(|text| name(text)).collect()
}

pub(crate) fn put(tube: &str, priority: u32, delay: u32, ttr: u32, body: &str) -> Command {
    Command::Put {
        tube: name(tube),
        priority: Priority(priority),
        delay: Seconds(delay),
        ttr: Seconds(ttr),
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

pub(crate) fn reserve(tubes: &[&str]) -> Command {
    Command::Reserve {
        tubes: names(tubes),
        timeout: None,
    }
}

pub(crate) fn reserve_within(tubes: &[&str], seconds: u32) -> Command {
    Command::Reserve {
        tubes: names(tubes),
        timeout: Some(Seconds(seconds)),
    }
}

pub(crate) fn reference(tube: &str, set: bool) -> Command {
    Command::TubeRef {
        tube: name(tube),
        set,
    }
}

/// One machine, two nodes with an open origin each, and the people at them.
pub(crate) struct Story {
    pub(crate) machine: Machine,
    now: Timestamp,
    people: u64,
    deferred: Vec<(SessionId, Answer)>,
    /// Everything that the last entry did.
    pub(crate) last: Outcome,
}

impl Story {
    pub(crate) fn begins() -> Self {
        let mut story = Self {
            machine: Machine::new(),
            now: Timestamp(0),
            people: 0,
            deferred: Vec::new(),
            last: Outcome::default(),
        };
        story.leader(LeaderCommand::OpenOrigin(origin(1, 1)));
        story.leader(LeaderCommand::OpenOrigin(origin(2, 1)));
        story
    }

    /// Somebody new at node 1.
    pub(crate) fn person(&mut self) -> SessionId {
        self.person_at(origin(1, 1))
    }

    pub(crate) fn person_at(&mut self, origin: OriginId) -> SessionId {
        self.people += 1;
        SessionId {
            origin,
            connection: ConnectionId(self.people),
        }
    }

    /// What follows happens that many seconds after the beginning.
    pub(crate) fn at(&mut self, seconds: u64) -> &mut Self {
        self.at_ms(seconds * 1_000)
    }

    pub(crate) fn at_ms(&mut self, ms: u64) -> &mut Self {
        self.now = Timestamp(ms);
        self
    }

    pub(crate) fn apply(&mut self, content: Content) -> &Outcome {
        self.last = self.machine.apply(&Entry {
            at: self.now,
            content,
        });
        for event in &self.last.events {
            if let Event::Deferred { session, answer } = event {
                self.deferred.push((*session, answer.clone()));
            }
        }
        assert_eq!(self.machine.check(), Ok(()));
        &self.last
    }

    pub(crate) fn leader(&mut self, command: LeaderCommand) {
        self.apply(Content::Leader(vec![command]));
    }

    /// Time passes and nobody says anything.
    pub(crate) fn tick(&mut self) -> &mut Self {
        self.leader(LeaderCommand::Tick);
        self
    }

    pub(crate) fn set(&mut self, setting: Setting) {
        self.leader(LeaderCommand::Set(setting));
    }

    /// The next batch of an origin, all its commands in one; what became of them.
    pub(crate) fn batch(&mut self, said: Vec<(SessionId, Command)>) -> Vec<Verdict> {
        let origin = said.first().expect("somebody says something").0.origin;
        let seq = self.last_seq(origin) + 1;
        match self.send(origin, seq, said) {
            Fate::Applied(verdicts) => verdicts,
            refused => panic!("the next batch was refused: {refused:?}"),
        }
    }

    /// A batch of whatever number.
    pub(crate) fn send(
        &mut self,
        origin: OriginId,
        seq: u64,
        said: Vec<(SessionId, Command)>,
    ) -> Fate {
        let items = said
            .into_iter()
            .map(|(session, command)| Item {
                connection: session.connection,
                command,
            })
            .collect();
        self.apply(Content::Batches(vec![Batch { origin, seq, items }]));
        self.last
            .events
            .iter()
            .find_map(|event| match event {
                Event::Batch {
                    origin: whose,
                    seq: which,
                    fate,
                } if (*whose, *which) == (origin, seq) => Some(fate.clone()),
                _ => None,
            })
            .expect("every batch has a fate")
    }

    pub(crate) fn last_seq(&self, origin: OriginId) -> u64 {
        self.machine
            .origin(origin.node)
            .map_or(0, |known| known.last_seq)
    }

    pub(crate) fn says(&mut self, who: SessionId, command: Command) -> Verdict {
        self.batch(vec![(who, command)])
            .pop()
            .expect("one command, one verdict")
    }

    pub(crate) fn answer(&mut self, who: SessionId, command: Command) -> Answer {
        match self.says(who, command) {
            Verdict::Answer(answer) => answer,
            other => panic!("no answer but {other:?}"),
        }
    }

    /// What somebody who waited was told since the last time this was asked.
    pub(crate) fn hears(&mut self, who: SessionId) -> Vec<Answer> {
        let (his, others) = std::mem::take(&mut self.deferred)
            .into_iter()
            .partition(|(session, _)| *session == who);
        self.deferred = others;
        let his: Vec<(SessionId, Answer)> = his;
        his.into_iter().map(|(_, answer)| answer).collect()
    }

    /// The jobs that somebody who waited was given.
    pub(crate) fn gets(&mut self, who: SessionId) -> Option<JobId> {
        match self.hears(who).as_slice() {
            [] => None,
            [Answer::Reserved { job, .. }] => Some(*job),
            other => panic!("not one job but {other:?}"),
        }
    }

    /// `put` with priority 0, no delay and a TTR of 60 s.
    pub(crate) fn put(&mut self, who: SessionId, tube: &str) -> JobId {
        self.put_as(who, tube, 0, 0, 60)
    }

    pub(crate) fn put_as(
        &mut self,
        who: SessionId,
        tube: &str,
        priority: u32,
        delay: u32,
        ttr: u32,
    ) -> JobId {
        match self.answer(who, put(tube, priority, delay, ttr, "body")) {
            Answer::Inserted(job) => job,
            other => panic!("put was refused: {other:?}"),
        }
    }

    /// `reserve-with-timeout 0`.
    pub(crate) fn poll(&mut self, who: SessionId, tubes: &[&str]) -> Answer {
        self.answer(who, reserve_within(tubes, 0))
    }

    /// The job that `reserve-with-timeout 0` gives, if any.
    pub(crate) fn takes(&mut self, who: SessionId, tubes: &[&str]) -> Option<JobId> {
        match self.poll(who, tubes) {
            Answer::Reserved { job, .. } => Some(job),
            Answer::TimedOut => None,
            other => panic!("neither a job nor TIMED_OUT: {other:?}"),
        }
    }

    /// A plain `reserve` that finds nothing.
    pub(crate) fn waits(&mut self, who: SessionId, tubes: &[&str]) {
        assert_eq!(self.says(who, reserve(tubes)), Verdict::Parked);
    }

    pub(crate) fn waits_for(&mut self, who: SessionId, tubes: &[&str], seconds: u32) {
        assert_eq!(
            self.says(who, reserve_within(tubes, seconds)),
            Verdict::Parked
        );
    }

    pub(crate) fn reserves_job(&mut self, who: SessionId, job: JobId) -> Answer {
        self.answer(who, Command::ReserveJob { job })
    }

    pub(crate) fn delete(&mut self, who: SessionId, job: JobId) -> Answer {
        self.answer(who, Command::Delete { job })
    }

    pub(crate) fn release(
        &mut self,
        who: SessionId,
        job: JobId,
        priority: u32,
        delay: u32,
    ) -> Answer {
        let (priority, delay) = (Priority(priority), Seconds(delay));
        self.answer(
            who,
            Command::Release {
                job,
                priority,
                delay,
            },
        )
    }

    pub(crate) fn bury(&mut self, who: SessionId, job: JobId, priority: u32) -> Answer {
        self.answer(
            who,
            Command::Bury {
                job,
                priority: Priority(priority),
            },
        )
    }

    pub(crate) fn touch(&mut self, who: SessionId, job: JobId) -> Answer {
        self.answer(who, Command::Touch { job })
    }

    pub(crate) fn kick(&mut self, who: SessionId, tube: &str, bound: u32) -> Answer {
        self.answer(
            who,
            Command::Kick {
                tube: name(tube),
                bound,
            },
        )
    }

    pub(crate) fn kick_job(&mut self, who: SessionId, job: JobId) -> Answer {
        self.answer(who, Command::KickJob { job })
    }

    pub(crate) fn pause(&mut self, who: SessionId, tube: &str, seconds: u32) -> Answer {
        self.answer(
            who,
            Command::PauseTube {
                tube: name(tube),
                delay: Seconds(seconds),
            },
        )
    }

    pub(crate) fn uses(&mut self, who: SessionId, tube: &str) -> Answer {
        self.answer(who, reference(tube, true))
    }

    pub(crate) fn forsakes(&mut self, who: SessionId, tube: &str) -> Answer {
        self.answer(who, reference(tube, false))
    }

    pub(crate) fn leaves(&mut self, who: SessionId) {
        assert_eq!(self.says(who, Command::CloseSession), Verdict::Silent);
    }

    pub(crate) fn job(&self, job: JobId) -> JobView {
        self.machine.job(job, self.now).expect("the job exists")
    }

    pub(crate) fn state(&self, job: JobId) -> &'static str {
        self.machine
            .job(job, self.now)
            .map_or("gone", |view| view.state)
    }

    pub(crate) fn tube(&self, tube: &str) -> TubeView {
        self.machine
            .tube(&name(tube), self.now)
            .expect("the tube exists")
    }

    pub(crate) fn exists(&self, tube: &str) -> bool {
        self.machine.tube(&name(tube), self.now).is_some()
    }

    pub(crate) fn server(&self) -> ServerView {
        self.machine.server()
    }
}
