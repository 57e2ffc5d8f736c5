use std::io;
use std::path::Path;

/// Room on the file system of a folder, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// What this process may still write (without the blocks reserved for root).
    pub free: u64,
    /// The size of the file system.
    pub total: u64,
}

/// Asks the file system that holds `dir`. Every node tells the leader with its pings
/// (architecture, section 11).
///
/// # Errors
///
/// What the system call says, for example that `dir` does not exist.
pub fn free_space(dir: &Path) -> io::Result<FreeSpace> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(FreeSpace {
        free: found.f_bavail.saturating_mul(found.f_frsize),
        total: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_some_room_and_less_than_everything() {
        let dir = tempfile::tempdir().unwrap();
        let space = free_space(dir.path()).unwrap();
        assert!(space.free > 0 && space.free <= space.total, "{space:?}");
    }
}
