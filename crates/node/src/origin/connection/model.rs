use std::{
    hash::{Hash, Hasher},
    mem::discriminant,
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use trellis_consensus::Owed;

use super::{Connection, Slot, State};
use crate::{
    Answer, Line,
    origin::{batches::Batches, model::word_of},
};

impl Connection {
    /// The same connection with another way out. Nothing may be on its way on the line.
    pub(crate) fn fork(&self, line: Arc<Line>) -> Self {
        Self {
            id: self.id,
            line,
            slots: self.slots.iter().map(Slot::fork).collect(),
            first: self.first,
            held: self.held,
            held_bytes: self.held_bytes,
            used: self.used.clone(),
            watched: self.watched.clone(),
            producer: self.producer,
            worker: self.worker,
            half: self.half,
            left: self.left,
            over: self.over,
            end_wait: self.end_wait,
            known: self.known,
            reserves: self.reserves,
            parked: self.parked,
            guard: self.guard,
            portion: self.portion,
            kicks: self.kicks,
            ready: Vec::new(),
            touched: self.touched,
        }
    }

    /// Everything that decides what happens next.
    pub(crate) fn fingerprint(&self, batches: &Batches, begin: Instant, hash: &mut impl Hasher) {
        (self.id, self.first, self.held).hash(hash);
        (&self.used, &self.watched).hash(hash);
        (self.half, self.left, self.over, self.end_wait, self.known).hash(hash);
        (self.reserves, self.parked, self.portion, self.kicks).hash(hash);
        self.guard.map(|number| batches.age_of(number)).hash(hash);
        for slot in &self.slots {
            // Which it is follows from its number: a client of a world follows its script.
            discriminant(&slot.call).hash(hash);
            (slot.parks, &slot.undo, slot.kicking).hash(hash);
            slot.since
                .map(|since| since.duration_since(begin))
                .hash(hash);
            match &slot.state {
                State::Held => 0_u8.hash(hash),
                State::Submitted { batch } => (1_u8, batches.age_of(*batch)).hash(hash),
                State::Parked => 2_u8.hash(hash),
                State::Reading => 3_u8.hash(hash),
                State::Answered(answer) => (4_u8, word_of(answer)).hash(hash),
            }
        }
    }

    /// Breaks a rule: nothing is held back behind a reserve that may be parked.
    pub(crate) fn forget_guard(&mut self) {
        self.guard = None;
        self.portion = usize::MAX;
    }

    /// Slots that wait for a batch or in the machine: places by number.
    pub(crate) fn ride_in(&mut self, slot: u64, batch: u64) {
        if let Some(place) = self.place(slot)
            && let State::Submitted { batch: its } = &mut self.slots[place].state
        {
            *its = batch;
        }
    }

    /// Whether it waits for nothing but the end of a wait: the front slot is parked, and behind it
    /// nothing is under way. `None` if nothing is unanswered.
    pub(crate) fn waits(&self) -> Option<bool> {
        let mut states = self.slots.iter().map(|slot| &slot.state);
        let front = states.next()?;
        Some(
            matches!(front, State::Parked)
                && states.all(|state| matches!(state, State::Held | State::Answered(_))),
        )
    }
}

impl Slot {
    fn fork(&self) -> Self {
        Self {
            call: self.call.clone(),
            state: match &self.state {
                State::Held => State::Held,
                State::Submitted { batch } => State::Submitted { batch: *batch },
                State::Parked => State::Parked,
                State::Reading => State::Reading,
                State::Answered(answer) => State::Answered(copy_of(answer)),
            },
            since: self.since,
            counted: self.counted,
            parks: self.parks,
            undo: self.undo.clone(),
            kicking: self.kicking,
        }
    }
}

/// The same answer; a body, which the model does not look at, is an empty one.
fn copy_of(answer: &Answer) -> Answer {
    let body = || Owed::at_hand(Bytes::new());
    match answer {
        Answer::Inserted(job) => Answer::Inserted(*job),
        Answer::Using(tube) => Answer::Using(tube.clone()),
        Answer::Watching(count) => Answer::Watching(*count),
        Answer::NotIgnored => Answer::NotIgnored,
        Answer::Reserved { job, .. } => Answer::Reserved {
            job: *job,
            body: body(),
        },
        Answer::Found { job, .. } => Answer::Found {
            job: *job,
            body: body(),
        },
        Answer::DeadlineSoon => Answer::DeadlineSoon,
        Answer::TimedOut => Answer::TimedOut,
        Answer::Deleted => Answer::Deleted,
        Answer::Released => Answer::Released,
        Answer::Buried => Answer::Buried,
        Answer::Touched => Answer::Touched,
        Answer::Kicked(count) => Answer::Kicked(*count),
        Answer::KickedJob => Answer::KickedJob,
        Answer::Paused => Answer::Paused,
        Answer::NotFound => Answer::NotFound,
        Answer::OutOfMemory => Answer::OutOfMemory,
        Answer::InternalError => Answer::InternalError,
        Answer::Draining => Answer::Draining,
        Answer::JobStats(view) => Answer::JobStats(view.clone()),
        Answer::TubeStats(stats) => Answer::TubeStats(stats.clone()),
        Answer::ServerStats(stats) => Answer::ServerStats(stats.clone()),
        Answer::Tubes(tubes) => Answer::Tubes(tubes.clone()),
        Answer::Refused(tag) => Answer::Refused(*tag),
    }
}
