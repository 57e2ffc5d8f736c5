//! Talks: conversations of clients with a server, written down as text and played on any stage.
//!
//! ```text
//! talk: the job with the smallest priority value comes first
//! # edge 54
//! ann> use $t
//! ann< USING $t
//! ann> put 10 0 60 1 | b
//! ann< INSERTED $b
//! bob> watch $t
//! bob< WATCHING 2
//! bob> reserve
//! bob< RESERVED $b 1 | b
//! ann stats-job $b: state=reserved pri=10 time-left=58..60
//! ```
//!
//! `tests/talks/README.md` explains every line that may stand in one.

mod check;
mod parse;
mod play;
mod show;
mod text;

pub use check::{Check, ListCheck, Value};
pub use parse::{BadTalk, parse};
pub use play::{Failure, play};
pub use show::{Report, show};
pub use text::{BadText, Text};

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

/// One conversation.
#[derive(Clone, Debug)]
pub struct Talk {
    /// The file it stands in.
    pub file: PathBuf,
    /// What it shows.
    pub title: String,
    /// A tube that is its own: what `$t` stands for.
    pub tube: String,
    /// The sharp edges that its comments name.
    pub edges: BTreeSet<u32>,
    /// What it needs of its stage.
    pub needs: Needs,
    /// What happens.
    pub lines: Vec<Line>,
    /// The differences that it marks.
    pub differences: Vec<Difference>,
}

/// What a talk needs beyond a server that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Nobody else may talk meanwhile: it compares server-wide figures.
    pub alone: bool,
    /// A server of its own, started with these flags.
    pub fresh: Option<Vec<String>>,
    /// Real sockets with real buffers, or real processes.
    pub sockets: bool,
}

/// A place where Trellis and the beanstalkd at hand part ways.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// Whether it is only the age of the beanstalkd at hand.
    pub kind: DifferenceKind,
    /// A short name by which `docs/COMPAT.md` lists it.
    pub name: String,
    /// Why; empty if another talk gives the reason.
    pub reason: String,
}

/// Why two servers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// On purpose: Trellis does not do what the reference does.
    Deliberate,
    /// The reference is newer than the beanstalkd that is installed.
    Age,
}

/// Who the servers are that a line is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Both.
    Everyone,
    /// Trellis, on whatever stage.
    Trellis,
    /// The original.
    Beanstalkd,
}

/// One line of a talk.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its number in the file, from 1.
    pub number: usize,
    /// How it is written.
    pub source: String,
    /// For whom it is meant.
    pub audience: Audience,
    /// What happens.
    pub event: Event,
}

/// Something that happens in a talk.
#[derive(Clone, Debug)]
pub enum Event {
    /// Somebody says exactly these bytes.
    Says {
        /// Who.
        who: String,
        /// What, line ends and body included.
        bytes: Text,
    },
    /// Somebody hears a reply.
    Hears {
        /// Who.
        who: String,
        /// The reply's line without CRLF.
        line: Text,
        /// Its body without CRLF; `None` takes whatever was announced.
        body: Option<Text>,
        /// How many times in a row.
        times: usize,
        /// How long after the listener's last word (or [`Event::FromHere`], if that is set, for
        /// the lower bound); `None` for soon.
        after: Option<Duration>,
    },
    /// The next `(after …)` is no sooner than that long after this moment. What it counts from
    /// happens on the server some time between here and the listener's last word.
    FromHere,
    /// These people hear nothing for that long.
    Silence {
        /// Who.
        who: Vec<String>,
        /// How long.
        lasting: Duration,
    },
    /// The server closes the connection, saying no more.
    Ends(String),
    /// Somebody opens a (new) connection; a first word does it too.
    Connects(String),
    /// Somebody shuts the sending side.
    HalfCloses(String),
    /// Somebody closes the connection.
    HangsUp(String),
    /// Time goes by.
    Passes(Duration),
    /// Somebody asks for a YAML dictionary and looks at some of its keys.
    Asks {
        /// Who.
        who: String,
        /// The command.
        command: Text,
        /// Whether to ask again until it is so, for a bounded time.
        eventually: bool,
        /// What must be so.
        checks: Vec<Check>,
    },
    /// Somebody asks for a list.
    Lists {
        /// Who.
        who: String,
        /// The command.
        command: Text,
        /// Whether to ask again until it is so, for a bounded time.
        eventually: bool,
        /// What must be so.
        check: ListCheck,
    },
    /// The server gets SIGUSR1.
    Drains,
    /// The server is killed and started again on the same data, with other flags if given; all
    /// connections are gone.
    Restarts(Option<Vec<String>>),
    /// The server is stopped for that long and then let go on.
    Stalls(Duration),
}
