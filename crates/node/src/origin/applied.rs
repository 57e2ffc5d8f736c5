use std::time::Instant;

use trellis_consensus::Bodies;
use trellis_queue::{Answer as Word, Event, Fate, Verdict};
use trellis_types::{ConnectionId, OriginId};

use super::{Origin, Phase, batches::Rider, connection::State};
use crate::{Answer, Call, CloseReason};

impl Origin {
    /// What one entry means to this node's sessions. Called in the order of the log.
    pub(crate) fn applied(&mut self, events: &[Event], bodies: &dyn Bodies, now: Instant) {
        for event in events {
            match event {
                Event::Opened(origin) => self.opened(*origin),
                Event::Ended(origin) => self.ended(*origin),
                Event::Retired(_) => {}
                Event::Batch { origin, seq, fate } => {
                    if self.phase != Phase::Open(*origin) {
                        self.others = Some(now);
                    }
                    if self.phase == Phase::Open(*origin) {
                        self.batch(*seq, fate, bodies, now);
                    }
                }
                Event::Deferred { session, answer } => {
                    if self.phase == Phase::Open(session.origin) {
                        self.deferred(session.connection, answer, bodies);
                    }
                }
            }
        }
        while let Some(id) = self.touched.pop() {
            self.pump(id, now, None);
        }
        self.wake();
    }

    fn ended(&mut self, ended: OriginId) {
        if matches!(self.phase, Phase::Open(own) | Phase::Opening(own) if own == ended) {
            self.fence(CloseReason::Fenced);
        }
    }

    fn batch(&mut self, seq: u64, fate: &Fate, bodies: &dyn Bodies, now: Instant) {
        match fate {
            Fate::Duplicate => {}
            // Should not happen, so what is believed of the stream is wrong: a new one resends.
            Fate::Hole { .. } => self.doubt += 1,
            // The machine does not know this origin any more.
            Fate::NotOpen => self.fence(CloseReason::Fenced),
            Fate::Applied(verdicts) => match self.outbound.batches.flight.front() {
                Some(batch) if batch.seq == seq => self.verdicts(verdicts, bodies, now),
                Some(batch) if batch.seq > seq => {}
                // The log is ahead of what this node remembers to have sent.
                _ => self.fence(CloseReason::Fenced),
            },
        }
    }

    fn verdicts(&mut self, verdicts: &[Verdict], bodies: &dyn Bodies, now: Instant) {
        let Some(batch) = self.outbound.batches.flight.pop_front() else {
            return;
        };
        self.outbound.budget.give(batch.budget);
        if let Some(oldest) = batch.oldest {
            self.metrics
                .committed(now.saturating_duration_since(oldest));
        }
        for (rider, verdict) in batch.riders.into_iter().zip(verdicts) {
            match rider {
                Rider::Call { connection, slot } => {
                    self.verdict(connection, slot, batch.number, verdict, bodies, now);
                }
                Rider::TubeRef { tube, set, waiter } => {
                    let held = set && matches!(verdict, Verdict::Answer(Word::Referenced));
                    self.outbound.tubes.applied(&tube, held);
                    if let Some((connection, slot)) = waiter
                        && let Some(session) = self.sessions.get_mut(&connection)
                        && let Some(place) = session.place(slot)
                    {
                        session.referred(place, batch.number, held, &mut self.outbound);
                        self.touch(connection);
                    }
                }
                Rider::EndWait(connection) => {
                    if let Some(session) = self.sessions.get_mut(&connection) {
                        session.end_wait = false;
                    }
                }
                Rider::CloseSession(_) => {}
            }
        }
    }

    fn verdict(
        &mut self,
        id: ConnectionId,
        slot: u64,
        batch: u64,
        verdict: &Verdict,
        bodies: &dyn Bodies,
        now: Instant,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let Some(place) = session.place(slot) else {
            return;
        };
        // Taken back behind a Skipped one: it rides in another batch, or will.
        if !matches!(session.slots[place].state, State::Submitted { batch: its } if its == batch) {
            return;
        }
        match verdict {
            Verdict::Answer(Word::KickedPortion { count, left }) => {
                let shares = crate::others_work(self.others, now);
                match session.kicked(place, (*count, *left), now, shares) {
                    Ok(answer) => session.answered(place, answer),
                    Err(goes_on) if goes_on > now => {
                        self.resting.push((goes_on, id));
                        self.effects.rests = true;
                    }
                    Err(_) => {}
                }
            }
            Verdict::Answer(word) => {
                self.others = Some(now);
                let answer = answer_of(word, bodies);
                if matches!(
                    (&session.slots[place].call, &answer),
                    (Call::ReserveJob(_), Answer::Reserved { .. })
                ) {
                    session.becomes_worker(&mut self.counters);
                }
                session.answered(place, answer);
            }
            Verdict::Parked => session.park(place),
            Verdict::Skipped => session.skipped(place, &mut self.outbound),
            // Never the verdict of a call that somebody waits for.
            Verdict::Silent => session.answered(place, Answer::InternalError),
        }
        if !std::mem::replace(&mut session.touched, true) {
            self.touched.push(id);
        }
    }

    fn deferred(&mut self, id: ConnectionId, word: &Word, bodies: &dyn Bodies) {
        if let Some(session) = self.sessions.get_mut(&id)
            && let Some(place) = session.parked_place()
        {
            session.answered(place, answer_of(word, bodies));
            self.touch(id);
        }
    }

    fn touch(&mut self, id: ConnectionId) {
        if let Some(session) = self.sessions.get_mut(&id)
            && !std::mem::replace(&mut session.touched, true)
        {
            self.touched.push(id);
        }
    }
}

/// A word of the machine as a client hears it. A body is owed from here on.
fn answer_of(word: &Word, bodies: &dyn Bodies) -> Answer {
    match word {
        Word::Inserted(job) => Answer::Inserted(*job),
        Word::Reserved {
            job, body_bytes, ..
        } => Answer::Reserved {
            job: *job,
            body: bodies.owe(*job, *body_bytes),
        },
        Word::DeadlineSoon => Answer::DeadlineSoon,
        Word::TimedOut => Answer::TimedOut,
        Word::Deleted => Answer::Deleted,
        Word::Released => Answer::Released,
        Word::Buried => Answer::Buried,
        Word::Touched => Answer::Touched,
        Word::Kicked(count) | Word::KickedPortion { count, .. } => Answer::Kicked(*count),
        Word::KickedJob => Answer::KickedJob,
        Word::Paused => Answer::Paused,
        Word::NotFound => Answer::NotFound,
        Word::OutOfMemory => Answer::OutOfMemory,
        // A reference is never a call's answer; an undecodable command did nothing.
        Word::Referenced | Word::Undecodable => Answer::InternalError,
    }
}
