//! Floor 1: the heart. [`Machine::apply`] takes a committed [`Entry`] and returns an [`Outcome`];
//! every node feeds it the same entries and so holds the same state.
//!
//! Architecture invariants: no clock (time is in the entry), no randomness, no I/O, no floating
//! point, no unordered map, no `Result` in `apply` (a refusal is a reply), and nothing in it that
//! can panic on input. Source: architecture, sections 3 to 7.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod change;
mod command;
mod entry;
mod machine;
mod outcome;
mod row;
mod view;

pub use change::{Change, Key};
pub use command::{Command, LeaderCommand, Setting};
pub use entry::{Batch, Content, Entry, Item};
pub use machine::{BadImage, Machine};
pub use outcome::{Answer, Event, Fate, Outcome, Verdict};
pub use row::{JobRow, JobState, MetaRow, OriginRow, Row, TubeId, TubeRow, WaitRow};
pub use view::{JobView, OriginView, ServerView, TubeView};
