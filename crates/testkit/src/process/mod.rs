//! Real servers as child processes: started, waited for, and killed by their pid when dropped.

mod cluster;
mod port;
mod server;

pub use cluster::{Cluster, trellis_binary};
pub use port::{free_base_port, free_port};
pub use server::{Server, ServerCommand};

/// A folder that goes when it is dropped.
///
/// # Errors
///
/// The system has no room for temporary files.
pub fn temporary_folder() -> std::io::Result<tempfile::TempDir> {
    tempfile::TempDir::with_prefix("trellis-test-")
}
