use std::io;

use trellis_queue::Command;
use trellis_types::{ConnectionId, JobId, Seconds, TubeName};
use trellis_wire::beanstalk::{Reply, Request, yaml};

use super::{
    front::{Client, Front},
    stats,
};

/// What a node answers by itself, and what it makes of the rest.
impl Front {
    pub(super) fn request(&mut self, connection: ConnectionId, request: Request) -> io::Result<()> {
        if let Some(counted) = request.counted() {
            self.gauges.counters[counted.index()] += 1;
        }
        let now = self.now;
        let draining = self.gauges.draining;
        let client = self.client(connection)?;
        let used = client.used.clone();
        let command = match request {
            Request::Put {
                priority,
                delay,
                ttr,
                body,
            } => {
                client.producer = true;
                if draining {
                    return self.reply(connection, &Reply::Draining);
                }
                Command::Put {
                    tube: used,
                    priority,
                    delay,
                    ttr,
                    body,
                }
            }
            Request::Reserve => {
                client.worker = true;
                Command::Reserve {
                    tubes: client.watched.clone(),
                    timeout: patience(client, None),
                }
            }
            Request::ReserveWithTimeout(seconds) => {
                client.worker = true;
                let timeout = patience(client, Some(seconds));
                Command::Reserve {
                    tubes: client.watched.clone(),
                    timeout,
                }
            }
            Request::ReserveJob(job) => Command::ReserveJob { job },
            Request::Delete(job) => Command::Delete { job },
            Request::Release {
                job,
                priority,
                delay,
            } => Command::Release {
                job,
                priority,
                delay,
            },
            Request::Bury { job, priority } => Command::Bury { job, priority },
            Request::Touch(job) => Command::Touch { job },
            Request::Kick { bound } => Command::Kick { tube: used, bound },
            Request::KickJob(job) => Command::KickJob { job },
            Request::PauseTube { tube, delay } => Command::PauseTube { tube, delay },
            Request::Use(tube) => {
                client.used = tube.clone();
                self.settle_references()?;
                return self.reply(connection, &Reply::Using(tube));
            }
            Request::Watch(tube) => {
                if !client.watched.contains(&tube) {
                    client.watched.push(tube);
                }
                let count = client.watched.len();
                self.settle_references()?;
                return self.reply(connection, &Reply::Watching(count));
            }
            Request::Ignore(tube) => {
                if client.watched.contains(&tube) && client.watched.len() == 1 {
                    return self.reply(connection, &Reply::NotIgnored);
                }
                // The last name moves into the gap, as in beanstalkd (sharp edge 111).
                if let Some(gap) = client.watched.iter().position(|watched| *watched == tube) {
                    client.watched.swap_remove(gap);
                }
                let count = client.watched.len();
                self.settle_references()?;
                return self.reply(connection, &Reply::Watching(count));
            }
            Request::Quit => return self.end(connection),
            Request::Peek(job) => {
                let there = self.machine.job(job, now).map(|_| job);
                return self.found(connection, there);
            }
            Request::PeekReady => {
                let job = self.machine.peek_ready(&used);
                return self.found(connection, job);
            }
            Request::PeekDelayed => {
                let job = self.machine.peek_delayed(&used);
                return self.found(connection, job);
            }
            Request::PeekBuried => {
                let job = self.machine.peek_buried(&used);
                return self.found(connection, job);
            }
            Request::StatsJob(job) => {
                let view = self.machine.job(job, now);
                let reply = view.map_or(Reply::NotFound, |view| Reply::Ok(stats::job(&view)));
                return self.reply(connection, &reply);
            }
            Request::StatsTube(tube) => {
                let reply = self.tube_stats(&tube);
                return self.reply(connection, &reply);
            }
            Request::Stats => {
                let reply = self.server_stats();
                return self.reply(connection, &reply);
            }
            Request::ListTubes => {
                let mut list = yaml::List::new();
                for tube in self.machine.tubes() {
                    list.entry(tube);
                }
                return self.reply(connection, &Reply::Ok(list.finish()));
            }
            Request::ListTubesWatched => {
                let mut list = yaml::List::new();
                for tube in &client.watched {
                    list.entry(tube);
                }
                return self.reply(connection, &Reply::Ok(list.finish()));
            }
            Request::ListTubeUsed => return self.reply(connection, &Reply::Using(used)),
        };
        self.submit(connection, command)
    }

    fn found(&mut self, connection: ConnectionId, job: Option<JobId>) -> io::Result<()> {
        let found = job.and_then(|job| Some((job, self.bodies.get(&job)?.clone())));
        let reply = found.map_or(Reply::NotFound, |(job, body)| Reply::Found { job, body });
        self.reply(connection, &reply)
    }

    fn tube_stats(&self, tube: &TubeName) -> Reply {
        let Some(view) = self.machine.tube(tube, self.now) else {
            return Reply::NotFound;
        };
        let open = || self.clients.values().filter(|client| !client.ended);
        let using = open().filter(|client| client.used == *tube).count();
        let watching = open()
            .filter(|client| client.watched.contains(tube))
            .count();
        Reply::Ok(stats::tube(&view, using as u64, watching as u64))
    }

    fn server_stats(&mut self) -> Reply {
        let open = || self.clients.values().filter(|client| !client.ended);
        self.gauges.connections = open().count() as u64;
        self.gauges.producers = open().filter(|client| client.producer).count() as u64;
        self.gauges.workers = open().filter(|client| client.worker).count() as u64;
        self.gauges.uptime_seconds = self.now.0 / 1_000;
        Reply::Ok(stats::server(&self.machine.server(), &self.gauges))
    }

    /// Tells the machine which tubes are used or watched from now on; new ones first, so that no
    /// tube is without any for a moment.
    pub(super) fn settle_references(&mut self) -> io::Result<()> {
        let open = self.clients.values().filter(|client| !client.ended);
        let mut wanted: Vec<TubeName> = open
            .flat_map(|client| client.watched.iter().chain([&client.used]).cloned())
            .collect();
        wanted.sort();
        wanted.dedup();
        let all: Vec<TubeName> = self.machine.tubes().cloned().collect();
        let known = |tube: &&TubeName| self.machine.has_reference(self.origin, tube);
        let old: Vec<_> = all
            .iter()
            .filter(known)
            .filter(|tube| !wanted.contains(tube))
            .cloned()
            .collect();
        let mut commands = Vec::new();
        for tube in wanted.into_iter().filter(|tube| !known(&tube)) {
            commands.push(Command::TubeRef { tube, set: true });
        }
        for tube in old {
            commands.push(Command::TubeRef { tube, set: false });
        }
        for command in commands {
            self.submit(ConnectionId(0), command)?;
        }
        Ok(())
    }
}

/// A half-closed client cannot take part in waiting (specification, 1.10).
fn patience(client: &Client, timeout: Option<Seconds>) -> Option<Seconds> {
    if client.half_closed {
        Some(Seconds(0))
    } else {
        timeout
    }
}
