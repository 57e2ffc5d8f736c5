use std::sync::Arc;
use std::time::Duration;

use trellis_types::limits;

use crate::FailStop;

/// How a store behaves. The defaults are what a production node runs with.
#[derive(Clone)]
pub struct StoreOptions {
    /// The raft log.
    pub log: LogOptions,
    /// The mirror of the machine.
    pub state: StateOptions,
    /// Called once, with one sentence, when a write or fsync failed.
    pub fail_stop: FailStop,
    /// Called instead when what was read is not what was written; the folder is quarantined then.
    pub damaged: FailStop,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            log: LogOptions::default(),
            state: StateOptions::default(),
            fail_stop: Arc::new(|reason| trellis_consensus::fail_stop(reason)),
            damaged: Arc::new(|reason| trellis_consensus::fail_stop(reason)),
        }
    }
}

/// Bounds of the raft log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Whether a write is on the disk before it is acknowledged. `false` breaks promise P1 and is
    /// for benchmarks that want to know what the syncs cost, and for tests of other things.
    pub sync: bool,
    /// Bytes of newest entries kept in memory for replication and apply. A follower that is
    /// further behind is served from disk.
    pub tail_bytes: usize,
    /// Bytes that may wait for the writer; beyond it an append waits, which is the last resort:
    /// Raft itself stands still meanwhile, and hears no leader. The tail holds the same bytes, so
    /// that what waits here costs no further memory up to [`Self::tail_bytes`].
    pub queue_bytes: usize,
    /// Bytes written with one sync at most; one entry is written however large.
    pub batch_bytes: usize,
    /// Bytes of entries that one read of the log returns at most, but always one entry.
    pub read_bytes: usize,
    /// How long a write may be outstanding before it counts as failed (architecture, section 10,
    /// rule 7).
    pub write_outstanding_max: Duration,
    /// Bytes of one file of the log. A write is in one of them; a larger one has a file of its own.
    /// Two are there at least.
    pub segment_bytes: usize,
    /// Accept a first entry with an index above 0 in an empty log. openraft's own storage tests
    /// do that; a node never does.
    pub any_start: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            sync: true,
            tail_bytes: 32 * 1024 * 1024,
            queue_bytes: 256 * 1024 * 1024,
            batch_bytes: 16 * 1024 * 1024,
            read_bytes: 4 * 1024 * 1024,
            write_outstanding_max: Duration::from_secs(10),
            segment_bytes: 16 * 1024 * 1024,
            any_start: false,
        }
    }
}

/// Bounds of the mirror of the machine.
#[derive(Clone, Debug)]
pub struct StateOptions {
    /// Changes are gathered so long before they are written as one window.
    pub window: Duration,
    /// Or until they are so many bytes.
    pub window_bytes: usize,
    /// Closed windows that may wait for the writer; when they do and the next one is full, apply
    /// waits.
    pub windows_waiting: usize,
    /// Bytes of windows after which a flush makes them durable.
    pub flush_bytes: u64,
    /// Bytes of log that a restart may have to replay before a flush is forced.
    pub replay_bytes: u64,
    /// Bytes of bodies kept in memory beside those of open windows.
    pub body_cache_bytes: usize,
    /// Bodies of at least so many bytes lie in blob files, so that compaction does not copy them.
    pub blob_bytes_min: u64,
    /// Bytes of RocksDB's cache of blocks.
    pub block_cache_bytes: usize,
    /// Bytes of a memtable of the families that hold most (jobs, bodies). More than
    /// [`Self::flush_bytes`], so that RocksDB rarely flushes unasked.
    pub memtable_bytes: usize,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self {
            window: Duration::from_millis(200),
            window_bytes: 32 * 1024 * 1024,
            windows_waiting: 2,
            flush_bytes: 32 * 1024 * 1024,
            replay_bytes: 256 * 1024 * 1024,
            body_cache_bytes: limits::BODY_CACHE_BYTES_DEFAULT,
            blob_bytes_min: 4 * 1024,
            block_cache_bytes: 64 * 1024 * 1024,
            memtable_bytes: 128 * 1024 * 1024,
        }
    }
}
