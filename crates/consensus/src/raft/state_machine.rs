use std::{
    io,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture};
use openraft::{
    EntryPayload, OptionalSend, RaftSnapshotBuilder, SnapshotMeta,
    storage::{EntryResponder, RaftStateMachine},
};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use tokio::{sync::watch, task::yield_now};
use trellis_queue::{Command, Content, LeaderCommand, Machine, Outcome};
use trellis_rpc::queue::{decode_batch, decode_leader};
use trellis_types::{
    NodeId,
    seeded::{Bug, planted},
};

use super::{Contact, Entry, LogId, StoredMembership, TypeConfig};
use crate::{
    Listener, Membership, Payload, Position, Snapshot, SnapshotReceiver, StateStore, blocking,
    blocking::long, fail_stop,
};

/// Entries after which sockets are served even if more are at hand: a long replay must not hold
/// back the first answers.
const ROUND_ENTRIES: usize = 64;
/// How a snapshot is cut when it is copied or sent.
pub(crate) const CHUNK_BYTES: usize = 1024 * 1024;

/// The machine where others may look at it, and how far it is.
pub(crate) struct Applied {
    pub(crate) machine: RwLock<Machine>,
    /// The last entry that `machine` has taken in; moves only under its lock, so that both are of one
    /// moment to whoever holds it.
    pub(crate) taken_in: AtomicU64,
    /// What is published at the end of a round.
    pub(crate) index: watch::Sender<u64>,
}

/// A snapshot on its way out of or into a state store.
pub enum SnapshotTransfer {
    /// Made before the first entry: there is nothing to carry.
    Empty,
    /// One of this node.
    Built(Arc<dyn Snapshot>),
    /// One that came from the leader; complete and verified.
    Received {
        /// What holds it.
        snapshot: Box<dyn SnapshotReceiver>,
        /// Set when it has taken the state's place, on disk. openraft takes none that this node has
        /// committed already, and says the same of it.
        installed: Arc<AtomicBool>,
    },
}

/// A snapshot as openraft handles it.
pub type RaftSnapshot = openraft::Snapshot<super::LeaderId, NodeId, Contact, SnapshotTransfer>;

/// Applies committed entries: machine, then store, then listener.
pub struct StateMachine {
    applied: Arc<Applied>,
    store: Arc<dyn StateStore>,
    // Never locked: it only makes the whole thing `Sync`, which openraft wants.
    listener: Mutex<Box<dyn Listener>>,
    position: Option<Position>,
    membership: Membership,
}

impl StateMachine {
    /// Loads what `store` holds and shows it to `listener`.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub fn open(store: Arc<dyn StateStore>, listener: Box<dyn Listener>) -> io::Result<Self> {
        let loaded = store.load()?;
        let index = loaded.applied.map_or(0, |position| position.index);
        let mut this = Self {
            applied: Arc::new(Applied {
                machine: RwLock::new(loaded.machine),
                taken_in: AtomicU64::new(index),
                index: watch::Sender::new(index),
            }),
            store,
            listener: Mutex::new(listener),
            position: loaded.applied,
            membership: loaded.membership,
        };
        this.show_replaced();
        Ok(this)
    }

    pub(crate) fn applied(&self) -> Arc<Applied> {
        self.applied.clone()
    }

    fn show_replaced(&mut self) {
        let listener = self.listener.get_mut();
        listener.replaced(&self.applied.machine.read(), self.position);
        listener.membership(&self.membership);
    }

    fn apply_one(&mut self, entry: Entry) -> io::Result<()> {
        let position = entry.position();
        self.carry_out(position, entry.into_payload())
            .map_err(|error| stop("recording an entry", error))?;
        self.position = Some(position);
        Ok(())
    }

    fn carry_out(
        &mut self,
        position: Position,
        payload: EntryPayload<Payload, NodeId, Contact>,
    ) -> io::Result<()> {
        let listener = self.listener.get_mut();
        match payload {
            EntryPayload::Blank => {
                let machine = self.applied.machine.read();
                self.applied
                    .taken_in
                    .store(position.index, Ordering::Relaxed);
                self.store.record(position, None, &machine, Vec::new())
            }
            EntryPayload::Membership(membership) => {
                let before = self.membership.members.len();
                self.membership = Membership {
                    position: Some(position),
                    ..Membership::from(&membership)
                };
                let machine = self.applied.machine.read();
                self.applied
                    .taken_in
                    .store(position.index, Ordering::Relaxed);
                let forgets =
                    planted(Bug::RemovedMemberVotes) && self.membership.members.len() < before;
                let stored = (!forgets).then_some(&self.membership);
                self.store.record(position, stored, &machine, Vec::new())?;
                listener.membership(&self.membership);
                Ok(())
            }
            EntryPayload::Normal(payload) => {
                let at = payload.at;
                let entries = entries(position, payload);
                let mut work = || {
                    let mut machine = self.applied.machine.write();
                    let mut outcome = Outcome::default();
                    for (nth, entry) in entries.iter().enumerate() {
                        let next = machine.apply(entry);
                        if nth == 0 {
                            outcome = next;
                        } else {
                            outcome.events.extend(next.events);
                            outcome.changes.extend(next.changes);
                        }
                    }
                    self.applied
                        .taken_in
                        .store(position.index, Ordering::Relaxed);
                    let changes = std::mem::take(&mut outcome.changes);
                    self.store.record(position, None, &machine, changes)?;
                    let machine = RwLockWriteGuard::downgrade(machine);
                    listener.applied(position, at, outcome, &machine);
                    Ok(())
                };
                if entries.iter().any(may_take_long) {
                    long(work)
                } else {
                    work()
                }
            }
        }
    }

    async fn apply_all(
        &mut self,
        mut entries: impl Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin,
    ) -> io::Result<()> {
        let mut in_round = 0;
        loop {
            let next = match entries.next().now_or_never() {
                Some(next) => next,
                None => {
                    self.end_round();
                    in_round = 0;
                    entries.next().await
                }
            };
            let Some(next) = next else { break };
            let (entry, responder) = next?;
            if !self.store.has_room() {
                self.end_round();
                self.store
                    .room()
                    .await
                    .map_err(|error| stop("writing the state", error))?;
            }
            self.apply_one(entry)?;
            if let Some(responder) = responder {
                responder.send(());
            }
            in_round += 1;
            if in_round == ROUND_ENTRIES {
                self.end_round();
                in_round = 0;
                yield_now().await;
            }
        }
        self.end_round();
        Ok(())
    }

    /// A panic in the apply task would leave the rest of the process talking.
    fn panicked(&self) -> io::Error {
        let behind = self.position.unwrap_or_default();
        stop(
            "a bug",
            io::Error::other(format!("panic behind entry {behind}")),
        )
    }

    fn end_round(&mut self) {
        let index = self.position.map_or(0, |position| position.index);
        let moved = self.applied.index.send_if_modified(|published| {
            let moved = *published != index;
            *published = index;
            moved
        });
        if moved {
            self.listener.get_mut().round_over();
        }
    }

    /// Writes a snapshot of this node into a receiver of the same store: how a state that is older
    /// than its newest snapshot catches up at start.
    async fn copy(&self, snapshot: Arc<dyn Snapshot>) -> io::Result<Box<dyn SnapshotReceiver>> {
        let mut receiver = self.store.receive_snapshot()?;
        blocking(move || {
            for file in snapshot.files() {
                receiver.begin(&file)?;
                let mut offset = 0;
                while offset < file.len {
                    let chunk = snapshot.read(&file.name, offset, CHUNK_BYTES)?;
                    if chunk.is_empty() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    receiver.write(&chunk)?;
                    offset += chunk.len() as u64;
                }
            }
            receiver.finish()?;
            Ok(receiver)
        })
        .await
    }

    async fn install(
        &mut self,
        expected: Option<LogId>,
        transfer: SnapshotTransfer,
    ) -> io::Result<()> {
        let expected = Position::from(expected.ok_or(io::ErrorKind::InvalidData)?);
        let (received, installed) = match transfer {
            SnapshotTransfer::Received {
                snapshot,
                installed,
            } => (snapshot, Some(installed)),
            SnapshotTransfer::Built(snapshot) => (self.copy(snapshot).await?, None),
            SnapshotTransfer::Empty => return Err(io::ErrorKind::InvalidData.into()),
        };
        let loaded = self.store.install(received, expected).await?;
        if let Some(installed) = installed {
            installed.store(true, Ordering::Release);
        }
        if loaded.applied != Some(expected) {
            let found = loaded.applied.unwrap_or_default();
            return Err(io::Error::other(format!(
                "its state is at {found}, not at {expected}"
            )));
        }
        let old = {
            let mut machine = self.applied.machine.write();
            self.applied
                .taken_in
                .store(expected.index, Ordering::Relaxed);
            std::mem::replace(&mut *machine, loaded.machine)
        };
        // Millions of jobs take a while to forget.
        tokio::spawn(blocking(move || {
            drop(old);
            Ok(())
        }));
        self.position = loaded.applied;
        self.membership = loaded.membership;
        self.show_replaced();
        self.end_round();
        Ok(())
    }
}

/// Jobs that an entry may move before it counts as long: a few milliseconds.
const LONG_JOBS: u64 = 5_000;

/// Whether the work of an entry has no small bound: a kick moves as many jobs as it says, and an
/// origin ends with all its sessions. Heartbeats must not wait for that.
fn may_take_long(entry: &trellis_queue::Entry) -> bool {
    match &entry.content {
        Content::Leader(commands) => commands
            .iter()
            .any(|command| !matches!(command, LeaderCommand::Tick)),
        Content::Batches(batches) => {
            let commands = batches.iter().flat_map(|batch| &batch.items);
            let kicked: u64 = commands
                .map(|item| match item.command {
                    Command::Kick { bound, .. } | Command::KickPortion { bound, .. } => {
                        u64::from(bound)
                    }
                    _ => 0,
                })
                .sum();
            kicked > LONG_JOBS
        }
    }
}

/// What a payload asks of the machine: usually one entry. The leader's commands go before batches.
/// What cannot be decoded, though a leader has let it pass, is left out by every node equally.
fn entries(position: Position, payload: Payload) -> Vec<trellis_queue::Entry> {
    let Payload {
        at,
        batches,
        leader,
    } = payload;
    let mut entries = Vec::with_capacity(1);
    if !leader.is_empty() || batches.is_empty() {
        let commands = leader.iter().filter_map(|raw| {
            decode_leader(raw)
                .inspect_err(
                    |error| tracing::error!(%position, %error, "a leader command is refused"),
                )
                .ok()
        });
        entries.push(trellis_queue::Entry {
            at,
            content: Content::Leader(commands.collect()),
        });
    }
    if !batches.is_empty() {
        let batches = batches.into_iter().filter_map(|frame| {
            decode_batch(frame)
                .inspect_err(|error| tracing::error!(%position, %error, "a batch is refused"))
                .ok()
        });
        entries.push(trellis_queue::Entry {
            at,
            content: Content::Batches(batches.collect()),
        });
    }
    entries
}

/// An error of the state store is a failed disk.
fn stop(doing: &str, error: io::Error) -> io::Error {
    fail_stop(format_args!("{doing}: {error}"));
    error
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotTransfer;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let membership = self.membership.to_stored().map_err(io::Error::other)?;
        Ok((self.position.map(Into::into), membership))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let done = AssertUnwindSafe(self.apply_all(entries))
            .catch_unwind()
            .await;
        done.unwrap_or_else(|_| Err(self.panicked()))
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<SnapshotBuilder> {
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        // Called between applies: what is frozen here is exactly one position.
        let frozen = self.position.map(|_| {
            let machine = self.applied.machine.read();
            self.store.begin_snapshot(&machine)
        });
        SnapshotBuilder {
            frozen: Mutex::new(frozen),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<super::LeaderId, NodeId, Contact>,
        snapshot: SnapshotTransfer,
    ) -> io::Result<()> {
        let done = AssertUnwindSafe(self.install(meta.last_log_id, snapshot));
        match done.catch_unwind().await {
            Ok(done) => done.map_err(|error| stop("installing a snapshot", error)),
            Err(_) => Err(self.panicked()),
        }
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot>> {
        self.store
            .current_snapshot()
            .and_then(|snapshot| snapshot.map(with_meta).transpose())
            .map_err(|error| stop("reading the current snapshot", error))
    }
}

/// Writes down what was frozen between two applies, beside apply.
pub struct SnapshotBuilder {
    // Never locked, like the listener. Nothing if there was no entry yet.
    frozen: Mutex<Option<Frozen>>,
}

type Frozen = io::Result<BoxFuture<'static, io::Result<Arc<dyn Snapshot>>>>;

impl SnapshotBuilder {
    async fn build(&mut self) -> io::Result<RaftSnapshot> {
        match self.frozen.get_mut().take() {
            Some(frozen) => with_meta(frozen?.await?),
            None => Ok(RaftSnapshot {
                meta: SnapshotMeta::default(),
                snapshot: SnapshotTransfer::Empty,
            }),
        }
    }
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotTransfer;

    async fn build_snapshot(&mut self) -> io::Result<RaftSnapshot> {
        self.build()
            .await
            .map_err(|error| stop("making a snapshot", error))
    }
}

/// Rule 4: position and membership come from the snapshot itself.
fn with_meta(snapshot: Arc<dyn Snapshot>) -> io::Result<RaftSnapshot> {
    Ok(RaftSnapshot {
        meta: SnapshotMeta {
            last_log_id: Some(snapshot.position().into()),
            last_membership: snapshot
                .membership()
                .to_stored()
                .map_err(io::Error::other)?,
        },
        snapshot: SnapshotTransfer::Built(snapshot),
    })
}
