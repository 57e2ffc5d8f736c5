//! What a queue with a bug does, now and then.

use rand::Rng;
use trellis_checker::history::{Call, MILLI, Record, Reply};
use trellis_queue::{Command, JobView};
use trellis_types::{ConnectionId, JobId, SessionId, TubeName};

use crate::queue::{Bug, Paper};

impl Paper {
    /// A ready job of the tube that is not its first.
    pub(super) fn worse_than_the_best(&self, tube: &TubeName) -> Option<JobId> {
        let best = self.machine.peek_ready(tube)?;
        let up_to = self.bodies.keys().max().copied().unwrap_or(0);
        (1..=up_to)
            .map(JobId)
            .filter(|job| *job != best)
            .find(|job| {
                let view = self.machine.job(*job, self.stamp());
                view.is_some_and(|view| view.tube == *tube && view.state == "ready")
            })
    }

    /// What the bug does.
    pub(super) fn misdeed(&mut self) {
        self.misdeeds += 1;
        let now = self.stamp();
        let up_to = self.bodies.keys().max().copied().unwrap_or(0);
        let mut jobs: Vec<JobView> = (1..=up_to)
            .filter_map(|id| self.machine.job(JobId(id), now))
            .collect();
        jobs.retain(|job| match self.bug {
            Bug::Loses => job.state == "ready",
            Bug::HurriesDelays => job.state == "delayed" && job.time_left_seconds > 0,
            Bug::StealsHolds => job.state == "reserved" && job.time_left_seconds > 2,
            _ => true,
        });
        let stranger = SessionId {
            origin: self.origin(self.alive()),
            connection: ConnectionId(999_999),
        };
        match (self.bug, jobs.first()) {
            (Bug::Loses, Some(job)) => self.submit(stranger, Command::Delete { job: job.id }, None),
            (Bug::HurriesDelays, Some(job)) => {
                self.submit(stranger, Command::KickJob { job: job.id }, None);
            }
            (Bug::StealsHolds, Some(job)) => {
                // As if the holder had released it, without having been asked.
                if let Some(holder) = job.holder {
                    let release = Command::Release {
                        job: job.id,
                        priority: job.priority,
                        delay: trellis_types::Seconds(0),
                    };
                    self.submit(holder, release, None);
                }
            }
            (Bug::JumpsAhead, _) => self.ahead += 3_000,
            (Bug::Resurrects, _) => {
                // The same body again, under the deleted id, is what a restart from an old state
                // would show; here its next reader is told of the old id.
                if let Some((job, tube)) = self.deleted.pop()
                    && let Some(body) = self.bodies.get(&job.0).cloned()
                {
                    let client = self.random.random_range(0..self.clients.len());
                    let connection = self.clients[client].connection;
                    let op = 10_000_000 + self.order;
                    self.order += 1;
                    let call = Call::Reserve {
                        tubes: vec![tube],
                        timeout: Some(trellis_types::Seconds(0)),
                    };
                    self.records.push(Record::Invoked {
                        t: self.now,
                        op,
                        connection,
                        call,
                    });
                    self.records.push(Record::Replied {
                        t: self.now + MILLI,
                        op,
                        reply: Reply::Reserved { job, body },
                    });
                }
            }
            _ => {}
        }
    }

    pub(super) fn alive(&self) -> usize {
        self.nodes.iter().position(|node| node.alive).unwrap_or(0)
    }
}
