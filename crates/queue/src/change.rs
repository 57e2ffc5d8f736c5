use bytes::Bytes;
use trellis_types::{JobId, NodeId, SessionId};

use crate::TubeId;

/// The only way out of the machine: the disk, live views and counters all read this list.
///
/// It names what may have changed; the value is the machine's row of that key
/// ([`Machine::row`](crate::Machine::row)), `None` meaning that it is gone.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A new job's body. The job's own row is named by a `Row` beside it.
    Body {
        /// Whose.
        job: JobId,
        /// The content, not a slice of the entry's buffer.
        body: Bytes,
    },
    /// The row of this key.
    Row(Key),
}

/// Names one row of the machine's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The one row of counters, time and settings.
    Meta,
    /// A tube.
    Tube(TubeId),
    /// A job's header.
    Job(JobId),
    /// What is known of a node's origins.
    Origin(NodeId),
    /// A parked reserve.
    Wait(SessionId),
}
