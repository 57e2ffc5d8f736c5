//! Stairs: whole clusters of real processes on real disks, broken in every way that this machine
//! allows, under a recorded load that the checker then decides about.
//!
//! An [`Arena`] is the place: networks, disks, clocks and processes. A [`Nemesis`] breaks one thing
//! there, shows that it is broken, and mends it. A [`Story`] says which of them, one after the
//! other or two at a time; [`tell`] plays it and returns an [`Account`], from which [`report`]
//! makes the fault report.
//!
//! Architecture invariant: a run whose nemesis did nothing, or whose clients were told too little,
//! is rejected and never passes.

pub mod account;
mod arena;
mod nemesis;
mod play;
pub mod report;
mod story;

pub use account::Account;
pub use arena::{Arena, Setup};
pub use nemesis::{Broken, KINDS, Kind, Nemesis};
pub use play::{Settings, tell};
pub use story::{Act, Story};
