//! A tube as one queue would keep it: what the search runs histories against.

mod job;
mod rules;
mod tube;

pub(crate) use job::{Facts, Job, Phase, Window, World};
pub(crate) use rules::{Rule, Rules};
pub(crate) use tube::{Act, Head, Tube, Undo};
