//! Waiting in line: parking, leaving, and being served.

use std::collections::{BTreeSet, btree_map::Entry};

use trellis_types::{
    JobId, OriginId, SessionId, Timestamp, TubeName, limits,
    seeded::{Bug, planted},
};

use super::{Machine, jobs::Place, session::Wait};
use crate::{Answer, Event, Key, Outcome, TubeId};

impl Machine {
    /// Puts a session in line in each of `tubes`, first come first served.
    pub(super) fn park(
        &mut self,
        session: SessionId,
        tubes: &[TubeName],
        until: Option<Timestamp>,
    ) {
        let sequence = self.take_sequence();
        self.touch(Key::Wait(session));
        self.stand_in_line(session, sequence, tubes, until);
    }

    /// [`Self::park`] with a given place in line, as an image has it.
    pub(super) fn stand_in_line(
        &mut self,
        session: SessionId,
        sequence: u64,
        tubes: &[TubeName],
        until: Option<Timestamp>,
    ) {
        let Some(live) = self.origins.get_mut(&session.origin) else {
            return;
        };
        let mut seen = BTreeSet::new();
        let tubes: Box<[TubeName]> = tubes
            .iter()
            .filter(|name| seen.insert(*name))
            .cloned()
            .collect();
        for name in &tubes {
            let line = live.lines.entry(name).or_default();
            line.insert(sequence, session.connection);
        }
        let wait = Wait {
            sequence,
            tubes,
            until,
            margin: None,
        };
        live.sessions.entry(session.connection).or_default().wait = Some(wait);
        if let Some(until) = until {
            self.due.timeouts.insert((until, session));
        }
        self.counts.waiting = self.counts.waiting.saturating_add(1);
        self.set_margin(session);
    }

    /// Takes a session out of all its lines. `None` if it does not wait.
    pub(super) fn unpark(&mut self, session: SessionId) -> Option<()> {
        if !self.is_parked(session) {
            return None;
        }
        self.touch(Key::Wait(session));
        let live = self.origins.get_mut(&session.origin)?;
        let wait = live.sessions.get_mut(&session.connection)?.wait.take()?;
        for name in &wait.tubes {
            if let Entry::Occupied(mut line) = live.lines.entry(name) {
                line.get_mut().remove(&wait.sequence);
                if line.get().is_empty() {
                    line.remove();
                }
            }
        }
        if let Some(until) = wait.until {
            self.due.timeouts.remove(&(until, session));
        }
        if let Some(margin) = wait.margin {
            self.due.margins.remove(&(margin, session));
        }
        self.counts.waiting = self.counts.waiting.saturating_sub(1);
        self.drop_idle(session);
        Some(())
    }

    /// The time of a wait is up. Beside a ready job `TIMED_OUT` would not be true: the wait was passed
    /// over because its origin is suspended. Then it stays, and is looked at again a little later;
    /// by then the origin is resumed and the wait served, or it has ended, or nothing is ready.
    pub(super) fn time_out(&mut self, session: SessionId, out: &mut Outcome) {
        if !self.is_passed_over(session) {
            self.end_wait(session, Answer::TimedOut, out);
            return;
        }
        let later = self.meta.now.after_ms(limits::PASSED_OVER_LOOK_MS);
        self.touch(Key::Wait(session));
        let wait = self
            .origins
            .get_mut(&session.origin)
            .and_then(|live| live.sessions.get_mut(&session.connection))
            .and_then(|known| known.wait.as_mut());
        if let Some(until) = wait.and_then(|wait| wait.until.replace(later)) {
            self.due.timeouts.remove(&(until, session));
            self.due.timeouts.insert((later, session));
        }
    }

    /// Whether a job is ready for this wait that its suspended origin does not get.
    fn is_passed_over(&self, session: SessionId) -> bool {
        let suspended = self
            .origins
            .get(&session.origin)
            .is_some_and(|live| live.suspended);
        let wait = self
            .session(session)
            .and_then(|session| session.wait.as_ref());
        suspended && wait.is_some_and(|wait| self.best_of(&wait.tubes).is_some())
    }

    /// Keeps the moment at which a session that waits while it holds gets `DEADLINE_SOON`: one
    /// second before its earliest deadline, whatever the tube of that job (6.6).
    pub(super) fn set_margin(&mut self, session: SessionId) {
        let Some(live) = self.origins.get_mut(&session.origin) else {
            return;
        };
        let Some(known) = live.sessions.get_mut(&session.connection) else {
            return;
        };
        let margin = known
            .deadlines
            .first()
            .map(|(deadline, _)| margin_of(*deadline));
        let Some(wait) = &mut known.wait else { return };
        if wait.margin == margin {
            return;
        }
        if let Some(old) = wait.margin {
            self.due.margins.remove(&(old, session));
        }
        if let Some(new) = margin {
            self.due.margins.insert((new, session));
        }
        wait.margin = margin;
    }

    /// Whether a hold of this session is in its last second.
    pub(super) fn is_inside_margin(&self, session: SessionId) -> bool {
        self.session(session)
            .and_then(|session| session.deadlines.first())
            .is_some_and(|(deadline, _)| self.meta.now >= margin_of(*deadline))
    }

    /// Hands out ready jobs of this tube while somebody waits for them: the best job to the first
    /// waiter. Unless a pause has just ended that is one job at most.
    pub(super) fn offer(&mut self, tube: TubeId, out: &mut Outcome) {
        while let Some((place, session)) = self.match_in(tube) {
            self.give(place.job, session, out);
        }
    }

    /// Hands out ready jobs to the waiters of an origin that was passed over until now: always
    /// the best job that one of them waits for, to the first in line for it (6.2).
    pub(super) fn offer_to_origin(&mut self, origin: OriginId, out: &mut Outcome) {
        let Some(live) = self.origins.get(&origin) else {
            return;
        };
        let mut offers: BTreeSet<(Place, TubeId)> = live
            .lines
            .names()
            .filter_map(|name| self.names.get(name))
            .filter_map(|id| Some((self.tubes.get(*id)?.offered()?, *id)))
            .collect();
        while let Some((_, tube)) = offers.pop_first() {
            let Some((place, session)) = self.match_in(tube) else {
                continue;
            };
            self.give(place.job, session, out);
            if let Some(next) = self.tubes.get(tube).and_then(|tube| tube.offered()) {
                offers.insert((next, tube));
            }
        }
    }

    /// The best job that this tube gives away, and who is first in line for it.
    fn match_in(&self, tube: TubeId) -> Option<(Place, SessionId)> {
        let tube = self.tubes.get(tube)?;
        Some((tube.offered()?, self.first_in_line(&tube.name)?))
    }

    /// Who has waited longest for this tube; the waiters of suspended origins are passed over,
    /// because a dead node's waiters must not swallow jobs (architecture, section 6).
    fn first_in_line(&self, name: &TubeName) -> Option<SessionId> {
        self.origins
            .iter()
            .filter(|(_, live)| !live.suspended || planted(Bug::SuspendedWaitsOffered))
            .filter_map(|(origin, live)| {
                let (sequence, connection) = live.lines.get(name)?.first_key_value()?;
                Some((
                    *sequence,
                    SessionId {
                        origin: *origin,
                        connection: *connection,
                    },
                ))
            })
            .min()
            .map(|(_, session)| session)
    }

    fn give(&mut self, job: JobId, session: SessionId, out: &mut Outcome) {
        self.unpark(session);
        if let Some(answer) = self.hold(job, session) {
            out.events.push(Event::Deferred { session, answer });
        }
    }
}

fn margin_of(deadline: Timestamp) -> Timestamp {
    deadline.before_ms(limits::SAFETY_MARGIN_MS)
}
