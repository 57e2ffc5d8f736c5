use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use prometheus_client::metrics::gauge::Gauge;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use trellis_consensus::{Bodies, KeptBody, Owed};
use trellis_types::JobId;

use super::generation::Generation;
use super::shared::Shared;

/// Bodies in memory beside those of open windows, bounded in bytes.
pub(super) struct BodyCache {
    cache: Cache<JobId, Bytes, ByLength>,
}

#[derive(Clone)]
struct ByLength;

impl Weighter<JobId, Bytes> for ByLength {
    fn weight(&self, _: &JobId, body: &Bytes) -> u64 {
        // An entry of the cache costs something beside the body.
        body.len() as u64 + 64
    }
}

impl BodyCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        // A guess of how many there will be: the cache sizes its tables by it.
        let items = (bytes_max / 1024).max(16);
        Self {
            cache: Cache::with_weighter(items, bytes_max as u64, ByLength),
        }
    }

    pub(super) fn get(&self, job: JobId) -> Option<Bytes> {
        self.cache.get(&job)
    }

    pub(super) fn insert(&self, job: JobId, body: Bytes) {
        self.cache.insert(job, body);
    }

    pub(super) fn remove(&self, job: JobId) {
        self.cache.remove(&job);
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
        match self.shared.body_in_memory(job) {
            Some(body) => {
                metrics.body_hits.inc();
                Owed::kept(
                    bytes,
                    InMemory {
                        body,
                        _counted: counted,
                    },
                )
            }
            None => {
                self.shared.owed.add(job);
                Owed::kept(
                    bytes,
                    OnDisk {
                        job,
                        shared: self.shared.clone(),
                        generation: self.shared.generation(),
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
    read: RwLock<Option<Bytes>>,
    counted: Counted,
}

impl KeptBody for OnDisk {
    fn ready(&self) -> Option<Bytes> {
        self.read
            .read()
            .clone()
            .or_else(|| self.shared.cache.get(self.job))
    }

    fn read(&self) -> io::Result<Bytes> {
        if let Some(body) = self.ready() {
            return Ok(body);
        }
        self.shared.metrics.body_reads.inc();
        let body = self.generation.body(self.job).and_then(|body| match body {
            Some(body) if body.len() == self.counted.bytes as usize => Ok(body),
            Some(body) => Err(missing(self.job, format_args!("{} bytes long", body.len()))),
            None => Err(missing(self.job, format_args!("not there"))),
        });
        match body {
            Ok(body) => {
                self.shared.cache.insert(self.job, body.clone());
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
