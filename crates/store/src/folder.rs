//! The data folder itself: who may use it, which format lies in it, and how a small file is
//! replaced so that a power cut leaves the old or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::OpenError;

/// The format that this binary writes and reads. 1 had the log in RocksDB.
pub(crate) const FORMAT: u32 = 2;

/// All that Trellis puts into a data folder, and what a file system does.
const KNOWN: [&str; 10] = [
    "FORMAT",
    "LOCK",
    "log",
    "state",
    "snapshots",
    "members",
    "pid",
    "quarantine",
    "evidence",
    "lost+found",
];

/// Held as long as the folder is in use; the kernel lets go of it when the process ends, however.
pub(crate) struct FolderLock {
    _file: File,
}

/// Makes the folder if need be and locks it.
pub(crate) fn lock_made(dir: &Path) -> Result<FolderLock, OpenError> {
    fs::create_dir_all(dir).map_err(|source| OpenError::Io {
        what: "can't make the data folder",
        dir: dir.to_owned(),
        source,
    })?;
    refuse_a_strangers(dir)?;
    lock(dir)
}

/// Refuses a folder that is neither empty nor ours, before anything is written to it: somebody
/// named a wrong one, such as the folder above those of several nodes.
fn refuse_a_strangers(dir: &Path) -> Result<(), OpenError> {
    // What a rebuilding leaves is ours, whatever a person has put beside it.
    let signs = ["FORMAT", "quarantine", "evidence"];
    if signs.iter().any(|name| dir.join(name).exists()) {
        return Ok(());
    }
    let failed = |source| OpenError::Io {
        what: "can't read the data folder",
        dir: dir.to_owned(),
        source,
    };
    let mut strange = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy().into_owned();
        // Hidden ones come with mount points and home folders. `replace_file` may have been cut off.
        let known = KNOWN.contains(&name.trim_end_matches(".new")) || name.starts_with('.');
        if !known {
            strange.push(name);
        }
    }
    strange.sort();
    let node = strange
        .iter()
        .find(|name| dir.join(name).join("FORMAT").exists());
    match node.or(strange.first()) {
        None => Ok(()),
        Some(found) => Err(OpenError::NotOurs {
            dir: dir.to_owned(),
            found: found.clone(),
            is_node: node.is_some(),
        }),
    }
}

/// Checks the format of a locked folder, or writes it.
pub(crate) fn claim(dir: &Path) -> Result<(), OpenError> {
    let at = |what: &'static str| {
        let dir = dir.to_owned();
        move |source| OpenError::Io { what, dir, source }
    };
    match fs::read_to_string(dir.join("FORMAT")) {
        Ok(text) => check_format(dir, &text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Written before anything else is, so a folder with data and without it is not ours.
            if dir.join("log").exists() || dir.join("state").exists() {
                return Err(OpenError::NoFormat {
                    dir: dir.to_owned(),
                });
            }
            replace_file(
                &dir.join("FORMAT"),
                format!("trellis {FORMAT}\n").as_bytes(),
            )
            .map_err(at("can't write FORMAT in the data folder"))?;
            if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
                sync_dir(parent).map_err(at("can't sync the folder above the data folder"))?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(OpenError::NoFormat {
                dir: dir.to_owned(),
            });
        }
        Err(error) => return Err(at("can't read FORMAT in the data folder")(error)),
    }
    Ok(())
}

pub(crate) fn lock(dir: &Path) -> Result<FolderLock, OpenError> {
    let io_error = |source| OpenError::Io {
        what: "can't open LOCK in the data folder",
        dir: dir.to_owned(),
        source,
    };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("LOCK"))
        .map_err(io_error)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(FolderLock { _file: file }),
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => Err(OpenError::InUse {
            dir: dir.to_owned(),
            pid: fs::read_to_string(dir.join("pid"))
                .ok()
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty()),
        }),
        Err(error) => Err(io_error(error.into())),
    }
}

fn check_format(dir: &Path, text: &str) -> Result<(), OpenError> {
    let found = text
        .trim()
        .strip_prefix("trellis ")
        .and_then(|number| number.parse::<u32>().ok());
    match found {
        None => Err(OpenError::NoFormat {
            dir: dir.to_owned(),
        }),
        Some(found) if found > FORMAT => Err(OpenError::NewerFormat {
            dir: dir.to_owned(),
            found,
            known: FORMAT,
        }),
        Some(found) if found < FORMAT => Err(OpenError::OlderFormat {
            dir: dir.to_owned(),
            found,
            known: FORMAT,
        }),
        Some(_) => Ok(()),
    }
}

/// Makes the names in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Replaces `path` as one step and durably: written beside it, synced, renamed, folder synced.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(dir) => sync_dir(dir),
        None => Ok(()),
    }
}

/// Removes a folder with all that is in it; fine if it is not there.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_somebody_else_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        for ours in ["lost+found", ".snapshot", "LOCK", "FORMAT.new", "pid"] {
            fs::write(dir.path().join(ours), "").unwrap();
        }
        lock_made(dir.path()).unwrap();

        let above = tempfile::tempdir().unwrap();
        fs::create_dir(above.path().join("node-0")).unwrap();
        fs::write(above.path().join("a.txt"), "").unwrap();
        let refused = |dir: &Path| lock_made(dir).err().unwrap().to_string();
        assert!(refused(above.path()).contains("holds a.txt"));
        fs::write(above.path().join("node-0/FORMAT"), "").unwrap();
        let why = refused(above.path());
        assert!(why.contains("is it meant to be"), "{why}");
        assert!(why.contains("node-0"), "{why}");
        assert!(!above.path().join("LOCK").exists());

        // A person's note beside a node that is being rebuilt.
        fs::create_dir(above.path().join("evidence")).unwrap();
        lock_made(above.path()).unwrap();
    }
}
