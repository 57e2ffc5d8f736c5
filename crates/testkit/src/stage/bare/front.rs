use std::{collections::BTreeMap, io, time::Duration};

use bytes::{Bytes, BytesMut};
use trellis_queue::{
    Answer, Batch, Change, Command, Content, Entry, Event, Fate, Item, Key, LeaderCommand, Machine,
    Outcome, Verdict,
};
use trellis_types::{ConnectionId, JobId, NodeId, OriginId, Run, SessionId, Timestamp, TubeName};
use trellis_wire::beanstalk::{Decoder, Refusal, Reply, Step};

use super::stats::Gauges;

/// The one node that there is.
const NODE: NodeId = NodeId(1);

/// Above this many jobs the machine checks itself no longer after each entry.
const CHECKED_JOBS_MAX: u64 = 64;

/// A node reduced to what a talk needs: connections, counters, and one entry per command.
pub(super) struct Front {
    pub(super) machine: Machine,
    pub(super) bodies: BTreeMap<JobId, Bytes>,
    pub(super) now: Timestamp,
    pub(super) origin: OriginId,
    seq: u64,
    pub(super) clients: BTreeMap<ConnectionId, Client>,
    next_connection: u64,
    pub(super) gauges: Gauges,
}

pub(super) struct Client {
    decoder: Decoder,
    out: BytesMut,
    pub(super) used: TubeName,
    pub(super) watched: Vec<TubeName>,
    pub(super) producer: bool,
    pub(super) worker: bool,
    /// A reserve of it waits: nothing more is read.
    parked: bool,
    pub(super) half_closed: bool,
    pub(super) ended: bool,
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

    pub(super) fn client(&mut self, connection: ConnectionId) -> io::Result<&mut Client> {
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

    pub(super) fn end(&mut self, connection: ConnectionId) -> io::Result<()> {
        self.client(connection)?.ended = true;
        self.submit(connection, Command::CloseSession)?;
        self.settle_references()
    }

    pub(super) fn reply(&mut self, connection: ConnectionId, reply: &Reply) -> io::Result<()> {
        reply.encode(&mut self.client(connection)?.out);
        Ok(())
    }

    /// One command, one batch, one entry.
    pub(super) fn submit(&mut self, connection: ConnectionId, command: Command) -> io::Result<()> {
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
            Answer::Kicked(count) | Answer::KickedPortion { count, .. } => Reply::Kicked(count),
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

fn reserves(event: &Event, id: JobId) -> bool {
    matches!(event, Event::Deferred { answer: Answer::Reserved { job, .. }, .. } if *job == id)
}
