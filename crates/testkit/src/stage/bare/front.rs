use std::{collections::BTreeMap, io, time::Duration};

use bytes::{Bytes, BytesMut};
use trellis_queue::{
    Answer, Batch, Change, Command, Content, Entry, Event, Fate, Item, Key, LeaderCommand, Machine,
    Outcome, Verdict,
};
use trellis_types::{
    ConnectionId, JobId, NodeId, OriginId, Run, Seconds, SessionId, Timestamp, TubeName,
};
use trellis_wire::beanstalk::{Decoder, Refusal, Reply, Request, Step, yaml};

use super::stats::{self, Gauges};

/// The one node that there is.
const NODE: NodeId = NodeId(1);

/// Above this many jobs the machine checks itself no longer after each entry.
const CHECKED_JOBS_MAX: u64 = 64;

/// A node reduced to what a talk needs: connections, counters, and one entry per command.
pub(super) struct Front {
    machine: Machine,
    bodies: BTreeMap<JobId, Bytes>,
    now: Timestamp,
    origin: OriginId,
    seq: u64,
    clients: BTreeMap<ConnectionId, Client>,
    next_connection: u64,
    gauges: Gauges,
}

struct Client {
    decoder: Decoder,
    out: BytesMut,
    used: TubeName,
    watched: Vec<TubeName>,
    producer: bool,
    worker: bool,
    /// A reserve of it waits: nothing more is read.
    parked: bool,
    half_closed: bool,
    ended: bool,
}

impl Front {
    pub(super) fn new(body_bytes_max: u32) -> Self {
        let mut front = Self {
            machine: Machine::new(),
            bodies: BTreeMap::new(),
            // Not 0, so that nothing works only because time begins there.
            now: Timestamp(1_000_000),
            origin: OriginId {
                node: NODE,
                run: Run(0),
            },
            seq: 0,
            clients: BTreeMap::new(),
            next_connection: 0,
            gauges: Gauges {
                counters: [0; 22],
                body_bytes_max,
                connections: 0,
                producers: 0,
                workers: 0,
                total_connections: 0,
                uptime_seconds: 0,
                draining: false,
            },
        };
        front.open_origin();
        front
    }

    pub(super) fn now(&self) -> Duration {
        Duration::from_millis(self.now.0)
    }

    pub(super) fn drain(&mut self) {
        self.gauges.draining = true;
    }

    pub(super) fn connect(&mut self) -> ConnectionId {
        self.next_connection += 1;
        self.gauges.total_connections += 1;
        let connection = ConnectionId(self.next_connection);
        self.clients.insert(
            connection,
            Client {
                decoder: Decoder::new(self.gauges.body_bytes_max),
                out: BytesMut::new(),
                used: TubeName::default_tube(),
                watched: vec![TubeName::default_tube()],
                producer: false,
                worker: false,
                parked: false,
                half_closed: false,
                ended: false,
            },
        );
        connection
    }

    pub(super) fn hear(&mut self, connection: ConnectionId, bytes: &[u8]) -> io::Result<()> {
        let client = self.client(connection)?;
        if client.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        client.decoder.feed(bytes);
        self.go_on(connection)
    }

    pub(super) fn take_output(&mut self, connection: ConnectionId) -> io::Result<(Vec<u8>, bool)> {
        let client = self.client(connection)?;
        Ok((client.out.split().to_vec(), client.ended))
    }

    pub(super) fn half_close(&mut self, connection: ConnectionId) -> io::Result<()> {
        let client = self.client(connection)?;
        client.half_closed = true;
        if client.parked {
            self.submit(connection, Command::EndWait)?;
        }
        self.go_on(connection)
    }

    pub(super) fn close(&mut self, connection: ConnectionId) -> io::Result<()> {
        let gone = self.clients.remove(&connection);
        if gone.is_some_and(|client| !client.ended) {
            self.submit(connection, Command::CloseSession)?;
        }
        self.settle_references()
    }

    /// Moves time to what is due next, or to `until` if that comes first; says which.
    pub(super) fn advance_to_next_due(&mut self, until: Duration) -> io::Result<bool> {
        let until = Timestamp(u64::try_from(until.as_millis()).unwrap_or(u64::MAX));
        let due = self.machine.next_due().filter(|due| *due <= until);
        self.now = self.now.max(due.unwrap_or(until));
        if due.is_some() {
            self.apply(Content::Leader(vec![LeaderCommand::Tick]))?;
        }
        Ok(due.is_some())
    }

    pub(super) fn stall(&mut self, time: Duration) -> io::Result<()> {
        self.now = self
            .now
            .after_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.apply(Content::Leader(vec![LeaderCommand::Tick]))
            .map(drop)
    }

    /// The state goes through its rows, as through a disk; connections and counters are lost.
    pub(super) fn restart(&mut self, body_bytes_max: Option<u32>) -> io::Result<()> {
        let rows: Vec<_> = self.machine.rows().collect();
        let digest = self.machine.digest();
        self.machine = Machine::load(rows).map_err(|bad| io::Error::other(bad.0))?;
        if self.machine.digest() != digest {
            return Err(io::Error::other(
                "the digest changed on the way through the rows",
            ));
        }
        self.clients.clear();
        self.gauges.counters = [0; 22];
        self.gauges.total_connections = 0;
        self.gauges.draining = false;
        if let Some(body_bytes_max) = body_bytes_max {
            self.gauges.body_bytes_max = body_bytes_max;
        }
        self.open_origin();
        Ok(())
    }

    /// A new run; it ends the one before.
    fn open_origin(&mut self) {
        self.origin.run.0 += 1;
        self.seq = 0;
        let opened = self.apply(Content::Leader(vec![LeaderCommand::OpenOrigin(
            self.origin,
        )]));
        debug_assert!(opened.is_ok(), "an origin cannot be opened: {opened:?}");
    }

    fn client(&mut self, connection: ConnectionId) -> io::Result<&mut Client> {
        self.clients
            .get_mut(&connection)
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn session(&self, connection: ConnectionId) -> SessionId {
        SessionId {
            origin: self.origin,
            connection,
        }
    }

    /// Carries out what the client has said, until it waits or there is no more.
    fn go_on(&mut self, connection: ConnectionId) -> io::Result<()> {
        loop {
            let client = self.client(connection)?;
            if client.parked || client.ended {
                return Ok(());
            }
            match client.decoder.step() {
                Step::NeedMore if client.half_closed => return self.end(connection),
                Step::NeedMore => return Ok(()),
                Step::Refuse { refusal, counts } => {
                    client.producer |= refusal.makes_producer();
                    if let Some(counted) = counts {
                        self.gauges.counters[counted.index()] += 1;
                    }
                    self.reply(connection, &Reply::from(refusal))?;
                }
                Step::Request(request) => self.request(connection, request)?,
            }
        }
    }

    fn end(&mut self, connection: ConnectionId) -> io::Result<()> {
        self.client(connection)?.ended = true;
        self.submit(connection, Command::CloseSession)?;
        self.settle_references()
    }

    fn reply(&mut self, connection: ConnectionId, reply: &Reply) -> io::Result<()> {
        reply.encode(&mut self.client(connection)?.out);
        Ok(())
    }

    fn request(&mut self, connection: ConnectionId, request: Request) -> io::Result<()> {
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
    fn settle_references(&mut self) -> io::Result<()> {
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

    /// One command, one batch, one entry.
    fn submit(&mut self, connection: ConnectionId, command: Command) -> io::Result<()> {
        self.seq += 1;
        let items = vec![Item {
            connection,
            command,
        }];
        let batch = Batch {
            origin: self.origin,
            seq: self.seq,
            items,
        };
        let outcome = self.apply(Content::Batches(vec![batch]))?;
        for event in outcome.events {
            if let Event::Batch { fate, .. } = event {
                let Fate::Applied(verdicts) = fate else {
                    return Err(io::Error::other(format!("a batch was refused: {fate:?}")));
                };
                for verdict in verdicts {
                    self.verdict(connection, verdict)?;
                }
            }
        }
        Ok(())
    }

    fn verdict(&mut self, connection: ConnectionId, verdict: Verdict) -> io::Result<()> {
        match verdict {
            Verdict::Answer(Answer::Referenced) | Verdict::Silent => Ok(()),
            Verdict::Answer(answer) => self.answer(connection, answer),
            // Its answer may have come in the same outcome already, and has then been given.
            Verdict::Parked => {
                let waits = self.machine.is_waiting(self.session(connection));
                self.client(connection)?.parked = waits;
                Ok(())
            }
            Verdict::Skipped => Err(io::Error::other("a command was skipped")),
        }
    }

    fn answer(&mut self, connection: ConnectionId, answer: Answer) -> io::Result<()> {
        let reply = match answer {
            Answer::Inserted(job) => Reply::Inserted(job),
            Answer::Reserved {
                job, body_bytes, ..
            } => {
                let body = self.bodies.get(&job).cloned().unwrap_or_default();
                if body.len() != body_bytes as usize {
                    return Err(io::Error::other(format!(
                        "the body of {job} is not at hand"
                    )));
                }
                self.client(connection)?.worker = true;
                Reply::Reserved { job, body }
            }
            Answer::DeadlineSoon => Reply::DeadlineSoon,
            Answer::TimedOut => Reply::TimedOut,
            Answer::Deleted => Reply::Deleted,
            Answer::Released => Reply::Released,
            Answer::Buried => Reply::Buried,
            Answer::Touched => Reply::Touched,
            Answer::Kicked(count) => Reply::Kicked(count),
            Answer::KickedJob => Reply::KickedJob,
            Answer::Paused => Reply::Paused,
            Answer::NotFound => Reply::NotFound,
            Answer::OutOfMemory => Reply::OutOfMemory,
            Answer::Referenced => return Ok(()),
            Answer::Undecodable => Reply::from(Refusal::BadFormat),
        };
        self.reply(connection, &reply)
    }

    /// Applies one entry and gives the deferred answers; the machine must be sound afterwards.
    fn apply(&mut self, content: Content) -> io::Result<Outcome> {
        let outcome = self.machine.apply(&Entry {
            at: self.now,
            content,
        });
        for change in &outcome.changes {
            match change {
                Change::Body { job, body } => drop(self.bodies.insert(*job, body.clone())),
                Change::Row(key @ Key::Job(job)) if self.machine.row(*key).is_none() => {
                    // Replies of this very outcome may still want it, so only others go.
                    let wanted = outcome.events.iter().any(|event| reserves(event, *job));
                    if !wanted {
                        self.bodies.remove(job);
                    }
                }
                Change::Row(_) => {}
            }
        }
        let view = self.machine.server();
        if view.ready + view.reserved + view.delayed + view.buried <= CHECKED_JOBS_MAX {
            self.machine.check().map_err(io::Error::other)?;
        }
        let mut served = Vec::new();
        for event in &outcome.events {
            if let Event::Deferred { session, answer } = event {
                let connection = session.connection;
                if self.clients.contains_key(&connection) {
                    self.answer(connection, answer.clone())?;
                    self.client(connection)?.parked = false;
                    served.push(connection);
                }
            }
        }
        for connection in served {
            self.go_on(connection)?;
        }
        Ok(outcome)
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

fn reserves(event: &Event, id: JobId) -> bool {
    matches!(event, Event::Deferred { answer: Answer::Reserved { job, .. }, .. } if *job == id)
}
