//! The machine itself: its state and its one entry point. What each command does stands in a file
//! of its own below.

mod batch;
mod by_name;
mod check;
mod digest;
mod due;
mod image;
mod jobs;
mod kick;
mod leader;
mod origin;
mod pause;
mod put;
mod read;
mod reference;
mod reserve;
mod session;
mod settle;
mod standing;
mod tube;
mod tubes;
mod wait;

use std::collections::{BTreeMap, BTreeSet};

use trellis_types::{JobId, NodeId, OriginId, Run, SessionId, Timestamp, TubeName, limits};

pub use image::BadImage;

use crate::{Change, Content, Entry, Key, MetaRow, Outcome, TubeId};
use by_name::ByName;
use due::Due;
use jobs::Jobs;
use origin::Live;
use tubes::Tubes;

/// The replicated state and everything that may happen to it.
///
/// Same entries in, same outcomes and same state out, on every node and for ever. Costs: every
/// command is O(log n) in jobs, tubes and sessions, times the names it lists or the jobs it moves;
/// a ready job takes about 140 bytes.
///
/// Source: architecture, sections 3 to 7.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    meta: MetaRow,
    jobs: Jobs,
    /// Who holds what; a job is in here exactly while it is reserved.
    holds: BTreeMap<JobId, Hold>,
    tubes: Tubes,
    names: ByName<TubeId>,
    /// The highest run ever opened of each node, so that runs never repeat.
    runs: BTreeMap<NodeId, Run>,
    /// The open origins; of each node at most one, its highest run.
    origins: BTreeMap<OriginId, Live>,
    due: Due,
    counts: Counts,
    /// Sum of the fingerprints of all rows but those in `touched`.
    sum: u64,
    /// Rows that this apply has changed or is about to. Empty between applies.
    touched: BTreeSet<Key>,
}

/// A live reservation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Hold {
    holder: SessionId,
    deadline: Timestamp,
    /// Orders the holds of one session.
    sequence: u64,
}

/// What would otherwise have to be counted over all tubes or jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    ready: u64,
    /// Ready jobs below [`Priority::URGENT_BELOW`](trellis_types::Priority::URGENT_BELOW).
    urgent: u64,
    buried: u64,
    waiting: u64,
    job_bytes: u64,
}

impl Machine {
    /// The machine of a cluster in which nothing has happened yet: no job, the tube `default`, no
    /// origin, time 0, the settings at their defaults.
    pub fn new() -> Self {
        let mut machine = Self::bare(MetaRow {
            next_job: 1,
            next_tube: 1,
            next_sequence: 1,
            jobs_max: limits::JOBS_MAX_DEFAULT,
            job_bytes_max: limits::JOB_BYTES_MAX_DEFAULT,
            tubes_max: limits::TUBES_MAX_DEFAULT,
            watch_names_max: u32::try_from(limits::WATCH_NAMES_MAX_DEFAULT).unwrap_or(u32::MAX),
            ..MetaRow::default()
        });
        machine.create_tube(TubeName::default_tube());
        machine.touched.clear();
        machine.sum = machine.full_sum();
        machine
    }

    /// Nothing at all, not even `default`.
    fn bare(meta: MetaRow) -> Self {
        Self {
            meta,
            jobs: Jobs::default(),
            holds: BTreeMap::new(),
            tubes: Tubes::default(),
            names: ByName::default(),
            runs: BTreeMap::new(),
            origins: BTreeMap::new(),
            due: Due::default(),
            counts: Counts::default(),
            sum: 0,
            touched: BTreeSet::new(),
        }
    }

    /// Applies one committed entry. Same state and entry in, same outcome out, on every node.
    ///
    /// Time moves first (never back), then what is due happens, then the commands run in order.
    /// There is no `Result`: a refusal is a reply like any other, and nothing here can fail.
    ///
    /// Source: architecture, sections 3 and 4.
    pub fn apply(&mut self, entry: &Entry) -> Outcome {
        let mut out = Outcome::default();
        // Time is in this row, so it changes with every entry.
        self.touch(Key::Meta);
        // A new leader's clock may lag behind the old one's; time in the log never runs back.
        let is_behind = self.next_due().is_some_and(|at| at <= self.meta.now);
        self.meta.now = self.meta.now.max(entry.at);
        self.fall_due(bound_of(&entry.content, is_behind), &mut out);
        match &entry.content {
            Content::Batches(batches) => {
                for batch in batches {
                    self.batch(batch, &mut out);
                }
            }
            Content::Leader(commands) => {
                for command in commands {
                    self.lead(command, &mut out);
                }
            }
        }
        self.close_books(&mut out);
        out
    }

    /// Announces a change of the row `key`: to be called before it happens. The row leaves the
    /// digest here and comes back, as it is then, when the books are closed.
    fn touch(&mut self, key: Key) {
        if self.touched.insert(key) {
            self.sum = self.sum.wrapping_sub(self.fingerprint(key));
        }
    }

    /// Names every changed row once and brings the digest up to date.
    fn close_books(&mut self, out: &mut Outcome) {
        for key in std::mem::take(&mut self.touched) {
            self.sum = self.sum.wrapping_add(self.fingerprint(key));
            out.changes.push(Change::Row(key));
        }
    }

    /// The next number for a burial, a hold or a wait.
    fn take_sequence(&mut self) -> u64 {
        let sequence = self.meta.next_sequence;
        self.meta.next_sequence = sequence.saturating_add(1);
        sequence
    }
}

/// How many due events may come before the commands of an entry. `is_behind` if the entry before
/// has left some over.
fn bound_of(content: &Content, is_behind: bool) -> usize {
    match content {
        _ if !is_behind => limits::DUE_AT_ONCE_MAX,
        Content::Batches(batches) => {
            let commands: usize = batches.iter().map(|batch| batch.items.len()).sum();
            limits::DUE_PER_BATCHES_MAX.max(commands.saturating_mul(limits::DUE_PER_COMMAND_MAX))
        }
        Content::Leader(_) => limits::DUE_PER_TICK_MAX,
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}
