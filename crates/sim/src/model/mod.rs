//! The protocol between clients, origins, leader and log as a small world.
//!
//! Real are the machine ([`trellis_queue::Machine`]), each node's side of the protocol (its
//! origin: sessions, batches, resending) and the leader's merger. Abstract are Raft (one log, and
//! any surviving prefix that holds what is committed), streams, time, and whether an origin is
//! heard. Nothing is random in a world: every order of what may happen is an [`Action`].
//!
//! Source: architecture, sections 3, 5, 6 and 7.

mod action;
mod drain;
mod exhaustive;
mod law;
mod lead;
mod mutations;
mod promises;
mod rest;
mod rule;
mod scenarios;
mod setup;
mod shared;
mod step;
mod trace;
mod walk;
mod world;

pub use action::Action;
pub use exhaustive::{Explored, explore};
pub use mutations::{Caught, catch};
pub use rule::Rule;
pub use scenarios::{Scenario, scenarios};
pub use setup::{CLIENTS, Faults, NODES, Setup, Word};
pub use trace::{Violation, kind_of};
pub use walk::{Walked, setup_of, walk};
pub use world::World;
