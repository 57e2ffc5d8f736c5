use std::{
    any::Any,
    collections::{BTreeMap, VecDeque},
    io,
    sync::Arc,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use trellis_queue::{Change, Key, Machine, Row};
use trellis_rpc::{
    pb,
    queue::{decode_row, encode_row},
};
use trellis_types::JobId;

use crate::{
    Bodies, Loaded, Membership, Owed, Position, Snapshot, SnapshotFile, SnapshotReceiver,
    StateStore,
};

/// Windows that may wait before apply has to, unless a test says otherwise.
const WINDOWS_MAX: usize = 1_000;

/// A state mirror in memory that is written behind apply, one window per entry.
///
/// Clones are the same mirror.
#[derive(Clone, Default)]
pub struct MemoryState(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    written: Notify,
}

#[derive(Default)]
struct Inner {
    /// What a power cut leaves.
    image: Image,
    windows: VecDeque<Window>,
    /// Every body that the machine knows of.
    bodies: BTreeMap<JobId, Bytes>,
    /// Jobs that the last entry ended: who was told of them by the same entry may still owe them.
    ended: Vec<JobId>,
    log_flushed: Option<u64>,
    snapshot: Option<Arc<MemorySnapshot>>,
    /// Counts installed snapshots, so that a build which one has overtaken notices.
    installs: u64,
    held: bool,
    failing: bool,
    windows_max: Option<usize>,
}

/// A whole state.
#[derive(Clone, Default)]
struct Image {
    rows: BTreeMap<Key, Row>,
    bodies: BTreeMap<JobId, Bytes>,
    applied: Option<Position>,
    membership: Membership,
}

/// What one entry changed.
struct Window {
    applied: Position,
    membership: Option<Membership>,
    rows: Vec<(Key, Option<Row>)>,
    bodies: Vec<(JobId, Bytes)>,
}

impl MemoryState {
    /// An empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on no window is written, until they are released again.
    pub fn hold_windows(&self, hold: bool) {
        self.0.inner.lock().held = hold;
        self.write_windows();
    }

    /// From now on apply waits when so many windows are not written.
    pub fn bound_windows(&self, max: usize) {
        self.0.inner.lock().windows_max = Some(max);
    }

    /// From now on every record fails.
    pub fn fail_records(&self) {
        self.0.inner.lock().failing = true;
    }

    /// The power goes: the state that is found afterwards. Windows that were not written are lost.
    pub fn crash(&self) -> Self {
        let inner = self.0.inner.lock();
        let after = Inner {
            image: inner.image.clone(),
            bodies: inner.image.bodies.clone(),
            snapshot: inner.snapshot.clone(),
            ..Inner::default()
        };
        Self(Arc::new(Shared {
            inner: Mutex::new(after),
            ..Shared::default()
        }))
    }

    /// How far a power cut would leave it.
    pub fn written(&self) -> Option<Position> {
        self.0.inner.lock().image.applied
    }

    fn write_windows(&self) {
        let mut inner = self.0.inner.lock();
        while let Some(window) = inner.windows.front() {
            // Rule 2: the mirror never holds what the log might lose.
            if inner.held || inner.log_flushed < Some(window.applied.index) {
                break;
            }
            if let Some(window) = inner.windows.pop_front() {
                inner.image.write(window);
            }
        }
        drop(inner);
        self.0.written.notify_waiters();
    }
}

impl Image {
    fn write(&mut self, window: Window) {
        self.bodies.extend(window.bodies);
        for (key, row) in window.rows {
            match (row, key) {
                (Some(row), _) => {
                    self.rows.insert(key, row);
                }
                (None, Key::Job(job)) => {
                    self.rows.remove(&key);
                    self.bodies.remove(&job);
                }
                (None, _) => {
                    self.rows.remove(&key);
                }
            }
        }
        self.applied = Some(window.applied);
        if let Some(membership) = window.membership {
            self.membership = membership;
        }
    }

    fn load(&self) -> io::Result<Loaded> {
        let machine = Machine::load(self.rows.values().cloned()).map_err(io::Error::other)?;
        Ok(Loaded {
            machine,
            applied: self.applied,
            membership: self.membership.clone(),
        })
    }

    /// One file: the head, the number of rows, the rows, the bodies.
    fn encode(&self) -> Bytes {
        let head = pb::SnapshotManifest {
            position: self.applied.map(Into::into),
            membership: Some((&self.membership).into()),
            ..pb::SnapshotManifest::default()
        };
        let mut file = BytesMut::new();
        let mut put = |part: &[u8]| {
            file.put_u64(part.len() as u64);
            file.put_slice(part);
        };
        put(&head.encode_to_vec());
        put(&(self.rows.len() as u64).to_be_bytes());
        for row in self.rows.values() {
            put(&encode_row(row));
        }
        for (job, body) in &self.bodies {
            put(&job.0.to_be_bytes());
            put(body);
        }
        file.freeze()
    }

    fn decode(mut file: Bytes) -> io::Result<Self> {
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let mut part = move || -> io::Result<Option<Bytes>> {
            if file.is_empty() {
                return Ok(None);
            }
            let length = file.try_get_u64().map_err(|_| damaged())? as usize;
            if length > file.len() {
                return Err(damaged());
            }
            Ok(Some(file.split_to(length)))
        };
        let number = |part: Option<Bytes>| {
            part.ok_or_else(damaged)?
                .try_get_u64()
                .map_err(|_| damaged())
        };
        let head = pb::SnapshotManifest::decode(part()?.ok_or_else(damaged)?)?;
        let mut image = Self {
            applied: head.position.map(Into::into),
            membership: head.membership.ok_or_else(damaged)?.into(),
            ..Self::default()
        };
        for _ in 0..number(part()?)? {
            let row = decode_row(&part()?.ok_or_else(damaged)?).map_err(io::Error::other)?;
            image.rows.insert(row.key(), row);
        }
        while let Some(job) = part()? {
            let job = JobId(number(Some(job))?);
            image.bodies.insert(job, part()?.ok_or_else(damaged)?);
        }
        Ok(image)
    }
}

impl StateStore for MemoryState {
    fn load(&self) -> io::Result<Loaded> {
        self.0.inner.lock().image.load()
    }

    fn record(
        &self,
        applied: Position,
        membership: Option<&Membership>,
        machine: &Machine,
        changes: Vec<Change>,
    ) -> io::Result<()> {
        let mut inner = self.0.inner.lock();
        if inner.failing {
            return Err(io::Error::other("the write failed, as the test wants"));
        }
        let mut window = Window {
            applied,
            membership: membership.cloned(),
            rows: Vec::new(),
            bodies: Vec::new(),
        };
        for job in std::mem::take(&mut inner.ended) {
            inner.bodies.remove(&job);
        }
        for change in changes {
            match change {
                Change::Body { job, body } => {
                    inner.bodies.insert(job, body.clone());
                    window.bodies.push((job, body));
                }
                Change::Row(key) => {
                    let row = machine.row(key);
                    if let (Key::Job(job), None) = (key, &row) {
                        inner.ended.push(job);
                    }
                    window.rows.push((key, row));
                }
            }
        }
        inner.windows.push_back(window);
        drop(inner);
        self.write_windows();
        Ok(())
    }

    fn has_room(&self) -> bool {
        let inner = self.0.inner.lock();
        inner.windows.len() < inner.windows_max.unwrap_or(WINDOWS_MAX)
    }

    fn room(&self) -> BoxFuture<'_, io::Result<()>> {
        async {
            loop {
                let written = self.0.written.notified();
                if self.has_room() {
                    return Ok(());
                }
                written.await;
            }
        }
        .boxed()
    }

    fn bodies(&self) -> Arc<dyn Bodies> {
        Arc::new(self.clone())
    }

    fn begin_snapshot(
        &self,
        machine: &Machine,
    ) -> io::Result<BoxFuture<'static, io::Result<Arc<dyn Snapshot>>>> {
        let (image, installs) = {
            let inner = self.0.inner.lock();
            let newest = inner.windows.back().map(|window| window.applied);
            let membership = inner
                .windows
                .iter()
                .rev()
                .find_map(|window| window.membership.clone());
            let image = Image {
                rows: machine.rows().map(|row| (row.key(), row)).collect(),
                bodies: inner.bodies.clone(),
                applied: newest.or(inner.image.applied),
                membership: membership.unwrap_or_else(|| inner.image.membership.clone()),
            };
            (image, inner.installs)
        };
        let shared = self.0.clone();
        Ok(async move {
            // Elsewhere this is the flush of the frozen window: not before the log is durable.
            let position = image.applied.ok_or(io::ErrorKind::NotFound)?;
            loop {
                let written = shared.written.notified();
                if shared.inner.lock().log_flushed >= Some(position.index) {
                    break;
                }
                written.await;
            }
            let snapshot = Arc::new(MemorySnapshot {
                position,
                membership: image.membership.clone(),
                file: image.encode(),
            });
            let mut inner = shared.inner.lock();
            if inner.installs != installs {
                let current = inner.snapshot.clone().ok_or(io::ErrorKind::NotFound)?;
                return Ok(current as Arc<dyn Snapshot>);
            }
            inner.snapshot = Some(snapshot.clone());
            Ok(snapshot as Arc<dyn Snapshot>)
        }
        .boxed())
    }

    fn current_snapshot(&self) -> io::Result<Option<Arc<dyn Snapshot>>> {
        let snapshot = self.0.inner.lock().snapshot.clone();
        Ok(snapshot.map(|snapshot| snapshot as Arc<dyn Snapshot>))
    }

    fn receive_snapshot(&self) -> io::Result<Box<dyn SnapshotReceiver>> {
        Ok(Box::new(MemoryReceiver::default()))
    }

    fn install(
        &self,
        received: Box<dyn SnapshotReceiver>,
        expected: Position,
    ) -> BoxFuture<'_, io::Result<Loaded>> {
        async move {
            let received: Box<dyn Any> = received;
            let received = received
                .downcast::<MemoryReceiver>()
                .map_err(|_| io::Error::other("a receiver of another store"))?;
            let file = received.data.freeze();
            let image = Image::decode(file.clone())?;
            if image.applied != Some(expected) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let loaded = image.load()?;
            let mut inner = self.0.inner.lock();
            inner.installs += 1;
            inner.windows.clear();
            inner.bodies = image.bodies.clone();
            inner.snapshot = Some(Arc::new(MemorySnapshot {
                position: expected,
                membership: image.membership.clone(),
                file,
            }));
            inner.image = image;
            Ok(loaded)
        }
        .boxed()
    }

    fn log_flushed(&self, index: u64) {
        {
            let mut inner = self.0.inner.lock();
            inner.log_flushed = inner.log_flushed.max(Some(index));
        }
        self.write_windows();
    }
}

impl Bodies for MemoryState {
    fn owe(&self, job: JobId, _bytes: u32) -> Owed {
        Owed::at_hand(
            self.0
                .inner
                .lock()
                .bodies
                .get(&job)
                .cloned()
                .unwrap_or_default(),
        )
    }
}

struct MemorySnapshot {
    position: Position,
    membership: Membership,
    file: Bytes,
}

impl Snapshot for MemorySnapshot {
    fn position(&self) -> Position {
        self.position
    }

    fn membership(&self) -> Membership {
        self.membership.clone()
    }

    fn files(&self) -> Vec<SnapshotFile> {
        let crc32c = crc32c::crc32c(&self.file);
        vec![SnapshotFile {
            name: "state".into(),
            len: self.file.len() as u64,
            crc32c,
        }]
    }

    fn read(&self, _name: &str, offset: u64, len: usize) -> io::Result<Bytes> {
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.file.len());
        let to = from.saturating_add(len).min(self.file.len());
        Ok(self.file.slice(from..to))
    }
}

#[derive(Default)]
struct MemoryReceiver {
    file: Option<SnapshotFile>,
    data: BytesMut,
}

impl SnapshotReceiver for MemoryReceiver {
    fn begin(&mut self, file: &SnapshotFile) -> io::Result<()> {
        match (&self.file, file.name.as_str()) {
            (None, "state") => {
                self.file = Some(file.clone());
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.data.put_slice(chunk);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::InvalidData)?;
        let sound = file.len == self.data.len() as u64 && file.crc32c == crc32c::crc32c(&self.data);
        if sound {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}
