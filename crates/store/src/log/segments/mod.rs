//! The log in files of a fixed size that are written again and again.
//!
//! A *segment* is a file of zeros or of what was once written into it; a *group* is what one call
//! of [`LogEngine::write`](super::LogEngine::write) writes: whole sectors, one behind the other in
//! one segment, with one write and one sync. A segment that holds nothing any more that counts is a
//! spare, and is written again from its beginning. docs/adr/0007 has the reasons, and what was
//! thought of crashes and damage.

mod engine;
mod group;
mod index;
mod line;
mod scan;
mod sector;
mod segment;
mod spares;
#[cfg(test)]
mod stories;
mod stream;
#[cfg(feature = "tamper")]
mod tear;

pub(crate) use engine::Segments;
#[cfg(feature = "tamper")]
pub(crate) use tear::tear;
