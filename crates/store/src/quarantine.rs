use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::OpenError;
use crate::folder::{self, replace_file, sync_dir};
use crate::roll::ROLL;

/// The note in a data folder that its node is out: it stays so over restarts until a person says
/// otherwise. While it is there, nothing in the folder is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    /// What is wrong, in kind.
    pub kind: QuarantineKind,
    /// What was found; one sentence.
    pub why: String,
}

/// How much of a quarantined folder can be relied upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuarantineKind {
    /// Files are damaged: nothing of it is opened, so the node takes no part in anything.
    Damaged,
    /// The state is whole but not that of the other replicas: log and vote are good.
    Differs,
    /// Its content is on the way to the folder of evidence of that name.
    Rebuilding(String),
}

/// The note's file.
const NOTE: &str = "quarantine";
/// Where the content of folders goes that were rebuilt.
const EVIDENCE: &str = "evidence";
/// All that makes up a node, beside the note.
const CONTENT: [&str; 5] = ["FORMAT", "log", "state", "snapshots", ROLL];

impl Quarantine {
    /// Files of the folder are damaged.
    pub fn damaged(why: impl Into<String>) -> Self {
        Self {
            kind: QuarantineKind::Damaged,
            why: why.into(),
        }
    }

    /// The state is not that of the other replicas.
    pub fn differs(why: impl Into<String>) -> Self {
        Self {
            kind: QuarantineKind::Differs,
            why: why.into(),
        }
    }

    /// The note in `dir`, if there is one. One that can't be understood counts as
    /// [`QuarantineKind::Damaged`]: it was not written for nothing.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub fn read(dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(dir.join(NOTE)) {
            Ok(raw) => Ok(Some(Self::parse(&String::from_utf8_lossy(&raw)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes it in `dir`, durably. A note that says that files are damaged is not replaced by one
    /// that says less.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        if self.kind == QuarantineKind::Differs && Self::read(dir)?.is_some() {
            return Ok(());
        }
        replace_file(&dir.join(NOTE), self.to_string().as_bytes())
    }

    /// Whether there is a note in `dir`, or it can't be told.
    pub(crate) fn is_set(dir: &Path) -> bool {
        !matches!(dir.join(NOTE).try_exists(), Ok(false))
    }

    fn parse(text: &str) -> Self {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let kind = match first.split_once(' ') {
            None if first == "differs" => QuarantineKind::Differs,
            Some(("rebuilding", into)) if is_evidence(into) => {
                QuarantineKind::Rebuilding(into.to_owned())
            }
            _ => QuarantineKind::Damaged,
        };
        Self {
            kind,
            why: rest.trim().to_owned(),
        }
    }
}

impl std::fmt::Display for Quarantine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            QuarantineKind::Damaged => writeln!(f, "damaged")?,
            QuarantineKind::Differs => writeln!(f, "differs")?,
            QuarantineKind::Rebuilding(into) => writeln!(f, "rebuilding {into}")?,
        }
        writeln!(f, "{}", self.why)
    }
}

/// Takes everything that makes up a node out of the data folder `dir`, so that it starts as a new
/// one: moved to a folder of evidence in `dir`, never deleted. Nobody may have the folder open.
/// Returns that folder. A process that ends half-way has lost nothing: the next start goes on.
///
/// # Errors
///
/// [`OpenError`]: it is in use, it holds no node, or the file system refused something.
pub fn rebuild(dir: &Path) -> Result<PathBuf, OpenError> {
    let failed = |source| OpenError::Io {
        what: "can't clear the data folder",
        dir: dir.to_owned(),
        source,
    };
    let has = |name: &str| dir.join(name).exists();
    if !has(NOTE) && !CONTENT.iter().any(|name| has(name)) {
        return Err(OpenError::NoNode {
            dir: dir.to_owned(),
        });
    }
    let _lock = folder::lock(dir)?;
    let was = Quarantine::read(dir).map_err(failed)?;
    let note = match was {
        Some(
            note @ Quarantine {
                kind: QuarantineKind::Rebuilding(_),
                ..
            },
        ) => note,
        Some(was) => rebuilding(dir, was.why),
        None => rebuilding(dir, "rebuilt by hand".to_owned()),
    };
    note.write(dir).map_err(failed)?;
    finish(dir, &note).map_err(failed)
}

/// Notes that the folder is to be rebuilt as [`rebuild`] does it, before it is opened again: for a
/// process that has it open. Returns where its content will be.
///
/// # Errors
///
/// What the disk said.
pub fn rebuild_at_next_start(dir: &Path, why: &str) -> io::Result<PathBuf> {
    let note = rebuilding(dir, why.to_owned());
    note.write(dir)?;
    Ok(match &note.kind {
        QuarantineKind::Rebuilding(into) => dir.join(EVIDENCE).join(into),
        QuarantineKind::Damaged | QuarantineKind::Differs => dir.join(EVIDENCE),
    })
}

/// The note of a rebuilding that begins now, into a folder that is not there yet.
fn rebuilding(dir: &Path, why: String) -> Quarantine {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |since| since.as_secs());
    let free = |name: &String| !dir.join(EVIDENCE).join(name).exists();
    let into = (0..)
        .map(|count| match count {
            0 => seconds.to_string(),
            count => format!("{seconds}-{count}"),
        })
        .find(free)
        .unwrap_or_default();
    Quarantine {
        kind: QuarantineKind::Rebuilding(into),
        why,
    }
}

/// Whether a node was ever taken out of this folder and its evidence is still there, or one is to
/// be.
pub fn has_evidence(dir: &Path) -> bool {
    dir.join(EVIDENCE).exists() || is_being_rebuilt(dir)
}

/// Whether the next start clears the folder: a rebuilding was noted, or was interrupted.
pub fn is_being_rebuilt(dir: &Path) -> bool {
    let note = Quarantine::read(dir).ok().flatten();
    note.is_some_and(|note| matches!(note.kind, QuarantineKind::Rebuilding(_)))
}

/// Goes on with a rebuilding that was noted. The note goes last.
pub(crate) fn finish(dir: &Path, note: &Quarantine) -> io::Result<PathBuf> {
    let QuarantineKind::Rebuilding(into) = &note.kind else {
        return Err(io::Error::other("nothing is being rebuilt"));
    };
    let evidence = dir.join(EVIDENCE).join(into);
    fs::create_dir_all(&evidence)?;
    for name in CONTENT {
        match fs::rename(dir.join(name), evidence.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    sync_dir(&evidence)?;
    sync_dir(&dir.join(EVIDENCE))?;
    fs::rename(dir.join(NOTE), evidence.join(NOTE))?;
    sync_dir(&evidence)?;
    sync_dir(dir)?;
    Ok(evidence)
}

/// A folder's name as [`rebuild`] draws it: digits, and a count.
fn is_evidence(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_a_spoilt_one_means_the_worst() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Quarantine::read(dir.path()).unwrap(), None);
        let differs = Quarantine::differs("the state differs at 7");
        differs.write(dir.path()).unwrap();
        assert_eq!(Quarantine::read(dir.path()).unwrap(), Some(differs.clone()));
        let damaged = Quarantine::damaged("a block is bad");
        damaged.write(dir.path()).unwrap();
        differs.write(dir.path()).unwrap();
        assert_eq!(
            Quarantine::read(dir.path()).unwrap(),
            Some(damaged),
            "the worse one stays"
        );
        for spoilt in ["", "differt\nx\n", "rebuilding ../..\n", "rebuilding \n"] {
            fs::write(dir.path().join(NOTE), spoilt).unwrap();
            let read = Quarantine::read(dir.path()).unwrap().unwrap();
            assert_eq!(read.kind, QuarantineKind::Damaged, "{spoilt:?}");
        }
    }

    #[test]
    fn a_folder_is_cleared_into_evidence_even_if_the_process_ends_half_way() {
        let dir = tempfile::tempdir().unwrap();
        let here = |name: &str| dir.path().join(name);
        assert!(matches!(rebuild(dir.path()), Err(OpenError::NoNode { .. })));
        fs::write(here("FORMAT"), "trellis 1\n").unwrap();
        for name in ["log", "state"] {
            fs::create_dir(here(name)).unwrap();
            fs::write(here(name).join("x"), name).unwrap();
        }
        Quarantine::damaged("a block is bad")
            .write(dir.path())
            .unwrap();

        // It ended behind the first step.
        let note = Quarantine {
            kind: QuarantineKind::Rebuilding("17".into()),
            why: "a block is bad".into(),
        };
        note.write(dir.path()).unwrap();
        fs::create_dir_all(here("evidence/17")).unwrap();
        fs::rename(here("FORMAT"), here("evidence/17/FORMAT")).unwrap();

        assert_eq!(rebuild(dir.path()).unwrap(), here("evidence/17"));
        assert!(!here("log").exists() && !here(NOTE).exists());
        assert_eq!(
            fs::read_to_string(here("evidence/17/state/x")).unwrap(),
            "state"
        );
        assert!(here("evidence/17/quarantine").exists());
        assert!(has_evidence(dir.path()));
        assert!(matches!(rebuild(dir.path()), Err(OpenError::NoNode { .. })));
    }
}
