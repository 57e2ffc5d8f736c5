//! A tube as one queue would keep it: what the search runs histories against.

mod act;
mod job;
mod kicking;
mod looking;
mod rules;
mod tube;

pub(crate) use act::{Act, Head};
pub(crate) use job::{Facts, Job, Phase, Window, World};
pub(crate) use rules::{Rule, Rules};
pub(crate) use tube::{Tube, Undo};
