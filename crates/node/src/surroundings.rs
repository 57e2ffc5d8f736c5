use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use trellis_consensus::Transport;
use trellis_rpc::{Network, Tcp};

/// What surrounds a process, its disk apart: the operating system's in a cluster, made up in a
/// simulation.
#[derive(Clone)]
pub struct Surroundings {
    /// What carries bytes between nodes.
    pub network: Arc<dyn Network>,
    /// The machine's wall clock.
    pub wall: WallClock,
    /// What stands between Raft and its transport; usually nothing.
    pub between: fn(Arc<dyn Transport>) -> Arc<dyn Transport>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            network: Arc::new(Tcp),
            wall: WallClock::default(),
            between: |transport| transport,
        }
    }
}

/// A machine's wall clock. Only a cold start of the whole cluster looks at it (architecture,
/// section 4).
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl WallClock {
    /// One that tells what `ms` tells: milliseconds since 1970.
    pub fn new(ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(ms))
    }

    /// Milliseconds since 1970.
    pub fn ms(&self) -> u64 {
        (self.0)()
    }
}

impl Default for WallClock {
    /// The operating system's.
    fn default() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            })
        })
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({} ms)", self.ms())
    }
}
