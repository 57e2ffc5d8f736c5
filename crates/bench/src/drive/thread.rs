use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use rustix::event::epoll;
use rustix::time::{ClockId, Timespec, clock_gettime};
use trellis_types::TubeName;
use trellis_wire::beanstalk::Request;

use super::actor::{Actor, Roaming, Stage};
use super::connection::Connection;
use super::dialect::{Place, Tongue, dialect};
use super::pace::Pace;
use super::tally::Tally;
use super::{Times, nanos};
use crate::plan::{Mix, Plan};

/// Bytes read from a socket at once.
const SCRATCH_BYTES: usize = 64 << 10;
/// Sockets that are looked at between two looks at the clock.
const EVENTS_MAX: usize = 256;
/// How long an answer may take before the run.
const OPEN_MAX: Duration = Duration::from_secs(10);
/// How long news of a stream takes from one NATS server to the others, generously.
const NATS_HEARS: Duration = Duration::from_millis(200);
/// Failed operations after which a thread gives up: more of the same says nothing new.
const FAILURES_MAX: u64 = 100;

/// A thread's share of the connections and of the work.
#[derive(Debug)]
pub(super) struct DriverThread {
    connections: Vec<Connection>,
    /// Which actor a connection belongs to.
    actor_of: Vec<usize>,
    actors: Vec<Actor>,
    pace: Option<Pace>,
    times: Times,
    tally: Tally,
    epoll: rustix::fd::OwnedFd,
}

impl DriverThread {
    /// Opens the connections of thread number `index`. The tubes are named after `run`.
    pub(super) fn connect(
        plan: &Plan,
        run: &str,
        index: usize,
        times: Times,
    ) -> anyhow::Result<Self> {
        let load = &plan.load;
        let target = |number: usize| plan.targets[number % plan.targets.len()];
        let body = body(load.body_bytes);
        let roamed: Arc<[TubeName]> = (0..load.roam)
            .map(|number| TubeName::parse(format!("roam-{number}").as_bytes()))
            .collect::<Result<_, _>>()?;

        let mut thread = Self {
            connections: Vec::new(),
            actor_of: Vec::new(),
            actors: Vec::new(),
            pace: load.rate.map(|rate| Pace::new(rate, index, load.threads)),
            times,
            tally: Tally::new(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        };
        for number in (index..load.connections).step_by(load.threads) {
            let actor = thread.actors.len();
            let shared = if load.mix == Mix::Delivery {
                number
            } else {
                number % load.tubes
            };
            let tube = TubeName::parse(format!("bench-{run}-{shared}").as_bytes())?;
            let founds_tube = load.mix == Mix::Delivery || number < load.tubes;
            let add = |thread: &mut Self, at: usize, first: &[Request], side: usize| {
                let place = Place {
                    number: 2 * number + side,
                    founds_tube,
                    depth: load.depth,
                };
                thread.add(plan, target(at), place, first, actor)
            };
            let put_there = Request::Use(tube.clone());
            let watch_only = [
                Request::Watch(tube),
                Request::Ignore(TubeName::parse(b"default")?),
            ];
            let (producer, worker) = match load.mix {
                Mix::Put => (add(&mut thread, number, &[put_there], 0)?, None),
                Mix::Cycle => {
                    let [watch, ignore] = watch_only;
                    (
                        add(&mut thread, number, &[put_there, watch, ignore], 0)?,
                        None,
                    )
                }
                Mix::Delivery => {
                    let producer = add(&mut thread, number, &[put_there], 0)?;
                    (
                        producer,
                        Some(add(&mut thread, number + 1, &watch_only, 1)?),
                    )
                }
            };
            thread.actors.push(Actor::new(
                load.mix,
                producer,
                worker,
                load.depth,
                body.clone(),
                (!roamed.is_empty()).then(|| Roaming::new(Arc::clone(&roamed), number * 31)),
            ));
        }
        Ok(thread)
    }

    fn add(
        &mut self,
        plan: &Plan,
        target: std::net::SocketAddr,
        place: Place,
        first: &[Request],
        actor: usize,
    ) -> anyhow::Result<usize> {
        let tongue = plan.load.dialect;
        let dialect = dialect(tongue, place).context("this dialect needs a driver of its own")?;
        let connection = Connection::open(target, dialect, first, OPEN_MAX)?;
        connection.stream.set_nonblocking(true)?;
        if place.founds_tube && tongue == Tongue::Nats {
            // The other servers hear of a new stream a moment later, and until then nobody answers there.
            std::thread::sleep(NATS_HEARS);
        }
        let index = self.connections.len();
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &connection.stream, data, epoll::EventFlags::IN)?;
        self.connections.push(connection);
        self.actor_of.push(actor);
        Ok(index)
    }

    /// Drives until the time is over and everything is answered.
    pub(super) fn run(mut self) -> anyhow::Result<Tally> {
        let base = Instant::now();
        let mut scratch = vec![0; SCRATCH_BYTES];
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut touched: Vec<usize> = Vec::new();
        let mut cpu_at_start: Option<Duration> = None;
        let mut cpu_at_end: Option<Duration> = None;
        let mut last_reply = 0;

        self.start(nanos(base.elapsed()));
        touched.extend(0..self.connections.len());
        loop {
            let now = nanos(base.elapsed());
            if cpu_at_start.is_none() && now >= self.times.measured_from {
                cpu_at_start = Some(thread_cpu());
            }
            if cpu_at_end.is_none() && now >= self.times.until {
                cpu_at_end = Some(thread_cpu());
            }
            self.send_what_is_due(now, &mut touched);
            self.flush(&mut touched)?;

            if now >= self.times.until && self.actors.iter().all(|actor| self.is_done(actor)) {
                break;
            }
            if self.tally.failed >= FAILURES_MAX || self.connections.iter().all(|it| it.dead) {
                break;
            }
            if now.saturating_sub(last_reply) > self.times.patience {
                self.give_up();
                break;
            }

            events.clear();
            let timeout = self.until_next(now);
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let index = usize::try_from(event.data.u64())?;
                let now = nanos(base.elapsed());
                if self.read(index, now, &mut scratch) {
                    last_reply = now;
                }
                touched.push(index);
                let actor = &self.actors[self.actor_of[index]];
                touched.push(actor.producer);
                touched.extend(actor.worker);
            }
        }
        let (start, end) = (
            cpu_at_start.unwrap_or_default(),
            cpu_at_end.unwrap_or_else(thread_cpu),
        );
        self.tally.cpu = end.saturating_sub(start);
        Ok(self.tally)
    }

    fn stage<'a>(
        connections: &'a mut [Connection],
        tally: &'a mut Tally,
        times: Times,
        now: u64,
        open_loop: bool,
    ) -> Stage<'a> {
        Stage {
            connections,
            tally,
            now,
            measured_from: times.measured_from,
            until: times.until,
            open_loop,
        }
    }

    fn start(&mut self, now: u64) {
        let open_loop = self.pace.is_some();
        let mut stage = Self::stage(
            &mut self.connections,
            &mut self.tally,
            self.times,
            now,
            open_loop,
        );
        for actor in &mut self.actors {
            actor.prepare(&mut stage);
            if !open_loop {
                actor.fill(&mut stage);
            }
        }
    }

    fn send_what_is_due(&mut self, now: u64, touched: &mut Vec<usize>) {
        let Some(pace) = &mut self.pace else { return };
        let last = now.min(self.times.until.saturating_sub(1));
        let mut stage = Self::stage(
            &mut self.connections,
            &mut self.tally,
            self.times,
            now,
            true,
        );
        while pace.due() <= last {
            let (number, due) = pace.take();
            let actor = (number % self.actors.len() as u64) as usize;
            self.actors[actor].intend(due, &mut stage);
            touched.push(self.actors[actor].producer);
        }
    }

    /// True if no answer is to come any more.
    fn is_done(&self, actor: &Actor) -> bool {
        let dead = |index: usize| self.connections[index].dead;
        actor.is_idle() || dead(actor.producer) || actor.worker.is_some_and(dead)
    }

    /// How long nothing needs to be done unless a reply comes.
    fn until_next(&self, now: u64) -> Timespec {
        let mut next = now + 100_000_000;
        if now < self.times.until {
            next = next.min(self.times.until);
            if let Some(pace) = &self.pace {
                next = next.min(pace.due());
            }
        }
        let nanos = next.saturating_sub(now);
        Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        }
    }

    /// Takes all replies that are there. True if there was one.
    fn read(&mut self, index: usize, now: u64, scratch: &mut [u8]) -> bool {
        let actor = &mut self.actors[self.actor_of[index]];
        if self.connections[index].dead {
            return false;
        }
        if let Err(error) = self.connections[index].read(scratch) {
            self.kill(index, &error.to_string());
            return false;
        }
        let open_loop = self.pace.is_some();
        let mut stage = Self::stage(
            &mut self.connections,
            &mut self.tally,
            self.times,
            now,
            open_loop,
        );
        let mut any = false;
        loop {
            match stage.connections[index].step() {
                Ok(Some(reply)) => match stage.connections[index].expected.pop_front() {
                    Some(expected) => actor.take(&reply, expected, &mut stage),
                    None => stage
                        .tally
                        .fail(|| format!("{reply:?} came without a request")),
                },
                Ok(None) => break,
                Err(bad) => {
                    self.kill(index, &format!("{bad:#}"));
                    return any;
                }
            }
            any = true;
        }
        any
    }

    fn flush(&mut self, touched: &mut Vec<usize>) -> anyhow::Result<()> {
        for index in touched.drain(..) {
            let connection = &mut self.connections[index];
            if connection.dead || connection.out.is_empty() {
                continue;
            }
            let was_blocked = connection.blocked;
            if let Err(error) = connection.flush() {
                self.kill(index, &error.to_string());
            } else if was_blocked != connection.blocked {
                let mut flags = epoll::EventFlags::IN;
                flags.set(epoll::EventFlags::OUT, connection.blocked);
                let data = epoll::EventData::new_u64(index as u64);
                epoll::modify(&self.epoll, &connection.stream, data, flags)?;
            }
        }
        Ok(())
    }

    /// A connection is lost, and with it every answer that it owed.
    fn kill(&mut self, index: usize, why: &str) {
        let connection = &mut self.connections[index];
        connection.dead = true;
        let (target, owed) = (connection.target, connection.expected.len().max(1));
        // The socket stays open until the end; it only must not wake the loop any more.
        let _ = epoll::delete(&self.epoll, &connection.stream);
        for _ in 0..owed {
            self.tally.fail(|| format!("{target}: {why}"));
        }
    }

    fn give_up(&mut self) {
        let seconds = self.times.patience / 1_000_000_000;
        let unfinished: usize = self.actors.iter().map(Actor::unfinished).sum();
        for _ in 0..unfinished.max(1) {
            self.tally.fail(|| {
                format!(
                    "no reply came for {seconds} s while {unfinished} operations were under way"
                )
            });
        }
    }
}

/// CPU that this thread has used so far.
pub(super) fn thread_cpu() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        used.tv_sec.unsigned_abs(),
        u32::try_from(used.tv_nsec).unwrap_or(0),
    )
}

/// Bytes that no compression makes shorter, the same for each run.
pub(super) fn body(bytes: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut body = Vec::with_capacity(bytes + 8);
    while body.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        body.extend_from_slice(&state.to_le_bytes());
    }
    body.truncate(bytes);
    body.into()
}
