//! Who belongs to the cluster, and whether this node may take part in it: identity, forming,
//! joining, hello, replacing, changes of members; and what keeps a member in shape: snapshots,
//! purging, room on disk, stalls, digests, health.
//!
//! Every decision is a function or a small state machine without sockets, clock or disk, tried
//! out beside itself; the tasks around them look, decide, act, and look again.
//!
//! Source: architecture, sections 10 to 13.

mod change;
mod changes;
mod convert;
mod core_view;
mod digests;
mod disk;
mod entering;
mod forming;
mod health;
mod hello;
mod jury;
mod members;
pub mod memory;
mod parts;
mod reports;
mod service;
mod snapshots;
mod stall;
mod standing;
mod status;
mod succession;
mod table;
mod upkeep;
mod witness;

pub use changes::Refused;
pub use core_view::CoreView;
pub use disk::{DiskMark, DiskSpace};
pub use forming::Seed;
pub use health::{CHECKS, Check, Health};
pub use hello::HelloStop;
pub use members::Members;
pub use parts::{BadMembers, Disk, Identity, MemberSettings};
pub use standing::{FEATURE_LEVEL, NodeStop};
pub use status::{Digest, MemberStatus, Status};

pub(crate) use change::{ChangeRefusal, Council, Duty, Sight, next_duty};
pub(crate) use changes::{CHANGE_TIMEOUT, HOPS_MAX, preside};
pub(crate) use digests::{DigestSample, Digests};
pub(crate) use disk::DiskWatch;
pub(crate) use entering::{enter, watch_for_removal, watch_level};
pub(crate) use forming::{BindRequest, Forming, FormingStep, Round};
pub(crate) use hello::{HelloAnswer, HelloVerdict, Known, Own, hello_verdict};
pub(crate) use jury::{Difference, Judgement, Jury};
pub(crate) use reports::report;
pub(crate) use service::{ANY_CLUSTER, ANY_TARGET, PeerService};
pub(crate) use snapshots::{LOG_KEPT_BYTES_MAX, LogView, SnapshotPolicy};
pub(crate) use stall::{Progress, StallVerdict, StallWatch};
pub(crate) use standing::{Stage, Standing, shown};
pub(crate) use succession::watch_leader;
pub(crate) use table::{MemberTable, Seen};
pub(crate) use upkeep::keep_up;
pub(crate) use witness::{Witness, Witnessed};
