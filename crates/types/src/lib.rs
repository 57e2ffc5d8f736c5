//! Floor 0: the words of the house. Identifiers, units and limits that every floor above uses.
//!
//! Architecture invariant: this crate knows no clock, no I/O, no allocation strategy and no other
//! crate of the project. A value of one of its checked types is the proof that the check was made.

pub mod limits;
pub mod seeded;

mod id;
mod time;
mod tube_name;

pub use id::{ConnectionId, JobId, NodeId, OriginId, Run, SessionId};
pub use time::{Seconds, Timestamp};
pub use tube_name::{BadTubeName, TubeName};

use serde::{Deserialize, Serialize};

/// Urgency of a job. 0 is served first, `u32::MAX` last.
///
/// Source: protocol specification, 4.1 ("pri").
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Priority(pub u32);

impl Priority {
    /// Ready jobs with a priority value below this count as urgent in the statistics (4.6).
    pub const URGENT_BELOW: u32 = 1024;

    /// Whether a ready job of this priority counts as urgent.
    pub fn is_urgent(self) -> bool {
        self.0 < Self::URGENT_BELOW
    }
}
