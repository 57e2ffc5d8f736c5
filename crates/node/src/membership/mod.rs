//! Who belongs to the cluster, and whether this node may take part in it: identity, forming,
//! joining, hello, replacing, changes of members; and what keeps a member in shape: snapshots,
//! purging, room on disk, stalls, digests, health.
//!
//! Every decision is a function or a small state machine without sockets, clock or disk, tried
//! out beside itself; the tasks around them look, decide, act, and look again.
//!
//! Source: architecture, sections 10 to 13.

mod change;
mod digests;
mod disk;
mod forming;
mod hello;
mod snapshots;
mod stall;
mod table;

pub use change::{CAUGHT_UP_ENTRIES, ChangeRefusal, Council, Duty, Sight, next_duty};
pub use digests::{Comparison, DigestSample, Digests};
pub use disk::{DiskMark, DiskSpace, DiskWatch};
pub use forming::{BindRefusal, BindRequest, Forming, FormingStep, Round, Seed};
pub use hello::{Go, HelloAnswer, HelloStop, HelloVerdict, Known, Own, hello_verdict};
pub use snapshots::{
    LOG_KEPT_BYTES_MAX, LogView, SNAPSHOT_INTERVAL_MIN, SNAPSHOT_LOG_BYTES_MIN, SnapshotPolicy,
};
pub use stall::{Progress, STALL_FATAL, STALL_HAND_OVER, StallVerdict, StallWatch};
pub use table::{MemberTable, Seen};
