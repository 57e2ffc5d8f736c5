//! Log, state and network in memory, with switches for their faults: for tests of everything above
//! the disk, in this crate and others.

mod log;
mod network;
mod state;

pub use log::{MemoryLog, MemoryLogReader};
pub use network::LocalNetwork;
pub use state::MemoryState;
