//! Snapshots: the state of one applied index as a folder of files that never change.
//!
//! A checkpoint of the mirror (hard links) with a manifest written last; sent file by file with
//! checksums; taken in beside the state and only then swapped for it. Source: architecture,
//! section 10, rules 3 to 5, and "Restart".

mod incoming;
mod manifest;
mod pace;
mod shelf;
mod stored;

pub(crate) use incoming::{Complete, Incoming};
pub(crate) use shelf::Shelf;
