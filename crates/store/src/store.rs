use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::failure::Failure;
use crate::folder::{self, FolderLock};
use crate::gate::Gate;
use crate::identity::{IdentityStore, StoredIdentity};
use crate::log::{LogEngine, LogStore, Segments};
use crate::state::{Pointer, StateMirror};
use crate::{OpenError, Quarantine, QuarantineKind, StoreOptions, quarantine};

/// A node's data folder.
pub struct Store;

/// An open data folder. It is locked as long as this lives.
pub struct Opened {
    /// Who the node is.
    pub identity: StoredIdentity,
    /// The raft log.
    pub log: LogStore,
    /// The mirror of the machine.
    pub state: Arc<StateMirror>,
    /// Changes who the node is.
    pub meta: IdentityStore,
    /// Why the state must not be relied upon, if a note in the folder says so.
    pub quarantined: Option<String>,
    /// Keeps everybody else out. Dropped last of what is in here.
    pub lock: StoreLock,
}

/// Keeps other processes out of the data folder.
pub struct StoreLock {
    _lock: FolderLock,
}

impl Store {
    /// Opens the data folder `dir`, which is made if need be: locks it, checks its format, reads
    /// the log back (all of it, each entry's checksum), opens the state. Blocks for about a second
    /// per GiB of log. A rebuilding that was interrupted is brought to its end first.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: in use, of a newer format, quarantined because it was damaged before,
    /// damaged (then it is quarantined from now on), or refused by the file system. Nothing else
    /// was changed then.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<Opened, OpenError> {
        Self::open_with(dir, options, |engine| engine)
    }

    /// As [`Store::open`], with the log's engine wrapped: tests put faults between.
    pub(crate) fn open_with(
        dir: &Path,
        options: StoreOptions,
        wrap: impl FnOnce(Arc<dyn LogEngine>) -> Arc<dyn LogEngine>,
    ) -> Result<Opened, OpenError> {
        let lock = folder::lock_made(dir)?;
        let quarantined = look_for_quarantine(dir)?;
        let opened = Self::open_locked(dir, options, wrap, lock, quarantined);
        if let Err(OpenError::LogDamaged { detail: why, .. }) = &opened {
            note_damage(dir, format!("the raft log is damaged: {why}"));
        }
        if let Err(OpenError::StateDamaged { detail: why, .. }) = &opened {
            note_damage(dir, format!("the state is damaged: {why}"));
        }
        opened
    }

    fn open_locked(
        dir: &Path,
        options: StoreOptions,
        wrap: impl FnOnce(Arc<dyn LogEngine>) -> Arc<dyn LogEngine>,
        lock: FolderLock,
        quarantined: Option<String>,
    ) -> Result<Opened, OpenError> {
        folder::claim(dir)?;
        let failure = Failure::new(&options, Some(dir.to_owned()));
        let gate = Arc::new(Gate::new());

        let log_failed = |error| failed(dir, "can't open the log in", error, Part::Log);
        let engine = Segments::open(&dir.join("log"), &options.log).map_err(log_failed)?;
        let is_new = IdentityStore::is_new(&engine).map_err(log_failed)?;
        if is_new && dir.join("state/CURRENT").exists() {
            // The state is made after the first write of the log. An empty log beside it would be
            // a node that has forgotten its votes.
            return Err(OpenError::LogDamaged {
                dir: dir.to_owned(),
                detail: "it is empty although there is a state".to_owned(),
            });
        }
        let engine = wrap(Arc::new(engine));
        let log = LogStore::open(engine.clone(), options.log, failure.clone(), gate.clone())
            .map_err(log_failed)?;
        let meta = IdentityStore::open(engine, log.clone(), failure.clone(), log_failed)?;

        let state_failed = |error| failed(dir, "can't open the state in", error, Part::State);
        let state_folder = dir.join("state");
        let state = StateMirror::open(
            &state_folder,
            &dir.join("snapshots"),
            log.purged_index(),
            options.state,
            failure,
            gate,
        )
        .map_err(state_failed)?;
        let pointer = Pointer::read(&state_folder).map_err(state_failed)?;
        check_together(&log, &state, pointer).map_err(|detail| OpenError::LogDamaged {
            dir: dir.to_owned(),
            detail,
        })?;

        Ok(Opened {
            identity: meta.get(),
            log,
            state: Arc::new(state),
            meta,
            quarantined,
            lock: StoreLock { _lock: lock },
        })
    }
}

/// What a note in the folder says; `Some` if it may be opened all the same.
fn look_for_quarantine(dir: &Path) -> Result<Option<String>, OpenError> {
    let failed = |source| OpenError::Io {
        what: "can't read the quarantine's note in",
        dir: dir.to_owned(),
        source,
    };
    let Some(note) = Quarantine::read(dir).map_err(failed)? else {
        return Ok(None);
    };
    match note.kind {
        QuarantineKind::Damaged => Err(OpenError::Quarantined {
            dir: dir.to_owned(),
            why: note.why,
        }),
        QuarantineKind::Differs => Ok(Some(note.why)),
        QuarantineKind::Rebuilding(_) => {
            let evidence = quarantine::finish(dir, &note).map_err(failed)?;
            tracing::warn!(
                evidence = %evidence.display(),
                "this node is being rebuilt: what it held was moved aside, and it starts as a new one"
            );
            Ok(None)
        }
    }
}

/// So that the next start does not try its luck with it.
fn note_damage(dir: &Path, why: String) {
    if let Err(error) = Quarantine::damaged(why).write(dir) {
        // The next start finds the damage again.
        tracing::error!(%error, "the quarantine can't be noted");
    }
}

/// Which half of the folder something is wrong with.
enum Part {
    Log,
    State,
}

fn failed(dir: &Path, what: &'static str, error: io::Error, part: Part) -> OpenError {
    let dir = dir.to_owned();
    if error.kind() != io::ErrorKind::InvalidData {
        return OpenError::Io {
            what,
            dir,
            source: error,
        };
    }
    let detail = error.to_string();
    match part {
        Part::Log => OpenError::LogDamaged { dir, detail },
        Part::State => OpenError::StateDamaged { dir, detail },
    }
}

/// The state is never written beyond the log on disk, and the log is never purged beyond the
/// state. If that is not so something is lost that this node has acknowledged; to go on would be
/// to vote with a gap (faults D33, D37).
fn check_together(
    log: &LogStore,
    state: &StateMirror,
    pointer: Option<Pointer>,
) -> Result<(), String> {
    let (applied, last) = (state.durable_index(), log.last_index());
    let installed = pointer.and_then(|pointer| pointer.installed);
    if applied > last.max(installed) {
        return Err(format!(
            "it ends with entry {} although the state has seen entry {}",
            shown(last),
            shown(applied)
        ));
    }
    let purged = log.purged_index();
    if purged > applied {
        return Err(format!(
            "it begins behind entry {} although the state has only seen entry {}",
            shown(purged),
            shown(applied)
        ));
    }
    Ok(())
}

fn shown(index: Option<u64>) -> String {
    index.map_or("none".to_owned(), |index| index.to_string())
}
