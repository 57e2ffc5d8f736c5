//! Real servers as child processes: started, waited for, and killed by their pid when dropped.

mod cluster;
mod killed;
mod port;
mod server;

pub use cluster::{Cluster, trellis_binary};
pub use killed::Killed;
pub use port::{free_base_port, free_port};
pub use server::{Server, ServerCommand};

/// A command that inherits no `TRELLIS_…` from the environment: those are settings to the program,
/// and some of them are meant for tests.
pub fn without_settings(program: &std::path::Path) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"TRELLIS_") {
            command.env_remove(name);
        }
    }
    command
}

/// A folder that goes when it is dropped.
///
/// # Errors
///
/// The system has no room for temporary files.
pub fn temporary_folder() -> std::io::Result<tempfile::TempDir> {
    tempfile::TempDir::with_prefix("trellis-test-")
}
