use std::collections::{BTreeMap, BTreeSet};

use trellis_types::{
    JobId, SessionId, Timestamp, TubeName,
    seeded::{self, Bug, planted},
};

use super::Machine;
use crate::{Answer, Event, Outcome, WaitRow};

/// A client, as long as it holds or waits; without either there is nothing to remember of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Session {
    pub(super) wait: Option<Wait>,
    /// Its holds in order of reservation.
    pub(super) holds: BTreeMap<u64, JobId>,
    /// Its holds by deadline.
    pub(super) deadlines: BTreeSet<(Timestamp, JobId)>,
}

/// A parked reserve.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wait {
    /// Its place in line.
    pub(super) sequence: u64,
    /// What it watches; no name twice.
    pub(super) tubes: Box<[TubeName]>,
    /// When it times out.
    pub(super) until: Option<Timestamp>,
    /// When it ends with `DEADLINE_SOON`; follows from the session's holds.
    pub(super) margin: Option<Timestamp>,
}

impl Wait {
    pub(super) fn row(&self, session: SessionId) -> WaitRow {
        WaitRow {
            session,
            sequence: self.sequence,
            tubes: self.tubes.to_vec(),
            until: self.until,
        }
    }
}

impl Session {
    pub(super) fn is_idle(&self) -> bool {
        self.wait.is_none() && self.holds.is_empty()
    }
}

impl Machine {
    pub(super) fn session(&self, id: SessionId) -> Option<&Session> {
        self.origins.get(&id.origin)?.sessions.get(&id.connection)
    }

    pub(super) fn is_parked(&self, id: SessionId) -> bool {
        self.session(id)
            .is_some_and(|session| session.wait.is_some())
    }

    /// Forgets a session of which there is nothing left to know.
    pub(super) fn drop_idle(&mut self, id: SessionId) {
        if let Some(live) = self.origins.get_mut(&id.origin)
            && live
                .sessions
                .get(&id.connection)
                .is_some_and(Session::is_idle)
        {
            live.sessions.remove(&id.connection);
        }
    }

    /// Ends a wait, if there is one, with `answer`: its time is up, a hold of its session enters
    /// the safety margin, or the client has half-closed and will be sent no job any more.
    ///
    /// Source: protocol specification, 1.10, 6.6 and 6.7.
    pub(super) fn end_wait(&mut self, session: SessionId, answer: Answer, out: &mut Outcome) {
        if self.unpark(session).is_some() {
            out.events.push(Event::Deferred { session, answer });
        }
    }

    /// The client is gone: its wait goes first, so that it gets none of its own jobs back; then
    /// its holds return in order of reservation, each offered before the next.
    ///
    /// Source: architecture, section 7; protocol specification, 6.9.
    pub(super) fn close_session(&mut self, session: SessionId, out: &mut Outcome) {
        if !planted(Bug::GrantToDeadSession) {
            self.unpark(session);
        }
        let mut holds: Vec<JobId> = self
            .session(session)
            .map(|session| session.holds.values().copied().collect())
            .unwrap_or_default();
        seeded::map_order(&mut holds);
        for job in holds {
            self.make_ready(job, out);
        }
    }
}
