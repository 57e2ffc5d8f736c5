use futures::future::BoxFuture;
use trellis_consensus::{Membership, Owed, Snapshot, StateStore};
use trellis_queue::{Batch, Command, Content, Item, LeaderCommand, Machine, Outcome};
use trellis_types::{ConnectionId, JobId, OriginId, Priority, Run, Seconds, TubeName};

use super::*;

/// The only origin of these stories.
pub(super) const ORIGIN: OriginId = OriginId {
    node: NodeId(7),
    run: Run(1),
};

/// A node that applies what it is told and mirrors it.
pub(super) struct Replica {
    pub(super) opened: Opened,
    pub(super) machine: Machine,
    /// The index of the next entry.
    pub(super) next: u64,
    /// The number of the origin's next batch.
    seq: u64,
    runtime: tokio::runtime::Runtime,
}

impl Replica {
    /// In a new folder, with the origin open.
    pub(super) fn new(folder: &Folder) -> Self {
        let mut replica = Self::load(folder.open());
        replica.apply(&open_origin());
        replica
    }

    /// As a node starts: from what the disk says.
    pub(super) fn load(opened: Opened) -> Self {
        let loaded = opened.state.load().unwrap();
        loaded.machine.check().unwrap();
        Self {
            opened,
            machine: loaded.machine,
            next: loaded.applied.map_or(0, |applied| applied.index + 1),
            seq: 1,
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap(),
        }
    }

    /// Puts an entry into the log without waiting for the disk, and applies it.
    pub(super) fn apply(&mut self, entry: &trellis_queue::Entry) -> Outcome {
        if self
            .opened
            .log
            .last_index()
            .is_none_or(|last| last < self.next)
        {
            let line = vec![super::entry(self.next, 10)];
            let appending = self.opened.log.append(line, IOFlushed::noop());
            self.runtime.block_on(appending).unwrap();
        }
        let mut outcome = self.machine.apply(entry);
        let changes = std::mem::take(&mut outcome.changes);
        let position = at(self.next);
        self.next += 1;
        let state = &self.opened.state;
        state
            .record(position, None, &self.machine, changes)
            .unwrap();
        outcome
    }

    /// Commands of connection 1, as one entry.
    pub(super) fn tell(&mut self, commands: Vec<Command>) -> Outcome {
        let entry = batch(self.next, self.seq, 1, commands);
        self.seq += 1;
        self.apply(&entry)
    }

    pub(super) fn put(&mut self, body: impl Into<Bytes>) -> JobId {
        let job = self.machine.rows().find_map(|row| match row {
            trellis_queue::Row::Meta(meta) => Some(JobId(meta.next_job)),
            _ => None,
        });
        self.tell(vec![put(body)]);
        job.unwrap()
    }

    pub(super) fn owe(&self, job: JobId, bytes: usize) -> Owed {
        let bytes = u32::try_from(bytes).unwrap();
        self.opened.state.bodies().owe(job, bytes)
    }

    /// Everything applied is written.
    pub(super) fn settle(&self) {
        self.opened.state.settle(&self.machine);
    }

    /// All closed windows are written.
    pub(super) fn drain(&self) {
        eventually(|| self.opened.state.write_outstanding(), Option::is_none);
    }

    pub(super) fn snapshot(&self) -> Arc<dyn Snapshot> {
        let building = self.begin_snapshot();
        self.runtime.block_on(building).unwrap()
    }

    pub(super) fn begin_snapshot(&self) -> BoxFuture<'static, io::Result<Arc<dyn Snapshot>>> {
        self.opened.state.begin_snapshot(&self.machine).unwrap()
    }

    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(super) fn membership(&mut self, membership: &Membership) {
        let line = vec![super::entry(self.next, 10)];
        let appending = self.opened.log.append(line, IOFlushed::noop());
        self.runtime.block_on(appending).unwrap();
        let state = &self.opened.state;
        let position = at(self.next);
        state
            .record(position, Some(membership), &self.machine, Vec::new())
            .unwrap();
        self.next += 1;
    }
}

pub(super) fn open_origin() -> trellis_queue::Entry {
    trellis_queue::Entry {
        at: Timestamp(1),
        content: Content::Leader(vec![LeaderCommand::OpenOrigin(ORIGIN)]),
    }
}

/// Commands of one connection as the entry at `index`.
pub(super) fn batch(
    index: u64,
    seq: u64,
    connection: u64,
    commands: Vec<Command>,
) -> trellis_queue::Entry {
    let connection = ConnectionId(connection);
    let items = commands
        .into_iter()
        .map(|command| Item {
            connection,
            command,
        })
        .collect();
    let batch = Batch {
        origin: ORIGIN,
        seq,
        items,
    };
    trellis_queue::Entry {
        at: Timestamp(index * 100),
        content: Content::Batches(vec![batch]),
    }
}

pub(super) fn tube(name: &str) -> TubeName {
    TubeName::parse(name.as_bytes()).unwrap()
}

pub(super) fn put(body: impl Into<Bytes>) -> Command {
    Command::Put {
        tube: tube("mail"),
        priority: Priority(10),
        delay: Seconds(0),
        ttr: Seconds(60),
        body: body.into(),
    }
}

pub(super) fn reserve() -> Command {
    Command::Reserve {
        tubes: vec![tube("mail")],
        timeout: Some(Seconds(0)),
    }
}

pub(super) fn delete(job: JobId) -> Command {
    Command::Delete { job }
}
