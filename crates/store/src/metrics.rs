use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// What the log tells the operator. Cloning shares the counters.
#[derive(Clone, Debug)]
pub struct LogMetrics {
    /// Seconds that one write with its sync took.
    pub sync_seconds: Histogram,
    /// Entries that went to disk with one sync.
    pub entries_per_sync: Histogram,
    /// Entries written since the start.
    pub entries: Counter,
    /// Bytes of entries written since the start.
    pub bytes: Counter,
    /// Bytes of entries that the log holds now.
    pub held_bytes: Gauge,
    /// Bytes of entries in memory now.
    pub tail_bytes: Gauge,
    /// The newest index on disk.
    pub flushed_index: Gauge,
    /// Reads that had to go to disk.
    pub disk_reads: Counter,
}

impl Default for LogMetrics {
    fn default() -> Self {
        Self {
            sync_seconds: Histogram::new(exponential_buckets(0.000_1, 2.0, 18)),
            entries_per_sync: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            entries: Counter::default(),
            bytes: Counter::default(),
            held_bytes: Gauge::default(),
            tail_bytes: Gauge::default(),
            flushed_index: Gauge::default(),
            disk_reads: Counter::default(),
        }
    }
}

impl LogMetrics {
    /// Adds everything to `registry`, under names that begin with `log_`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("log");
        registry.register_with_unit(
            "sync",
            "How long one write of the raft log with its sync took",
            Unit::Seconds,
            self.sync_seconds.clone(),
        );
        registry.register(
            "entries_per_sync",
            "Raft entries written with one sync",
            self.entries_per_sync.clone(),
        );
        registry.register("entries", "Raft entries written", self.entries.clone());
        registry.register_with_unit(
            "written",
            "Bytes of raft entries written",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register_with_unit(
            "held",
            "Bytes of raft entries in the log",
            Unit::Bytes,
            self.held_bytes.clone(),
        );
        registry.register_with_unit(
            "tail",
            "Bytes of raft entries in memory",
            Unit::Bytes,
            self.tail_bytes.clone(),
        );
        registry.register(
            "flushed_index",
            "Newest raft index on this node's disk",
            self.flushed_index.clone(),
        );
        registry.register(
            "disk_reads",
            "Reads of the raft log that memory could not answer",
            self.disk_reads.clone(),
        );
    }
}

/// What the mirror tells the operator. Cloning shares the counters.
#[derive(Clone, Debug)]
pub struct StateMetrics {
    /// Windows written.
    pub windows: Counter,
    /// Rows and bodies put or deleted by windows.
    pub rows: Counter,
    /// Bytes of rows and bodies written by windows.
    pub bytes: Counter,
    /// Jobs that lived shorter than a window and never touched the disk.
    pub annihilated: Counter,
    /// Seconds that one write of a window took.
    pub window_seconds: Histogram,
    /// Seconds that one flush took.
    pub flush_seconds: Histogram,
    /// Applied index of the last written window.
    pub written_index: Gauge,
    /// Applied index that survives a power cut without the log.
    pub durable_index: Gauge,
    /// Index of the current snapshot.
    pub snapshot_index: Gauge,
    /// Snapshots built.
    pub snapshots: Counter,
    /// Bytes of bodies that are owed to connections.
    pub owed_bytes: Gauge,
    /// Bodies answered from memory.
    pub body_hits: Counter,
    /// Bodies read from disk.
    pub body_reads: Counter,
}

impl Default for StateMetrics {
    fn default() -> Self {
        Self {
            windows: Counter::default(),
            rows: Counter::default(),
            bytes: Counter::default(),
            annihilated: Counter::default(),
            window_seconds: Histogram::new(exponential_buckets(0.000_1, 2.0, 16)),
            flush_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            written_index: Gauge::default(),
            durable_index: Gauge::default(),
            snapshot_index: Gauge::default(),
            snapshots: Counter::default(),
            owed_bytes: Gauge::default(),
            body_hits: Counter::default(),
            body_reads: Counter::default(),
        }
    }
}

impl StateMetrics {
    /// Adds everything to `registry`, under names that begin with `state_`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("state");
        registry.register(
            "windows",
            "Windows of changes written",
            self.windows.clone(),
        );
        registry.register(
            "rows",
            "Rows and bodies written or deleted",
            self.rows.clone(),
        );
        registry.register_with_unit(
            "written",
            "Bytes of rows and bodies written",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register(
            "annihilated_jobs",
            "Jobs that were gone before a window could write them",
            self.annihilated.clone(),
        );
        registry.register_with_unit(
            "window",
            "How long one write of a window took",
            Unit::Seconds,
            self.window_seconds.clone(),
        );
        registry.register_with_unit(
            "flush",
            "How long one flush took",
            Unit::Seconds,
            self.flush_seconds.clone(),
        );
        registry.register(
            "written_index",
            "Applied index of the last written window",
            self.written_index.clone(),
        );
        registry.register(
            "durable_index",
            "Applied index from which a restart replays the log",
            self.durable_index.clone(),
        );
        registry.register(
            "snapshot_index",
            "Applied index of the current snapshot",
            self.snapshot_index.clone(),
        );
        registry.register("snapshots", "Snapshots built", self.snapshots.clone());
        registry.register_with_unit(
            "owed",
            "Bytes of bodies owed to connections",
            Unit::Bytes,
            self.owed_bytes.clone(),
        );
        registry.register(
            "body_hits",
            "Bodies found in memory",
            self.body_hits.clone(),
        );
        registry.register(
            "body_reads",
            "Bodies read from disk",
            self.body_reads.clone(),
        );
    }
}
