//! What must hold, looked at from outside: what the log did to each client's commands, and what
//! each client was told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trellis_queue::{
    Answer, Batch, Command, Content, Entry, Event, Fate, JobState, LeaderCommand, Machine, Outcome,
    Row, Verdict,
};
use trellis_types::{OriginId, SessionId};

use super::setup::{NOBODY, Setup, TIMEOUT_BASE, Word};

/// What became of a command: its word and the job it names.
pub(crate) type Told = (&'static str, u64);

/// What is known of the world from outside. Every word a client hears, and everything the log
/// does, is held against it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Promises {
    sessions: BTreeMap<SessionId, Record>,
    /// Origins that are over.
    ended: BTreeSet<OriginId>,
    suspended: BTreeSet<OriginId>,
    /// Jobs whose put a client was told of.
    acknowledged: BTreeSet<u64>,
    deleted: BTreeSet<u64>,
}

/// One session: what its client said and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Record {
    node: usize,
    client: usize,
    /// The next command that the log may carry out.
    next: usize,
    /// The next command that the client has no answer to.
    heard: usize,
    outcomes: BTreeMap<usize, Told>,
    /// Commands that wait: one, but for a moment more, when a wait ends inside the batch that the
    /// next one begins in.
    parked: VecDeque<usize>,
    /// Told that it was not done.
    withdrawn: BTreeSet<usize>,
    /// Polls that were answered without the log.
    unlogged: BTreeSet<usize>,
    closed: bool,
}

fn told(answer: &Answer) -> Told {
    match answer {
        Answer::Inserted(job) => ("INSERTED", job.0),
        Answer::Reserved { job, .. } => ("RESERVED", job.0),
        Answer::DeadlineSoon => ("DEADLINE_SOON", 0),
        Answer::TimedOut => ("TIMED_OUT", 0),
        Answer::Deleted => ("DELETED", 0),
        Answer::Released => ("RELEASED", 0),
        Answer::NotFound => ("NOT_FOUND", 0),
        Answer::OutOfMemory => ("OUT_OF_MEMORY", 0),
        _ => ("another word", 0),
    }
}

impl Promises {
    /// A client's connection has become a session; `first` is the next command of its script.
    pub(crate) fn connected(
        &mut self,
        session: SessionId,
        node: usize,
        client: usize,
        first: usize,
    ) {
        self.sessions.insert(
            session,
            Record {
                node,
                client,
                next: first,
                heard: first,
                outcomes: BTreeMap::new(),
                parked: VecDeque::new(),
                withdrawn: BTreeSet::new(),
                unlogged: BTreeSet::new(),
                closed: false,
            },
        );
    }

    /// Holds an entry that was committed against everything known.
    ///
    /// # Errors
    ///
    /// The promise that is broken.
    pub(crate) fn committed(
        &mut self,
        setup: &Setup,
        entry: &Entry,
        outcome: &Outcome,
        machine: &Machine,
    ) -> Result<(), String> {
        let mut batches: Vec<&Batch> = Vec::new();
        match &entry.content {
            Content::Batches(all) => batches.extend(all),
            Content::Leader(commands) => {
                for command in commands {
                    match command {
                        LeaderCommand::SuspendOrigin(origin) => {
                            self.suspended.insert(*origin);
                        }
                        LeaderCommand::ResumeOrigin(origin) => {
                            self.suspended.remove(origin);
                        }
                        _ => {}
                    }
                }
            }
        }
        for event in &outcome.events {
            match event {
                Event::Batch { origin, seq, fate } => {
                    // Batches that are refused and carried out bear the same names; they come in
                    // the order of the entry.
                    let place = batches
                        .iter()
                        .position(|batch| (batch.origin, batch.seq) == (*origin, *seq));
                    let Some(place) = place else { continue };
                    let batch = batches.remove(place);
                    if let Fate::Applied(verdicts) = fate {
                        self.carried_out(setup, batch, verdicts)?;
                    }
                }
                Event::Deferred { session, answer } => self.deferred(*session, answer)?,
                Event::Ended(origin) => {
                    self.ended.insert(*origin);
                    self.suspended.remove(origin);
                    self.sessions.retain(|session, _| session.origin != *origin);
                }
                Event::Opened(_) | Event::Retired(_) => {}
            }
        }
        self.look(machine)
    }

    fn carried_out(
        &mut self,
        setup: &Setup,
        batch: &Batch,
        verdicts: &[Verdict],
    ) -> Result<(), String> {
        for (item, verdict) in batch.items.iter().zip(verdicts) {
            if *verdict == Verdict::Skipped || item.connection == NOBODY {
                continue;
            }
            let session = SessionId {
                origin: batch.origin,
                connection: item.connection,
            };
            if self.ended.contains(&batch.origin) {
                return Err(format!(
                    "ENDED: a command of {session}, which is over, took effect"
                ));
            }
            let Some(record) = self.sessions.get_mut(&session) else {
                return Err(format!("STRANGER: a command of {session} took effect"));
            };
            match item.command {
                Command::CloseSession => {
                    record.closed = true;
                    continue;
                }
                Command::EndWait => continue,
                _ => {}
            }
            let place = record.place_of(setup, &item.command);
            let Some(place) = place else {
                return Err(format!(
                    "DOUBLE: {session} did {:?} more often than it was said",
                    item.command
                ));
            };
            if record.closed {
                return Err(format!(
                    "CLOSED: #{place} of {session} took effect behind its end"
                ));
            }
            record.in_order(setup, session, place)?;
            match verdict {
                Verdict::Answer(answer) => {
                    let (word, job) = told(answer);
                    let waits = matches!(
                        item.command,
                        Command::Reserve { timeout, .. } if timeout.is_none_or(|timeout| timeout.0 > 0)
                    );
                    if word == "RESERVED" && waits && self.suspended.contains(&batch.origin) {
                        return Err(format!("ABSENT: job {job} went to {session}, suspended"));
                    }
                    if word == "DELETED"
                        && let Command::Delete { job } = item.command
                    {
                        self.deleted.insert(job.0);
                    }
                    record.outcomes.insert(place, (word, job));
                }
                Verdict::Parked => record.parked.push_back(place),
                Verdict::Silent | Verdict::Skipped => {}
            }
        }
        Ok(())
    }

    fn deferred(&mut self, session: SessionId, answer: &Answer) -> Result<(), String> {
        let word = told(answer);
        if word.0 == "RESERVED" && self.suspended.contains(&session.origin) {
            return Err(format!(
                "ABSENT: job {} went to {session}, suspended",
                word.1
            ));
        }
        // Its end may stand behind this in the same batch; `look` sees who holds after it.
        if let Some(record) = self.sessions.get_mut(&session)
            && let Some(place) = record.parked.pop_front()
        {
            record.outcomes.insert(place, word);
        }
        Ok(())
    }

    /// What holds of the machine after every entry.
    fn look(&self, machine: &Machine) -> Result<(), String> {
        machine
            .check()
            .map_err(|breach| format!("MACHINE: {breach}"))?;
        let mut jobs = BTreeSet::new();
        for row in machine.rows() {
            let session = match row {
                Row::Job(row) => {
                    jobs.insert(row.id.0);
                    match row.state {
                        JobState::Reserved { holder, .. } => holder,
                        _ => continue,
                    }
                }
                Row::Wait(row) => row.session,
                _ => continue,
            };
            let open = machine
                .origin(session.origin.node)
                .and_then(|view| view.open);
            if open != Some(session.origin) {
                return Err(format!("GONE: {session} of an ended origin holds or waits"));
            }
            if self
                .sessions
                .get(&session)
                .is_none_or(|record| record.closed)
            {
                return Err(format!("GONE: {session} is over and holds or waits"));
            }
        }
        for job in &self.acknowledged {
            if !jobs.contains(job) && !self.deleted.contains(job) {
                return Err(format!("LOST: job {job} was acknowledged"));
            }
        }
        Ok(())
    }

    /// A client has heard an answer. `half` says that it has shut its sending side, `unknown` that
    /// its connection closes with this word.
    ///
    /// # Errors
    ///
    /// The promise that is broken.
    pub(crate) fn heard(
        &mut self,
        setup: &Setup,
        session: SessionId,
        word: Told,
        half: bool,
        unknown: bool,
    ) -> Result<(), String> {
        let Some(record) = self.sessions.get_mut(&session) else {
            return Ok(());
        };
        let place = record.heard;
        record.heard += 1;
        let script = &setup.scripts[record.node][record.client];
        let Some(said) = script.get(place) else {
            return Err(format!(
                "REPLY: {word:?} to {session}, which said nothing more"
            ));
        };
        let outcome = record.outcomes.get(&place);
        match word.0 {
            "INTERNAL_ERROR" | "DRAINING" => {
                if outcome.is_none() && !unknown {
                    record.withdrawn.insert(place);
                    if record.next > place {
                        return Err(format!("WITHDRAWN: #{place} of {session} has begun"));
                    }
                }
                return Ok(());
            }
            "USING" if *said == Word::Use => return Ok(()),
            // A poll may be answered without the log; whoever reads checks that it is no lie.
            "TIMED_OUT"
                if (*said == Word::Poll || (half && *said == Word::Reserve))
                    && outcome.is_none()
                    && record.next <= place =>
            {
                record.unlogged.insert(place);
                return Ok(());
            }
            _ => {}
        }
        if outcome != Some(&word) {
            return Err(format!(
                "REPLY: {session} hears {word:?} to #{place} {said:?}, whose outcome is {outcome:?}"
            ));
        }
        if word.0 == "INSERTED" {
            self.acknowledged.insert(word.1);
        }
        Ok(())
    }

    /// Forgets origins of a node that ended so long before its run `below` that nothing of them can
    /// be under way.
    pub(crate) fn forget_origins(&mut self, node: trellis_types::NodeId, below: u64) {
        self.ended
            .retain(|origin| origin.node != node || origin.run.0 + 2 >= below);
    }
}

impl Record {
    /// Which of the client's commands this is.
    fn place_of(&self, setup: &Setup, command: &Command) -> Option<usize> {
        let script = &setup.scripts[self.node][self.client];
        let next = |wanted: &dyn Fn(Word) -> bool| {
            (self.next..script.len()).find(|place| {
                wanted(script[*place])
                    && !self.unlogged.contains(place)
                    && !self.withdrawn.contains(place)
            })
        };
        match command {
            Command::Put { body, .. } => body.get(2).map(|index| usize::from(*index)),
            Command::Reserve { timeout, .. } => {
                let timeout = timeout.map_or(0, |timeout| timeout.0);
                match timeout.checked_sub(TIMEOUT_BASE) {
                    Some(index) => usize::try_from(index).ok(),
                    None => next(&|word| matches!(word, Word::Poll | Word::Reserve)),
                }
            }
            Command::ReserveJob { job } => next(&|word| word == Word::ReserveJob(job.0)),
            Command::Delete { job } => next(&|word| word == Word::Delete(job.0)),
            Command::Release { job, .. } => next(&|word| word == Word::Release(job.0)),
            _ => None,
        }
    }

    /// The log carries a command out: not twice, and none before it may be missing.
    fn in_order(&mut self, setup: &Setup, session: SessionId, place: usize) -> Result<(), String> {
        let script = &setup.scripts[self.node][self.client];
        if place < self.next {
            return Err(format!("DOUBLE: #{place} of {session} took effect twice"));
        }
        if self.withdrawn.contains(&place) {
            return Err(format!("WITHDRAWN: #{place} of {session} took effect"));
        }
        let missing = (self.next..place).find(|earlier| {
            let word = script[*earlier];
            *earlier >= self.heard && (word.is_logged() || word == Word::Poll)
        });
        if let Some(missing) = missing {
            return Err(format!(
                "ORDER: #{place} of {session} took effect, #{missing} has not"
            ));
        }
        self.next = place + 1;
        Ok(())
    }
}
