use std::collections::{BTreeMap, BTreeSet};

use trellis_types::{JobId, OriginId, Seconds, Timestamp, TubeName};

use super::{Machine, jobs::Place};
use crate::{JobState, Key, TubeId, TubeRow};

/// A tube that exists, with its jobs in the orders in which they are asked for. Who waits for it
/// stands with the origins, by name, because a wait outlives the tube.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tube {
    pub(super) name: TubeName,
    /// In order; at most one of each node.
    pub(super) references: Vec<OriginId>,
    /// Length of the running pause; 0 if none.
    pub(super) pause: Seconds,
    pub(super) pause_until: Timestamp,
    pub(super) total_jobs: u64,
    pub(super) deletes: u64,
    pub(super) pauses: u64,
    pub(super) ready: BTreeSet<Place>,
    pub(super) urgent: u64,
    pub(super) delayed: BTreeSet<(Timestamp, JobId)>,
    /// Held jobs.
    pub(super) reserved: u64,
    /// In order of burial.
    pub(super) buried: BTreeMap<u64, JobId>,
}

impl Tube {
    pub(super) fn new(name: TubeName) -> Self {
        Self {
            name,
            references: Vec::new(),
            pause: Seconds(0),
            pause_until: Timestamp(0),
            total_jobs: 0,
            deletes: 0,
            pauses: 0,
            ready: BTreeSet::new(),
            urgent: 0,
            delayed: BTreeSet::new(),
            reserved: 0,
            buried: BTreeMap::new(),
        }
    }

    pub(super) fn from_row(row: TubeRow) -> Self {
        Self {
            references: row.references,
            pause: row.pause,
            pause_until: row.pause_until,
            total_jobs: row.total_jobs,
            deletes: row.deletes,
            pauses: row.pauses,
            ..Self::new(row.name)
        }
    }

    pub(super) fn row(&self, id: TubeId) -> TubeRow {
        TubeRow {
            id,
            name: self.name.clone(),
            references: self.references.clone(),
            pause: self.pause,
            pause_until: self.pause_until,
            total_jobs: self.total_jobs,
            deletes: self.deletes,
            pauses: self.pauses,
        }
    }

    /// Notes that sessions of `origin` use or watch it.
    pub(super) fn refer(&mut self, origin: OriginId) {
        if let Err(at) = self.references.binary_search(&origin) {
            self.references.insert(at, origin);
        }
    }

    /// Notes that none of them does any more.
    pub(super) fn forget(&mut self, origin: OriginId) {
        if let Ok(at) = self.references.binary_search(&origin) {
            self.references.remove(at);
        }
    }

    /// A running pause ends with its due event, not by itself.
    pub(super) fn is_paused(&self) -> bool {
        self.pause != Seconds(0)
    }

    /// The job that a reserve would get.
    pub(super) fn offered(&self) -> Option<Place> {
        if self.is_paused() {
            None
        } else {
            self.ready.first().copied()
        }
    }

    pub(super) fn has_jobs(&self) -> bool {
        !self.ready.is_empty()
            || !self.delayed.is_empty()
            || self.reserved > 0
            || !self.buried.is_empty()
    }

    /// Whether it exists of its own right (4.2): it has jobs or references, or is `default`.
    pub(super) fn is_wanted(&self) -> bool {
        self.name.is_default() || !self.references.is_empty() || self.has_jobs()
    }

    pub(super) fn enter(&mut self, place: Place, state: JobState) {
        match state {
            JobState::Ready => {
                self.ready.insert(place);
                if place.priority.is_urgent() {
                    self.urgent = self.urgent.saturating_add(1);
                }
            }
            JobState::Delayed { until } => {
                self.delayed.insert((until, place.job));
            }
            JobState::Reserved { .. } => self.reserved = self.reserved.saturating_add(1),
            JobState::Buried { sequence } => {
                self.buried.insert(sequence, place.job);
            }
        }
    }

    pub(super) fn leave(&mut self, place: Place, state: JobState) {
        match state {
            JobState::Ready => {
                self.ready.remove(&place);
                if place.priority.is_urgent() {
                    self.urgent = self.urgent.saturating_sub(1);
                }
            }
            JobState::Delayed { until } => {
                self.delayed.remove(&(until, place.job));
            }
            JobState::Reserved { .. } => self.reserved = self.reserved.saturating_sub(1),
            JobState::Buried { sequence } => {
                self.buried.remove(&sequence);
            }
        }
    }
}

impl Machine {
    pub(super) fn tube_named(&self, name: &TubeName) -> Option<&Tube> {
        self.tubes.get(*self.names.get(name)?)
    }

    /// The tube of this name, created if need be; `None` if that would be one too many.
    pub(super) fn open_tube(&mut self, name: &TubeName) -> Option<TubeId> {
        if let Some(id) = self.names.get(name) {
            return Some(*id);
        }
        let tubes = u64::try_from(self.tubes.len()).unwrap_or(u64::MAX);
        (tubes < self.meta.tubes_max).then(|| self.create_tube(name.clone()))
    }

    pub(super) fn create_tube(&mut self, name: TubeName) -> TubeId {
        let id = TubeId(self.meta.next_tube);
        self.meta.next_tube = id.0.saturating_add(1);
        self.touch(Key::Tube(id));
        self.names.insert(name.clone(), id);
        self.tubes.insert(id, Tube::new(name));
        id
    }

    /// Ends the tube if nothing keeps it any more; its counters and its pause go with it.
    ///
    /// Source: architecture, section 7, "Tube lifetime"; protocol specification, 4.2.
    pub(super) fn reap_tube(&mut self, id: TubeId) {
        if self.tubes.get(id).is_none_or(Tube::is_wanted) {
            return;
        }
        self.touch(Key::Tube(id));
        if let Some(tube) = self.tubes.remove(id) {
            self.names.remove(&tube.name);
            self.due.pauses.remove(&(tube.pause_until, id));
        }
    }
}
