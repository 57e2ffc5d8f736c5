use std::time::Instant;

use trellis_types::ConnectionId;

use super::{
    Origin,
    batches::Rider,
    connection::{Connection, State},
};
use crate::{Answer, CloseReason};

impl Origin {
    /// Tells clients whose commands have waited too long (architecture, section 9): what no leader
    /// has is taken back, of what a leader may have the outcome is unknown, what is parked stays.
    pub(crate) fn overdue(&mut self, now: Instant) {
        let Some(limit) = now.checked_sub(self.commit_timeout) else {
            return;
        };
        let is_old = |oldest: Option<Instant>| oldest.is_some_and(|oldest| oldest <= limit);
        let batches = &self.outbound.batches;
        let mut ids: Vec<ConnectionId> = batches
            .flight
            .iter()
            .map(|batch| (batch.oldest, &batch.riders))
            .chain(
                batches
                    .waiting
                    .iter()
                    .map(|batch| (batch.oldest, &batch.riders)),
            )
            .filter(|(oldest, _)| is_old(*oldest))
            .flat_map(|(_, riders)| riders.iter().filter_map(waiting_for))
            .collect();
        while let Some((since, connection, _)) = self.reading.front()
            && *since <= limit
        {
            ids.push(*connection);
            self.reading.pop_front();
        }
        if ids.is_empty() {
            return;
        }
        ids.sort_unstable();
        ids.dedup();

        let mut withdrawn = false;
        let mut go_on = Vec::new();
        for id in ids {
            let Some(connection) = self.sessions.get_mut(&id) else {
                continue;
            };
            match connection.overdue(limit, &self.outbound.batches) {
                Overdue::Nothing => {}
                Overdue::Unknown(place) => {
                    connection.slots[place].state = State::Answered(Answer::InternalError);
                    connection.flush();
                    self.close(id, Some(CloseReason::OutcomeUnknown));
                }
                Overdue::Read => {
                    connection.slots[0].state = State::Answered(Answer::InternalError);
                    go_on.push(id);
                }
                Overdue::Withdraw(place) => {
                    connection.hold_again(place, &mut self.outbound);
                    withdrawn = true;
                    go_on.push(id);
                }
            }
        }
        for batch in &mut self.outbound.batches.flight {
            // Whoever waited for it has been told.
            if is_old(batch.oldest) {
                batch.oldest = None;
                batch.oldest = oldest_of(&batch.riders, &self.sessions);
            }
        }
        if withdrawn {
            let sessions = &self.sessions;
            let freed = self.outbound.batches.rebuild(|batch, id, slot| {
                let Some(connection) = sessions.get(&id) else {
                    // Its client is gone; what it had submitted is still carried out. It cannot
                    // be encoded again, though: nobody remembers it.
                    return None;
                };
                connection.waiting_command(connection.place(slot)?, batch)
            });
            self.outbound.budget.give(freed);
        }
        for id in go_on {
            self.pump(id, now, Some(limit));
        }
    }
}

/// What has waited too long in one connection.
enum Overdue {
    Nothing,
    /// A leader may have it.
    Unknown(usize),
    /// No leader has it, nor anything behind it.
    Withdraw(usize),
    Read,
}

impl Connection {
    fn overdue(&self, limit: Instant, batches: &super::batches::Batches) -> Overdue {
        for (place, slot) in self.slots.iter().enumerate() {
            if slot.since.is_none_or(|since| since > limit) {
                continue;
            }
            match slot.state {
                State::Reading => return Overdue::Read,
                State::Submitted { batch } if batches.is_handed(batch) => {
                    return Overdue::Unknown(place);
                }
                State::Submitted { .. } => return Overdue::Withdraw(place),
                State::Held | State::Parked | State::Answered(_) => {}
            }
        }
        Overdue::Nothing
    }
}

fn waiting_for(rider: &Rider) -> Option<ConnectionId> {
    match rider {
        Rider::Call { connection, .. } => Some(*connection),
        Rider::TubeRef {
            waiter: Some((connection, _)),
            ..
        } => Some(*connection),
        _ => None,
    }
}

fn oldest_of(
    riders: &[Rider],
    sessions: &rustc_hash::FxHashMap<ConnectionId, Connection>,
) -> Option<Instant> {
    riders
        .iter()
        .filter_map(|rider| {
            let (id, slot) = match rider {
                Rider::Call { connection, slot } => (connection, *slot),
                Rider::TubeRef {
                    waiter: Some((connection, slot)),
                    ..
                } => (connection, *slot),
                _ => return None,
            };
            let connection = sessions.get(id)?;
            connection.slots[connection.place(slot)?].since
        })
        .min()
}
