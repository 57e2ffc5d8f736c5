//! What is recorded: one JSON object a line, so that it can be written while the run goes on, read
//! while it is being written, and searched with the usual tools.
//!
//! Times are nanoseconds of one monotonic clock: the recorder's. A question is stamped before its
//! first byte is sent, an answer after its last byte has arrived. Lines may stand in any order as
//! long as an operation's question stands before its answer.

mod body;
mod call;
mod reader;
mod record;
mod recorder;
mod reply;

pub use body::Body;
pub use call::Call;
pub use reader::{BadLine, read};
pub use record::{
    Bounds, CloseSide, Demands, FinalJob, FinalState, Header, NodeEvent, Record, Stage, TubeCounts,
    VERSION,
};
pub use recorder::Recorder;
pub use reply::{JobState, JobStats, Reply, TubeStats};

/// Nanoseconds of the run's clock.
pub type Nanos = u64;

/// Nanoseconds in a millisecond.
pub const MILLI: Nanos = 1_000_000;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;
