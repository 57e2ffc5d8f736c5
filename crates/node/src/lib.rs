//! Floor 4: a process' mind. Sessions of this node, batching and forwarding, the cluster clock,
//! ticks, leases, reads, census; who belongs to the cluster and whether this node may take part.
//!
//! Architecture invariants: nothing here knows a protocol of clients (doors translate) or a format
//! on disk (the store's), and nothing here decides what happens to a job (the machine's). What is
//! hard is a state machine without I/O: `origin` (sessions and what they send), `leader::Merger`,
//! `leader::Presence`, [`Clocks`]. The tasks around them look, act, and look again.
//!
//! Source: architecture, sections 4 to 9, 11, 12, 14.

mod answer;
mod boot;
mod budget;
mod call;
mod census;
mod clock;
mod counters;
mod leader;
mod listener;
pub mod membership;
mod metrics;
mod mind;
mod neighbours;
mod node;
mod origin;
mod outlet;
mod reads;
mod server_stats;
mod session;
mod settings;
mod surroundings;

pub use answer::{Answer, TubeStats};
pub use boot::*;
pub use budget::Admitted;
pub use call::Call;
pub use clock::{ClockReading, Clocks};
pub use counters::Counters;
pub use listener::CoreListener;
pub use metrics::NodeMetrics;
pub use mind::{Core, CoreParts, DoorState, LeadError};
pub use neighbours::{Neighbours, PeerNeighbours};
pub use node::Node;
pub use origin::Refused;
pub use outlet::{CloseReason, Outlet};
pub use server_stats::ServerStats;
pub use session::Session;
pub use settings::{NodeSettings, Reads};
pub use surroundings::{Surroundings, WallClock};
pub use trellis_consensus::Owed;

/// The two state machines of a node as values, for a search over everything that may happen to
/// them. Only with the feature `model`, which no product build has.
#[cfg(feature = "model")]
pub mod model {
    pub use crate::{
        leader::ModelMerger,
        origin::model::{Heard, ModelOrigin, Poll},
    };
}

pub(crate) use budget::Budget;
pub(crate) use outlet::Line;

/// This process' monotonic clock; a test may wind it by tokio's. Nothing here reads another one.
pub(crate) fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// How long ago `moment` was, on that clock.
pub(crate) fn since(moment: std::time::Instant) -> std::time::Duration {
    now().saturating_duration_since(moment)
}

/// Whether others are at work at `now`, if something of theirs was seen last at `seen`. What is long
/// rests for them between its portions.
pub(crate) fn others_work(seen: Option<std::time::Instant>, now: std::time::Instant) -> bool {
    const WITHIN: std::time::Duration = std::time::Duration::from_millis(500);
    seen.is_some_and(|seen| now.saturating_duration_since(seen) <= WITHIN)
}
