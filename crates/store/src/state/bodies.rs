use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::gauge::Gauge;
use trellis_consensus::{Bodies, KeptBody, Owed};
use trellis_types::JobId;

use super::generation::Generation;
use super::shared::{Shared, is_replacing};

/// The newest bodies, in memory beside those of open windows, bounded in bytes: most queues are
/// short, and what is put is soon reserved. What is older is read from disk.
///
/// Ids only rise, and windows come in order, so that a line of bodies is always sorted.
pub(super) struct BodyCache {
    bytes_max: usize,
    line: Mutex<Cached>,
}

#[derive(Default)]
struct Cached {
    /// `None`: the job is gone, its place is still there.
    bodies: VecDeque<(JobId, Option<Bytes>)>,
    bytes: usize,
}

/// What a place costs beside the body.
const PLACE_BYTES: usize = 64;

impl BodyCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Mutex::default(),
        }
    }

    pub(super) fn get(&self, job: JobId) -> Option<Bytes> {
        let line = self.line.lock();
        let place = line.place(job)?;
        line.bodies[place].1.clone()
    }

    /// Takes the bodies of new jobs, in the order of their ids.
    ///
    /// Each is copied: as it came it is a part of an entry of the log, all of which would stay in
    /// memory with it.
    pub(super) fn extend(&self, bodies: &[(JobId, Bytes)]) {
        let mut line = self.line.lock();
        for (job, body) in bodies {
            if body.len() + PLACE_BYTES > self.bytes_max {
                continue;
            }
            // A state that was replaced may have begun again; ids of jobs that are gone.
            if line.bodies.back().is_some_and(|(last, _)| last >= job) {
                *line = Cached::default();
            }
            line.bytes += body.len() + PLACE_BYTES;
            line.bodies
                .push_back((*job, Some(Bytes::copy_from_slice(body))));
        }
        while line.bytes > self.bytes_max
            && let Some((_, body)) = line.bodies.pop_front()
        {
            line.bytes -= body.map_or(0, |body| body.len()) + PLACE_BYTES;
        }
    }

    pub(super) fn remove(&self, job: JobId) {
        let mut line = self.line.lock();
        if let Some(place) = line.place(job)
            && let Some(body) = line.bodies[place].1.take()
        {
            line.bytes -= body.len();
        }
    }
}

impl Cached {
    fn place(&self, job: JobId) -> Option<usize> {
        self.bodies.binary_search_by_key(&job, |(job, _)| *job).ok()
    }
}

/// How often each body on disk is owed to a connection: its row stays until that is 0.
#[derive(Default)]
pub(super) struct OwedCounts(Mutex<HashMap<JobId, u32>>);

impl OwedCounts {
    fn add(&self, job: JobId) {
        *self.0.lock().entry(job).or_default() += 1;
    }

    fn remove(&self, job: JobId) {
        let mut counts = self.0.lock();
        if let Some(count) = counts.get_mut(&job) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&job);
            }
        }
    }

    pub(super) fn is_owed(&self, job: JobId) -> bool {
        self.0.lock().contains_key(&job)
    }
}

/// Cached bodies up to this length are kept by those who are owed them: that is less work than
/// keeping their rows.
const PINNED_BYTES_MAX: usize = 4 * 1024;

/// Hands out owed bodies.
pub(super) struct MirrorBodies {
    pub(super) shared: Arc<Shared>,
}

impl Bodies for MirrorBodies {
    fn owe(&self, job: JobId, bytes: u32) -> Owed {
        if bytes == 0 {
            return Owed::at_hand(Bytes::new());
        }
        let metrics = &self.shared.metrics;
        metrics.owed_bytes.inc_by(i64::from(bytes));
        let counted = Counted {
            bytes,
            gauge: metrics.owed_bytes.clone(),
        };
        // Before anything is looked at: what an install does behind it shows.
        let turn = self.shared.turn.load(Ordering::SeqCst);
        let waiting = self.shared.body_of_window(job);
        let cached = match waiting {
            Some(_) => None,
            None => self.shared.cache.get(job),
        };
        if waiting.is_some() || cached.is_some() {
            metrics.body_hits.inc();
        }
        // What is cached is on disk as well: a long body must not stay in memory behind its time
        // there because a client does not read.
        let cached = cached.filter(|body| body.len() <= PINNED_BYTES_MAX);
        match waiting.or(cached) {
            Some(body) => Owed::kept(
                bytes,
                InMemory {
                    body,
                    _counted: counted,
                },
            ),
            None => {
                self.shared.owed.add(job);
                Owed::kept(
                    bytes,
                    OnDisk {
                        job,
                        shared: self.shared.clone(),
                        generation: self.shared.generation(),
                        turn,
                        read: RwLock::new(None),
                        counted,
                    },
                )
            }
        }
    }
}

/// Takes its bytes off the gauge when it is dropped.
struct Counted {
    bytes: u32,
    gauge: Gauge,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.gauge.dec_by(i64::from(self.bytes));
    }
}

struct InMemory {
    body: Bytes,
    _counted: Counted,
}

impl KeptBody for InMemory {
    fn ready(&self) -> Option<Bytes> {
        Some(self.body.clone())
    }

    fn read(&self) -> io::Result<Bytes> {
        Ok(self.body.clone())
    }
}

struct OnDisk {
    job: JobId,
    shared: Arc<Shared>,
    /// The state that owes it; a snapshot may replace that meanwhile.
    generation: Arc<Generation>,
    /// [`Shared::turn`] when it was owed.
    turn: u64,
    read: RwLock<Option<Bytes>>,
    counted: Counted,
}

impl OnDisk {
    /// Whether a snapshot took the state's place while this was owed, or shortly before. Then the
    /// machine that named the body and the generation it is looked for in may be of two states:
    /// that it is not there is nobody's damage.
    fn was_replaced(&self) -> bool {
        is_replacing(self.turn) || self.shared.turn.load(Ordering::SeqCst) != self.turn
    }
}

impl KeptBody for OnDisk {
    fn ready(&self) -> Option<Bytes> {
        let read = self.read.read().clone();
        read.or_else(|| self.shared.cache.get(self.job))
    }

    fn is_held(&self) -> bool {
        self.read.read().is_some()
    }

    fn read(&self) -> io::Result<Bytes> {
        if let Some(body) = self.ready() {
            return Ok(body);
        }
        self.shared.metrics.body_reads.inc();
        let found = self.generation.body(self.job);
        if let Ok(found) = &found
            && found.as_ref().map(Bytes::len) != Some(self.counted.bytes as usize)
            && self.was_replaced()
        {
            return Err(io::Error::other(format!(
                "job {} is not of the snapshot that was installed meanwhile",
                self.job
            )));
        }
        let body = found.and_then(|body| match body {
            Some(body) if body.len() == self.counted.bytes as usize => Ok(body),
            Some(body) => Err(missing(self.job, format_args!("{} bytes long", body.len()))),
            None => Err(missing(self.job, format_args!("not there"))),
        });
        match body {
            Ok(body) => {
                *self.read.write() = Some(body.clone());
                Ok(body)
            }
            Err(error) => Err(self
                .shared
                .failure
                .because("the state can't be read", &error)),
        }
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        self.shared.owed.remove(self.job);
    }
}

fn missing(job: JobId, how: std::fmt::Arguments<'_>) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the body of job {job} is {how}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(ids: std::ops::Range<u64>, text: &'static str) -> Vec<(JobId, Bytes)> {
        ids.map(|id| (JobId(id), Bytes::from_static(text.as_bytes())))
            .collect()
    }

    #[test]
    fn the_oldest_bodies_make_room_for_new_ones() {
        let cache = BodyCache::new(10 * (PLACE_BYTES + 5));
        cache.extend(&bodies(1..8, "first"));
        cache.extend(&bodies(8..14, "later"));
        assert_eq!(cache.get(JobId(3)), None);
        assert_eq!(cache.get(JobId(4)).as_deref(), Some(&b"first"[..]));
        assert_eq!(cache.get(JobId(13)).as_deref(), Some(&b"later"[..]));
    }

    #[test]
    fn jobs_that_are_gone_leave_no_bytes_and_their_places_are_bounded_too() {
        let cache = BodyCache::new(10 * (PLACE_BYTES + 5));
        for id in 1..1_000 {
            cache.extend(&bodies(id..id + 1, "short"));
            cache.remove(JobId(id));
        }
        let line = cache.line.lock();
        assert!(line.bodies.len() <= 10 * (PLACE_BYTES + 5) / PLACE_BYTES);
        assert_eq!(line.bytes, line.bodies.len() * PLACE_BYTES);
    }

    /// As it came it is a part of an entry of many jobs, which would stay in memory with it.
    #[test]
    fn a_cached_body_keeps_nothing_else_in_memory() {
        let entry = Bytes::from(vec![7; 100_000]);
        let cache = BodyCache::new(1_000);
        cache.extend(&[(JobId(1), entry.slice(10..20))]);
        assert!(entry.is_unique(), "only this story holds the entry");
        assert_eq!(cache.get(JobId(1)).map(|body| body.len()), Some(10));
    }

    #[test]
    fn a_state_that_begins_again_begins_with_an_empty_cache() {
        let cache = BodyCache::new(1_000);
        cache.extend(&bodies(5..8, "old"));
        cache.extend(&bodies(6..7, "new"));
        assert_eq!(cache.get(JobId(6)).as_deref(), Some(&b"new"[..]));
        assert_eq!(cache.get(JobId(5)), None);
    }
}
