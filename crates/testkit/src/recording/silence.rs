use std::io::{self, ErrorKind};

use trellis_checker::history::CloseSide;

/// Why there is no answer.
#[derive(Debug)]
pub enum Silence {
    /// Not within the time given.
    Late,
    /// The connection is over.
    Closed(String),
}

impl Silence {
    /// As it is recorded.
    pub fn words(&self) -> String {
        match self {
            Self::Late => "timeout".to_owned(),
            Self::Closed(why) => format!("closed: {why}"),
        }
    }

    /// Who ends the connection by it.
    pub fn side(&self) -> CloseSide {
        match self {
            Self::Late => CloseSide::Impatience,
            Self::Closed(_) => CloseSide::Server,
        }
    }
}

impl From<io::Error> for Silence {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Late,
            _ => Self::Closed(error.to_string()),
        }
    }
}
