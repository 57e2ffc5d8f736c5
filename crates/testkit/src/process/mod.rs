//! Real servers as child processes: started, waited for, and killed by their pid when dropped.

mod cluster;
mod port;
mod server;

pub use cluster::{Cluster, trellis_binary};
pub use port::{free_base_port, free_port};
pub use server::{Server, ServerCommand};
