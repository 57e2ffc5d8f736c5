//! Stairs: what tests of several floors share. Talks (scripted conversations), the stages that
//! they are played on, and real servers as child processes.
//!
//! Architecture invariant: nothing of the product depends on this crate.

pub mod admin;
pub mod network;
pub mod process;
pub mod recording;
pub mod stage;
pub mod talk;
