use std::fmt;

use trellis_types::OriginId;

/// Whether clients are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoorState {
    /// Listen and connect.
    Open {
        /// Under which origin.
        origin: OriginId,
    },
    /// Close listeners; every session's outlet has been or is being closed.
    Closed {
        /// What clients and operators may be told.
        why: &'static str,
    },
}

impl fmt::Display for DoorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { origin } => write!(f, "clients are served, as origin {origin}"),
            Self::Closed { why } => write!(f, "no clients are served: {why}"),
        }
    }
}
