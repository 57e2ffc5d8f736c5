use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use trellis_consensus::{Membership, Position};
use trellis_queue::{Change, Key, Machine, Row};
use trellis_types::{JobId, SessionId};

use super::generation::encode;
use super::window::Window;

/// What apply has changed since the last window was closed: names, not values. The values are
/// taken from the machine when the window is closed, between two entries, so that they are those
/// of exactly one applied index.
///
/// What is new and gone within one window (a job, a tube, a parked reserve) never touches the disk.
///
/// Bodies outlive their job by one entry at least: whoever is answered from an entry may still
/// ask for the body of a job that this very entry deleted.
#[derive(Default)]
pub(super) struct Front {
    pub(super) applied: Option<Position>,
    pub(super) membership: Membership,
    /// Up to where windows are closed.
    closed: Option<Position>,
    /// No window was ever closed and the disk is empty: the first one takes every row.
    whole: bool,
    jobs: Jobs<Dirty>,
    rows: BTreeSet<Key>,
    /// Changed jobs whose rows are not encoded, in the order of their changes.
    ahead: VecDeque<JobId>,
    /// Rows that were encoded ahead, some of them out of date.
    text: Vec<u8>,
    began: Option<Instant>,
    bytes: usize,
    /// Bodies of new jobs that were gone when a window closed with the entry that ended them.
    held: Jobs<Bytes>,
    /// Jobs that are gone, with a note on disk that their body is still there.
    orphans: BTreeSet<JobId>,
    known: Known,
}

/// What the disk has, or will have once the closed windows are written: the rest need not be
/// deleted there.
#[derive(Default)]
pub(super) struct Known {
    /// Tubes below this one may be there.
    pub(super) next_tube: u64,
    /// Parked reserves that are there.
    pub(super) waits: BTreeSet<SessionId>,
}

/// A job that a window has to look at.
#[derive(Default)]
struct Dirty {
    /// The body, if the job is new in this window.
    body: Option<Bytes>,
    /// Its row as it is now, if it was encoded since its last change: where it lies in
    /// [`Front::text`], or that it is gone.
    row: Option<Option<Range<usize>>>,
    /// Whether it stands in [`Front::ahead`].
    queued: bool,
}

/// Jobs that may wait to be encoded when the window is closed: about a millisecond of work, for
/// which apply stands still. What is more is encoded ahead, a little with each entry.
const LEFT_FOR_CLOSING: usize = 1_000;
/// Jobs that an entry encodes ahead beside as many as it has changed.
const AHEAD_EACH: usize = 16;

/// What a row weighs beside its body when a window is measured. More than it is: closing a window
/// reads all its rows from the machine at once, and apply stands still meanwhile (about 1 µs each).
const ROW_BYTES: usize = 512;

/// Bytes of a row, for the first guess of how many all will be.
const ROW_TEXT_BYTES: usize = 48;

impl Front {
    /// Nothing is dirty; the disk is at `applied`.
    pub(super) fn new(applied: Option<Position>, membership: Membership, known: Known) -> Self {
        Self {
            applied,
            membership,
            known,
            closed: applied,
            whole: applied.is_none(),
            ..Self::default()
        }
    }

    /// After an entry: `changes` have happened.
    pub(super) fn record(
        &mut self,
        applied: Position,
        membership: Option<&Membership>,
        changes: &mut Vec<Change>,
        now: Instant,
    ) {
        self.held.clear();
        self.applied = Some(applied);
        if let Some(membership) = membership {
            self.membership = membership.clone();
            self.began.get_or_insert(now);
        }
        for change in changes {
            match change {
                Change::Body { job, body } => {
                    self.bytes += body.len();
                    self.jobs.entry(*job).or_default().body = Some(std::mem::take(body));
                }
                Change::Row(Key::Job(job)) => {
                    let dirty = self.jobs.entry(*job).or_default();
                    dirty.row = None;
                    if !std::mem::replace(&mut dirty.queued, true) {
                        self.ahead.push_back(*job);
                    }
                }
                Change::Row(key) => {
                    self.rows.insert(*key);
                }
            }
        }
        if !(self.jobs.is_empty() && self.rows.is_empty()) {
            self.began.get_or_insert(now);
        }
    }

    /// Encodes rows ahead of the closing, so that many jobs that change together (fall due, are
    /// kicked, are put) do not make apply stand still for all of them at once. Those first that
    /// changed first: they are the likeliest to stay as they are. To be called after an entry with so
    /// many changes; `machine` is exactly at [`Self::applied`].
    pub(super) fn encode_ahead(&mut self, machine: &Machine, changes: usize) {
        for _ in 0..changes + AHEAD_EACH {
            if self.ahead.len() <= LEFT_FOR_CLOSING {
                return;
            }
            let Some(job) = self.ahead.pop_front() else {
                return;
            };
            if let Some(dirty) = self.jobs.get_mut(&job) {
                dirty.queued = false;
                dirty.row = Some(encode(machine, Key::Job(job), &mut self.text));
            }
        }
    }

    /// About how many bytes the next window will be.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.text.len() + (self.jobs.len() + self.rows.len()) * ROW_BYTES
    }

    /// Since when there is something to write; `None` if there is nothing.
    pub(super) fn dirty_since(&self) -> Option<Instant> {
        self.began
    }

    /// Whether the state on disk (or on its way there) is older than what is applied.
    pub(super) fn is_behind(&self) -> bool {
        self.applied != self.closed
    }

    /// The body of `job`, if it is new here or was gone a moment ago.
    pub(super) fn body(&self, job: JobId) -> Option<Bytes> {
        let dirty = self.jobs.get(&job).and_then(|dirty| dirty.body.clone());
        dirty.or_else(|| self.held.get(&job).cloned())
    }

    /// Closes the window: `machine` is exactly at [`Self::applied`], `latest` are the changes of
    /// the last entry. `is_owed` tells whose body is owed to a connection. `None` if nothing was
    /// ever applied. Second: how many jobs came and went unseen.
    pub(super) fn close(
        &mut self,
        machine: &Machine,
        latest: &[Change],
        is_owed: impl Fn(JobId) -> bool,
    ) -> Option<(Window, u64)> {
        let applied = self.applied?;
        let just_now: HashSet<JobId> = latest
            .iter()
            .filter_map(|change| match change {
                Change::Row(Key::Job(job)) => Some(*job),
                _ => None,
            })
            .collect();
        if std::mem::take(&mut self.whole) {
            for row in machine.rows() {
                match row.key() {
                    Key::Job(job) => {
                        self.jobs.entry(job).or_default();
                    }
                    key => {
                        self.rows.insert(key);
                    }
                }
            }
        }
        self.ahead.clear();
        let mut text = std::mem::take(&mut self.text);
        // A row of a job is hardly ever longer.
        text.reserve(
            (self.rows.len() + self.jobs.len().min(2 * LEFT_FOR_CLOSING)) * ROW_TEXT_BYTES,
        );
        // Time and counters move with every entry; one row in every window keeps that simple.
        self.rows.insert(Key::Meta);

        let mut window = Window {
            applied,
            membership: self.membership.clone(),
            digest: machine.digest(),
            rows: Vec::with_capacity(self.rows.len() + self.jobs.len()),
            text,
            bodies: Vec::with_capacity(self.jobs.len()),
            dropped: Vec::new(),
            orphaned: Vec::new(),
            settled: Vec::new(),
            bytes: 0,
        };
        self.orphans.retain(|job| {
            let owed = is_owed(*job);
            if !owed {
                window.dropped.push(*job);
                window.settled.push(*job);
            }
            owed
        });
        for key in std::mem::take(&mut self.rows) {
            let row = encode(machine, key, &mut window.text);
            if self.known.changes(key, row.is_some()) {
                window.rows.push((key, row));
            }
        }
        if let Some(Row::Meta(meta)) = machine.row(Key::Meta) {
            self.known.next_tube = meta.next_tube;
        }
        let mut unseen = 0;
        // As many will come again.
        let again = Jobs::with_capacity_and_hasher(self.jobs.len(), Default::default());
        for (job, dirty) in std::mem::replace(&mut self.jobs, again) {
            let key = Key::Job(job);
            let row = match dirty.row {
                Some(row) => row,
                None => encode(machine, key, &mut window.text),
            };
            match (row, dirty.body) {
                (Some(row), body) => {
                    window.rows.push((key, Some(row)));
                    if let Some(body) = body.filter(|body| !body.is_empty()) {
                        window.bodies.push((job, body));
                    }
                }
                (None, Some(body)) => {
                    unseen += 1;
                    if just_now.contains(&job) {
                        self.held.insert(job, body);
                    }
                }
                (None, None) => {
                    window.rows.push((key, None));
                    if just_now.contains(&job) || is_owed(job) {
                        window.orphaned.push(job);
                        self.orphans.insert(job);
                    } else {
                        window.dropped.push(job);
                    }
                }
            }
        }
        window.bodies.sort_unstable_by_key(|(job, _)| *job);
        let bodies: usize = window.bodies.iter().map(|(_, body)| body.len()).sum();
        window.bytes = window.text.len() + bodies + window.rows() * 32;
        self.closed = Some(applied);
        self.began = None;
        self.bytes = 0;
        Some((window, unseen))
    }
}

impl Known {
    /// Whether the disk has to be told that the row of `key` `is_there` or not.
    fn changes(&mut self, key: Key, is_there: bool) -> bool {
        match key {
            Key::Tube(tube) => is_there || tube.0 < self.next_tube,
            Key::Wait(session) if is_there => {
                self.waits.insert(session);
                true
            }
            Key::Wait(session) => self.waits.remove(&session),
            Key::Meta | Key::Origin(_) | Key::Job(_) => true,
        }
    }
}

/// Job ids are small consecutive numbers: spreading them is all that a hash has to do, and nobody
/// outside can choose them.
type Jobs<V> = HashMap<JobId, V, BuildHasherDefault<Spread>>;

#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Fibonacci hashing, then the high half down where the table looks.
        let spread = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }
}
