//! Whole nodes in simulated time: the product's own `node`, `consensus` and `beanstalk`, gRPC and
//! all, over a network, disks and clocks that are made up, on one thread. Everything follows from a
//! seed.
//!
//! Each node has a runtime of its own whose time stands still; the world winds it millisecond by
//! millisecond. So a process can be killed between two instructions (its runtime is dropped), be
//! stopped while the others go on, and have a clock that runs fast. Only what lies below is made up:
//! TCP (connections, in order or broken, over links that are slow, lose or are cut), the disk
//! (`consensus::memory`: what was not synced is lost with the power), wall clocks.
//!
//! Clients speak the protocol over connections of the same network; what they ask and hear is
//! recorded in simulated time, and the checker decides. Then the faults stop, and everything must
//! become well and drain.
//!
//! Sources of chance, and how each is closed:
//!
//! | source | closed by |
//! | --- | --- |
//! | when messages arrive, what breaks when, what clients ask | generators seeded by the seed |
//! | time | tokio's, paused; the product reads no other monotonic clock (`node::now`) |
//! | wall clocks | `node::WallClock`; what the system's tells stands still (`chance/chance.c`) |
//! | threads | there is one; what may block is done in place (`consensus::work_in_place`) |
//! | election time-outs, the cluster's id (`rand`) | `getrandom` tells what follows from the seed (`chance/chance.c`) |
//! | `tokio::select!`, the order in which a `watch` wakes | the same: tokio draws its seed from it |
//! | the order of hash maps | the same: the standard library draws its keys from it |
//! | what a process has done before | one seed is one process |
//!
//! What is not simulated: the kernel's sockets and RocksDB (the chaos suite has both), threads that
//! race, and the size of messages against a link's bandwidth.

mod client;
mod disk;
mod doing;
mod drain;
mod fault;
mod house;
mod link;
mod nemesis;
mod net;
mod pipe;
mod repeating;
mod roads;
mod run;
mod seeds;
mod talk;
mod world;

pub use run::{Outcome, Plan, play};
pub use seeds::{Series, play_all};
