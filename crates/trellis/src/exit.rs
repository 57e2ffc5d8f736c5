use std::process::ExitCode;

/// Why the process ended, as the number a supervisor sees.
///
/// The numbers are those of BSD's `sysexits.h` where one fits, so that they do not collide with
/// a shell's own (126 and above) or with a signal's. `docs/operations.md` lists the same table;
/// a number, once given, is never given another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done as asked; for `serve` and `local`: stopped by a signal, cleanly.
    Done = 0,
    /// The answer to a question is no: `health` found the node not ready, a member change was
    /// refused.
    No = 1,
    /// The command line makes no sense. Nothing was started.
    Usage = 64,
    /// What was read from the data folder is not what was written there. The folder is quarantined:
    /// the next start opens nothing of it and waits for `trellis rebuild`.
    Damaged = 65,
    /// The admin port that a command needed does not answer.
    Unreachable = 69,
    /// A defect of Trellis: something panicked. The data on disk is as the last sync left it.
    Defect = 70,
    /// The operating system refused something that is no disk: an address that is in use, a user
    /// that does not exist, too few descriptors.
    System = 71,
    /// The data folder cannot be created, or another process has it locked.
    Folder = 73,
    /// A write or a sync of the disk failed, or hung: the node stopped rather than promise what it
    /// cannot keep (fail-stop). Look at the disk before starting it again.
    Disk = 74,
    /// Not now: a start did not come about within its bound. Starting it again may help.
    Temporary = 75,
    /// The data folder is not Trellis' or has another format, its peers say that it is stale or
    /// removed, or the cluster's feature level is too new. The line before says what to do.
    Foreign = 76,
    /// The configuration has a mistake; one sentence names key, found and allowed.
    Config = 78,
}

impl Exit {
    /// The reason behind an exit code that another start with the same configuration will end
    /// with as well.
    pub(crate) fn hopeless(code: i32) -> Option<Self> {
        [
            Self::Usage,
            Self::System,
            Self::Folder,
            Self::Foreign,
            Self::Config,
        ]
        .into_iter()
        .find(|exit| *exit as i32 == code)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// What ended a command early: the sentence for the person, the number for the supervisor.
#[derive(Debug)]
pub(crate) struct Ended {
    /// For the supervisor.
    pub exit: Exit,
    /// For the person; one sentence.
    pub why: String,
}

impl Ended {
    /// Ends a command with `why` on standard error and `exit` as its code.
    pub(crate) fn new(exit: Exit, why: impl Into<String>) -> Self {
        Self {
            exit,
            why: why.into(),
        }
    }
}
