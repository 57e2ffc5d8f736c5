//! The command of a call: as the session stands, and as it stood.

use std::time::Instant;

use trellis_queue::Command;
use trellis_types::{Seconds, TubeName};

use super::{Connection, State, Undo, undo::put_back};
use crate::Call;

impl Connection {
    /// The command of a call as the session stands now; `None` for what never enters the log.
    pub(super) fn command(&self, call: &Call) -> Option<Command> {
        Some(match call {
            Call::Put {
                priority,
                delay,
                ttr,
                body,
            } => Command::Put {
                tube: self.used.clone(),
                priority: *priority,
                delay: *delay,
                ttr: *ttr,
                body: body.clone(),
            },
            Call::Reserve { timeout } => Command::Reserve {
                tubes: self.watched.clone(),
                timeout: if self.half {
                    Some(Seconds(0))
                } else {
                    *timeout
                },
            },
            Call::ReserveJob(job) => Command::ReserveJob { job: *job },
            Call::Delete(job) => Command::Delete { job: *job },
            Call::Release {
                job,
                priority,
                delay,
            } => Command::Release {
                job: *job,
                priority: *priority,
                delay: *delay,
            },
            Call::Bury { job, priority } => Command::Bury {
                job: *job,
                priority: *priority,
            },
            Call::Touch(job) => Command::Touch { job: *job },
            Call::Kick { bound } => Command::Kick {
                tube: self.used.clone(),
                bound: *bound,
            },
            Call::KickJob(job) => Command::KickJob { job: *job },
            Call::PauseTube { tube, delay } => Command::PauseTube {
                tube: tube.clone(),
                delay: *delay,
            },
            _ => return None,
        })
    }

    /// The command of a slot that waits in a batch, to be encoded once more.
    pub(crate) fn waiting_command(
        &self,
        place: usize,
        batch: u64,
    ) -> Option<(Command, Option<Instant>, usize)> {
        let slot = &self.slots[place];
        match slot.state {
            State::Submitted { batch: its } if its == batch => {}
            _ => return None,
        }
        // Use and watch ride as the origin's own TubeRef, never as a call. What stands behind one
        // in the connection is taken back with it, so `used` and `watched` are as they were.
        let command = self.command_at(place)?;
        let bytes = slot.call.bytes() + self.watch_bytes(&slot.call);
        Some((command, slot.since, bytes))
    }

    /// The command of a slot as the session stood when it was submitted: later changes of the
    /// used tube and the watch list are undone in thought.
    fn command_at(&self, place: usize) -> Option<Command> {
        let mut used = &self.used;
        let mut watched: Option<Vec<TubeName>> = None;
        for later in self.slots.iter().skip(place + 1).rev() {
            match (&later.undo, &later.call) {
                (Some(Undo::Use { before }), _) => used = before,
                (Some(Undo::Watch { added: true, .. }), Call::Watch(tube)) => {
                    watched
                        .get_or_insert_with(|| self.watched.clone())
                        .retain(|name| name != tube);
                }
                (Some(Undo::Ignore { index, tube }), _) => {
                    put_back(
                        watched.get_or_insert_with(|| self.watched.clone()),
                        *index,
                        tube.clone(),
                    );
                }
                _ => {}
            }
        }
        let mut command = self.command_of(place, &self.slots[place].call)?;
        match &mut command {
            Command::Put { tube, .. }
            | Command::Kick { tube, .. }
            | Command::KickPortion { tube, .. } => *tube = used.clone(),
            Command::Reserve { tubes, .. } => {
                if let Some(watched) = watched {
                    *tubes = watched;
                }
            }
            _ => {}
        }
        Some(command)
    }
}
