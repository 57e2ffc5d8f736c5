//! One checker for all instruments: it reads what clients asked and were told, what was broken
//! meanwhile and what was left at the end, and decides which invariant did not hold.
//!
//! A [`history`] is recorded by whoever drives a queue: the paper cluster, a simulation, or real
//! processes. [`check`] turns it into a [`Verdict`]. A [`workload`] is the seeded script that all of
//! them play.
//!
//! How it decides, from the strongest to the cheapest:
//!
//! 1. *Every job by itself*, over the whole history: is there an order of the operations that
//!    concern it, each at a moment between question and answer, that a single queue could have
//!    carried out? What has no answer may have happened at any later moment, or never. Holds and
//!    delays end within bounds of time. This is an exhaustive search (Wing and Gong, with Lowe's
//!    memory of configurations).
//! 2. *Every tube by itself*, the same search over all its jobs together: order of delivery, "nothing
//!    is ready", heads of the tube. It has a budget; what it could not finish is named.
//! 3. *Necessary conditions* that cost nothing: ids, bodies, order, counters, digests, time, a dead
//!    disk that goes on answering, what is left at the end.
//!
//! The first two refuse a history only if no order explains it, the third only what no order can
//! explain: an unknown outcome, a late answer or a fault never makes a sound queue look broken.
//!
//! Architecture invariants: no socket, no clock, no tasks. Why no library does the search: the ones
//! there are want a model with one next state per operation; holds that run out at a moment known
//! only within bounds have several.

pub mod checks;
pub mod history;
mod invariant;
mod model;
mod partition;
mod run;
mod search;
mod slice;
mod standstill;
mod verdict;
pub mod workload;

pub use invariant::Invariant;
pub use run::{BadHistory, Connection, Operation, Outcome, Run};
pub use verdict::{Coverage, Finding, Verdict, check};
