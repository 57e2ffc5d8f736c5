//! Identity and disk without a disk: for tests and simulations. What is bound or raised survives
//! a node's crash as long as the value lives, as on a disk that syncs.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use trellis_rpc::ClusterId;
use trellis_types::{NodeId, Run};

use super::{Disk, DiskSpace, Identity};

/// An identity in memory.
#[derive(Debug)]
pub struct MemoryIdentity {
    node: NodeId,
    kept: Mutex<Kept>,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    name: String,
    cluster: Option<ClusterId>,
    run: Run,
}

impl MemoryIdentity {
    /// A node that has never started.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            kept: Mutex::default(),
        }
    }

    /// As an older copy of the folder would have it.
    pub fn copy(&self) -> Self {
        Self {
            node: self.node,
            kept: Mutex::new(self.kept.lock().clone()),
        }
    }
}

impl Identity for MemoryIdentity {
    fn node(&self) -> NodeId {
        self.node
    }

    fn name(&self) -> String {
        self.kept.lock().name.clone()
    }

    fn cluster(&self) -> Option<ClusterId> {
        self.kept.lock().cluster
    }

    fn run(&self) -> Run {
        self.kept.lock().run
    }

    fn next_run(&self) -> io::Result<Run> {
        let mut kept = self.kept.lock();
        kept.run.0 += 1;
        Ok(kept.run)
    }

    fn bind(&self, cluster: ClusterId) -> io::Result<()> {
        let mut kept = self.kept.lock();
        match kept.cluster {
            Some(bound) if bound != cluster => {
                Err(io::Error::other(format!("bound to cluster {bound}")))
            }
            _ => {
                kept.cluster = Some(cluster);
                Ok(())
            }
        }
    }

    fn unbind(&self) -> io::Result<()> {
        self.kept.lock().cluster = None;
        Ok(())
    }

    fn set_name(&self, name: &str) -> io::Result<()> {
        name.clone_into(&mut self.kept.lock().name);
        Ok(())
    }
}

/// Room on disk as a test wishes it.
#[derive(Debug)]
pub struct MemoryDisk {
    free: AtomicU64,
    total: u64,
    compactions: AtomicU64,
    quarantined: Mutex<Option<String>>,
}

impl MemoryDisk {
    /// A volume of `total` bytes, all of them free.
    pub fn new(total: u64) -> Self {
        Self {
            free: AtomicU64::new(total),
            total,
            compactions: AtomicU64::new(0),
            quarantined: Mutex::new(None),
        }
    }

    /// So much is free from now on.
    pub fn set_free(&self, bytes: u64) {
        self.free.store(bytes, Ordering::Relaxed);
    }

    /// How often it was compacted.
    pub fn compactions(&self) -> u64 {
        self.compactions.load(Ordering::Relaxed)
    }
}

impl Disk for MemoryDisk {
    fn space(&self) -> io::Result<DiskSpace> {
        Ok(DiskSpace {
            free: self.free.load(Ordering::Relaxed),
            total: self.total,
        })
    }

    fn log_bytes_after(&self, _: Option<u64>) -> u64 {
        0
    }

    fn log_index_keeping(&self, _: u64) -> Option<u64> {
        None
    }

    fn state_bytes(&self) -> u64 {
        0
    }

    fn oldest_write(&self) -> Option<Duration> {
        None
    }

    fn compact(&self) -> io::Result<()> {
        self.compactions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn quarantine(&self, why: &str) -> io::Result<()> {
        *self.quarantined.lock() = Some(why.to_owned());
        Ok(())
    }

    fn quarantined(&self) -> Option<String> {
        self.quarantined.lock().clone()
    }
}
