use std::collections::VecDeque;

use rand::{Rng, SeedableRng, rngs::StdRng};
use trellis_types::{JobId, Priority, Seconds, TubeName};

use super::Profile;
use crate::history::{Body, Call, Reply};

/// What a client is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// To ask this, having first made its connection use or watch the tubes that are named.
    Ask(Call),
    /// To do nothing for so many milliseconds.
    Rest(u32),
    /// To close its connection in good order and open another, perhaps to another node.
    Reconnect,
}

/// Ids that a client remembers having seen.
const REMEMBERED: usize = 16;

/// Jobs that a client holds at most.
const HELD_MAX: usize = 3;

/// One client's part of a workload.
#[derive(Clone, Debug)]
pub struct Script {
    random: StdRng,
    profile: Profile,
    client: u32,
    puts: u64,
    held: Vec<JobId>,
    seen: VecDeque<JobId>,
    newest: u64,
    asked: Option<Call>,
    rests: bool,
}

impl Script {
    pub(super) fn new(seed: u64, profile: &Profile, client: u32) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(client.into())),
            profile: profile.clone(),
            client,
            puts: 0,
            held: Vec::new(),
            seen: VecDeque::new(),
            newest: 0,
            asked: None,
            rests: false,
        }
    }

    /// The next step, after `last` was the answer to what was asked before; `None` at the beginning
    /// and after anything but a question.
    pub fn next(&mut self, last: Option<&Reply>) -> Step {
        if let (Some(asked), Some(reply)) = (self.asked.take(), last) {
            self.learn(&asked, reply);
        }
        if !self.rests && self.profile.rest_ms > 0 {
            self.rests = true;
            return Step::Rest(self.random.random_range(0..=self.profile.rest_ms));
        }
        self.rests = false;
        if self.chance(self.profile.reconnects_permille) {
            self.lost();
            return Step::Reconnect;
        }
        let call = self.call();
        self.asked = Some(call.clone());
        Step::Ask(call)
    }

    /// The connection is gone, and with it what it held.
    pub fn lost(&mut self) {
        self.held.clear();
        self.asked = None;
    }

    fn learn(&mut self, asked: &Call, reply: &Reply) {
        match (asked, reply) {
            (_, Reply::Reserved { job, .. }) => {
                self.held.push(*job);
                self.remember(*job);
            }
            (_, Reply::Inserted { job } | Reply::Found { job, .. }) => self.remember(*job),
            (
                Call::Delete { job } | Call::Release { job, .. } | Call::Bury { job, .. },
                Reply::Deleted | Reply::Released | Reply::Buried | Reply::NotFound,
            )
            | (Call::Touch { job }, Reply::NotFound) => self.held.retain(|held| held != job),
            _ => {}
        }
    }

    fn remember(&mut self, job: JobId) {
        self.newest = self.newest.max(job.0);
        self.seen.push_back(job);
        if self.seen.len() > REMEMBERED {
            self.seen.pop_front();
        }
    }

    fn chance(&mut self, permille: u32) -> bool {
        self.random.random_range(0..1_000) < permille
    }

    /// The tube that this client mostly puts into and takes from.
    fn tube(&mut self) -> TubeName {
        let own = self.client;
        let other = if self.chance(150) {
            self.random.random_range(0..8)
        } else {
            0
        };
        self.profile.tube(own + other)
    }

    fn call(&mut self) -> Call {
        if self.chance(self.profile.pauses_permille) {
            let delay = Seconds(self.random.random_range(0..=2));
            return Call::PauseTube {
                tube: self.tube(),
                delay,
            };
        }
        if !self.held.is_empty() && (self.held.len() >= HELD_MAX || self.chance(650)) {
            return self.settle();
        }
        // A third of the clients mostly puts, the others mostly take.
        let puts = if self.client.is_multiple_of(3) {
            550
        } else {
            150
        };
        match self.random.random_range(0..1_000) {
            n if n < puts => self.put(),
            n if n < 750 => self.reserve(),
            _ => self.look_or_meddle(),
        }
    }

    fn priority(&mut self) -> Priority {
        Priority(self.random.random_range(0..=self.profile.priorities))
    }

    fn delay(&mut self) -> Seconds {
        if self.profile.delay_seconds > 0 && self.chance(200) {
            Seconds(self.random.random_range(1..=self.profile.delay_seconds))
        } else {
            Seconds(0)
        }
    }

    fn put(&mut self) -> Call {
        self.puts += 1;
        let key = format!("c{}-{}", self.client, self.puts);
        let (shortest, longest) = self.profile.ttr_seconds;
        let bytes = self.random.random_range(0..=self.profile.body_bytes);
        Call::Put {
            tube: self.tube(),
            priority: self.priority(),
            delay: self.delay(),
            ttr: Seconds(self.random.random_range(shortest..=longest)),
            body: Body::named(&key, bytes),
        }
    }

    fn reserve(&mut self) -> Call {
        if self.chance(60)
            && let Some(job) = self.some_job()
        {
            return Call::ReserveJob { job };
        }
        let mut tubes = vec![self.tube()];
        if self.chance(250) {
            let other = self.profile.tube(self.client + 1);
            if !tubes.contains(&other) {
                tubes.push(other);
            }
        }
        let timeout = match self.random.random_range(0..4) {
            0 => 0,
            1 => 1,
            _ => 2,
        };
        Call::Reserve {
            tubes,
            timeout: Some(Seconds(timeout)),
        }
    }

    /// What a worker does with a job.
    fn settle(&mut self) -> Call {
        let at = self.random.random_range(0..self.held.len());
        let job = self.held[at];
        match self.random.random_range(0..100) {
            0..65 => Call::Delete { job },
            65..80 => Call::Release {
                job,
                priority: self.priority(),
                delay: self.delay(),
            },
            80..88 => Call::Bury {
                job,
                priority: self.priority(),
            },
            88..95 => Call::Touch { job },
            _ => Call::StatsJob { job },
        }
    }

    /// A job of anybody: one seen, or one whose id is near.
    fn some_job(&mut self) -> Option<JobId> {
        if self.newest == 0 {
            return None;
        }
        if self.chance(500) && !self.seen.is_empty() {
            let at = self.random.random_range(0..self.seen.len());
            return self.seen.get(at).copied();
        }
        let oldest = self.newest.saturating_sub(30).max(1);
        Some(JobId(self.random.random_range(oldest..=self.newest + 2)))
    }

    fn look_or_meddle(&mut self) -> Call {
        let tube = self.tube();
        let Some(job) = self.some_job() else {
            return Call::PeekReady { tube };
        };
        match self.random.random_range(0..100) {
            0..20 => Call::StatsJob { job },
            20..38 => Call::Peek { job },
            38..50 => Call::PeekReady { tube },
            50..55 => Call::PeekDelayed { tube },
            55..61 => Call::PeekBuried { tube },
            61..70 => Call::StatsTube { tube },
            70..78 => Call::Kick {
                tube,
                bound: self.random.random_range(1..=3),
            },
            78..83 => Call::KickJob { job },
            83..92 => Call::Delete { job },
            92..95 => Call::Touch { job },
            95..97 => Call::Bury {
                job,
                priority: self.priority(),
            },
            _ => Call::Release {
                job,
                priority: self.priority(),
                delay: Seconds(0),
            },
        }
    }
}
