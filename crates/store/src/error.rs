use std::io;
use std::path::PathBuf;

use trellis_rpc::ClusterId;

/// Why a data folder can't be used. Each says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "the data folder {} is in use{}; stop that process first, or give this node a folder of its own",
        dir.display(),
        match pid { Some(pid) => format!(" by process {pid}"), None => String::new() }
    )]
    InUse {
        /// Which folder.
        dir: PathBuf,
        /// What its `pid` file says.
        pid: Option<String>,
    },

    /// A later Trellis wrote it.
    #[error(
        "the data folder {} has format {found}, this binary knows {known} only; start the newer Trellis that wrote it",
        dir.display()
    )]
    NewerFormat {
        /// Which folder.
        dir: PathBuf,
        /// What its FORMAT file says.
        found: u32,
        /// What this binary can read.
        known: u32,
    },

    /// An earlier Trellis wrote it, and nothing of this one reads it.
    #[error(
        "the data folder {} has format {found}, this binary knows {known} only; start the older Trellis that wrote it, or give this node an empty folder: it joins anew and gets everything from the others",
        dir.display()
    )]
    OlderFormat {
        /// Which folder.
        dir: PathBuf,
        /// What its FORMAT file says.
        found: u32,
        /// What this binary reads.
        known: u32,
    },

    /// There is something, but not ours.
    #[error(
        "the data folder {} has data but no valid FORMAT file, so it is not a Trellis folder (or a damaged one); give this node an empty folder",
        dir.display()
    )]
    NoFormat {
        /// Which folder.
        dir: PathBuf,
    },

    /// There is something of somebody else's, and nothing of ours.
    #[error(
        "the data folder {} holds {found}{}; nothing was changed: give this node an empty folder, or the one it had",
        dir.display(),
        if *is_node { ", which is a node's own data folder (is it meant to be that one?)" } else { ", which is not Trellis'" }
    )]
    NotOurs {
        /// Which folder.
        dir: PathBuf,
        /// What is in it.
        found: String,
        /// Whether that is a data folder.
        is_node: bool,
    },

    /// The log can't be trusted.
    #[error(
        "the log in {} is damaged ({detail}); nothing was changed",
        dir.display()
    )]
    LogDamaged {
        /// Which folder.
        dir: PathBuf,
        /// What was found.
        detail: String,
    },

    /// The state can't be trusted.
    #[error(
        "the state in {} is damaged ({detail}); nothing was changed",
        dir.display()
    )]
    StateDamaged {
        /// Which folder.
        dir: PathBuf,
        /// What was found.
        detail: String,
    },

    /// A note says that the node is out.
    #[error(
        "the data folder {} is quarantined: {why}",
        dir.display()
    )]
    Quarantined {
        /// Which folder.
        dir: PathBuf,
        /// What was found when it was quarantined.
        why: String,
    },

    /// Nothing to rebuild.
    #[error("the data folder {} holds no node", dir.display())]
    NoNode {
        /// Which folder.
        dir: PathBuf,
    },

    /// The file system refused something.
    #[error("{what} {}", dir.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// In which folder.
        dir: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

/// Why an identity can't be changed as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A node binds once.
    #[error("this node is bound to cluster {bound} and refuses cluster {asked}")]
    OtherCluster {
        /// The cluster it belongs to.
        bound: ClusterId,
        /// The one it was asked to join.
        asked: ClusterId,
    },

    /// Only an unformed node may be unbound.
    #[error(
        "this node has log entries, so it stays bound to its cluster; give it an empty data folder to start anew"
    )]
    HasLog,

    /// It could not be written; the process is about to end.
    #[error("the identity could not be written")]
    Io(#[from] io::Error),
}
