//! The mirror of the machine: what apply decided in memory, written behind it.
//!
//! A restart loads what was durable and replays the log from there, so nothing here needs a
//! write-ahead log; what it needs is that every state that can be found on disk is exactly that of
//! one applied index. Source: architecture, section 10; the storage notes, 5.3.

mod bodies;
mod front;
mod generation;
mod mirror;
mod pointer;
mod shared;
mod window;
mod writer;

pub use mirror::StateMirror;

pub(crate) use generation::{Generation, look_through, position_in};
pub(crate) use pointer::Pointer;
#[cfg(test)]
pub(crate) use window::Window;
