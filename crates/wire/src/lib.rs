//! Floor 1: codecs that have never met a socket. Bytes go in, requests or replies come out, and
//! the other way round.
//!
//! Architecture invariants: no I/O, no clock, no tokio, no unordered map; nothing in here can
//! panic on input, and no memory is taken for bytes that a peer merely announces.

pub mod beanstalk;
