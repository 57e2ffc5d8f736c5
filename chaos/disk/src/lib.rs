//! Stairs: a disk that loses, fails, lies and hangs on command, and the stories that are told of nodes on it.
//!
//! The *layer* is a file system in user space under one node's data folder. What a process writes is seen by everybody
//! at once and is durable only when it is synced; a *power cut* drops the rest. Durable bytes lie in a folder beneath,
//! one file per file; names and what is not durable lie in the layer's memory, so the disk lives as long as the layer.
//! Orders come over a Unix socket ([`control::HELP`]).
//!
//! What is durable when:
//! - a file's bytes and length: when the file was synced (fsync and fdatasync are one), or when more than 64 MiB of it
//!   were not and it was written back, as a kernel does;
//! - names (create, rename, link, unlink, folders): with any later sync of anything, as a journal does it; or, told
//!   `names strict`, only when their folder was synced, as POSIX has it. A rename within a folder is one change; between
//!   two folders it is two, of which one can survive alone;
//! - mode and owner: at once.
//!
//! Architecture invariant: [`disk`] knows neither FUSE's requests nor sockets, and draws no chance but from a seed.

pub mod control;
pub mod disk;
pub mod fault;
pub mod layer;
pub mod mounted;
mod plug;
pub mod story;

pub use plug::Plug;
