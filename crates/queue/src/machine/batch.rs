use std::collections::BTreeSet;

use trellis_types::{
    SessionId,
    seeded::{Bug, planted},
};

use super::Machine;
use crate::{Answer, Batch, Command, Event, Fate, Item, Key, Outcome, Verdict};

impl Machine {
    /// Carries out a batch exactly once: what was carried out before is skipped, what would leave
    /// a hole or comes from an origin that is not open is refused whole.
    ///
    /// Source: architecture, section 5, point 5.
    pub(super) fn batch(&mut self, batch: &Batch, out: &mut Outcome) {
        let (origin, seq) = (batch.origin, batch.seq);
        let Some(live) = self.origins.get(&origin) else {
            out.events.push(Event::Batch {
                origin,
                seq,
                fate: Fate::NotOpen,
            });
            return;
        };
        let last = live.last_seq;
        if seq <= last {
            out.events.push(Event::Batch {
                origin,
                seq,
                fate: Fate::Duplicate,
            });
            return;
        }
        if seq != last.saturating_add(1) && !planted(Bug::BatchHoleAccepted) {
            out.events.push(Event::Batch {
                origin,
                seq,
                fate: Fate::Hole { last },
            });
            return;
        }
        self.touch(Key::Origin(origin.node));
        if let Some(live) = self.origins.get_mut(&origin) {
            live.last_seq = seq;
        }

        // The batch's own event stands before the deferred answers that the batch causes.
        let at = out.events.len();
        out.events.push(Event::Batch {
            origin,
            seq,
            fate: Fate::Applied(Vec::new()),
        });
        let mut skipping = BTreeSet::new();
        let mut verdicts = Vec::with_capacity(batch.items.len());
        for Item {
            connection,
            command,
        } in &batch.items
        {
            let session = SessionId {
                origin,
                connection: *connection,
            };
            if !is_never_skipped(command)
                && (skipping.contains(connection) || self.is_parked(session))
            {
                // Once one was skipped all later ones are, even if the wait ends meanwhile:
                // otherwise they would overtake it.
                skipping.insert(*connection);
                verdicts.push(Verdict::Skipped);
                continue;
            }
            if *command == Command::CloseSession {
                // A session's last command: nothing behind it may begin a hold that nobody ends.
                skipping.insert(*connection);
            }
            verdicts.push(self.perform(session, command, out));
        }
        if let Some(Event::Batch { fate, .. }) = out.events.get_mut(at) {
            *fate = Fate::Applied(verdicts);
        }
    }

    fn perform(&mut self, session: SessionId, command: &Command, out: &mut Outcome) -> Verdict {
        Verdict::Answer(match command {
            Command::Put {
                tube,
                priority,
                delay,
                ttr,
                body,
            } => self.put(tube, *priority, *delay, *ttr, body, out),
            Command::Reserve { tubes, timeout } => return self.reserve(session, tubes, *timeout),
            Command::ReserveJob { job } => self.reserve_job(session, *job),
            Command::Delete { job } => self.delete(session, *job),
            Command::Release {
                job,
                priority,
                delay,
            } => self.release(session, *job, *priority, *delay, out),
            Command::Bury { job, priority } => self.bury(session, *job, *priority),
            Command::Touch { job } => self.touch_job(session, *job),
            Command::Kick { tube, bound } => self.kick(tube, *bound, out),
            Command::KickPortion {
                tube,
                bound,
                delayed,
            } => self.kick_portion(tube, *bound, !*delayed, out),
            Command::KickJob { job } => self.kick_job(*job, out),
            Command::PauseTube { tube, delay } => self.pause_tube(tube, *delay, out),
            Command::EndWait => {
                self.end_wait(session, Answer::TimedOut, out);
                return Verdict::Silent;
            }
            Command::CloseSession => {
                self.close_session(session, out);
                return Verdict::Silent;
            }
            Command::TubeRef { tube, set } => self.set_reference(session.origin, tube, *set),
            Command::Undecodable => Answer::Undecodable,
        })
    }
}

/// What may come at any time, also while a reserve of the session is parked.
fn is_never_skipped(command: &Command) -> bool {
    matches!(
        command,
        Command::EndWait | Command::CloseSession | Command::TubeRef { .. }
    )
}
