//! What the node asks of storage, answered by the store.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use trellis_consensus::Membership;
use trellis_node::membership::{Disk, DiskSpace, Identity};
use trellis_rpc::ClusterId;
use trellis_store::{
    IdentityError, IdentityStore, LogStore, OpenError, Quarantine, RollEntry, StateMirror,
    free_space, note_members,
};
use trellis_types::{NodeId, Run};

use crate::exit::{Ended, Exit};

/// Who this node is, on its disk.
pub(super) struct StoredIdentity(pub(super) IdentityStore);

impl Identity for StoredIdentity {
    fn node(&self) -> NodeId {
        self.0.get().node
    }

    fn name(&self) -> String {
        self.0.get().name
    }

    fn cluster(&self) -> Option<ClusterId> {
        self.0.get().cluster
    }

    fn run(&self) -> Run {
        self.0.get().run
    }

    fn next_run(&self) -> io::Result<Run> {
        self.0.next_run()
    }

    fn bind(&self, cluster: ClusterId) -> io::Result<()> {
        self.0.bind(cluster).map_err(to_io)
    }

    fn unbind(&self) -> io::Result<()> {
        self.0.unbind().map_err(to_io)
    }

    fn set_name(&self, name: &str) -> io::Result<()> {
        self.0.set_name(name)
    }
}

fn to_io(error: IdentityError) -> io::Error {
    match error {
        IdentityError::Io(error) => error,
        refused => io::Error::other(refused.to_string()),
    }
}

/// The volume and what lies on it.
pub(super) struct Volume {
    pub(super) folder: PathBuf,
    pub(super) log: LogStore,
    pub(super) state: Arc<StateMirror>,
    /// What a note in the folder said before this start.
    pub(super) quarantined: Option<String>,
}

impl Disk for Volume {
    fn space(&self) -> io::Result<DiskSpace> {
        let space = free_space(&self.folder)?;
        Ok(DiskSpace {
            free: space.free,
            total: space.total,
        })
    }

    fn log_bytes_after(&self, index: Option<u64>) -> u64 {
        self.log.bytes_after(index)
    }

    fn log_index_keeping(&self, bytes: u64) -> Option<u64> {
        self.log.index_keeping(bytes)
    }

    fn state_bytes(&self) -> u64 {
        self.state.bytes()
    }

    fn oldest_write(&self) -> Option<Duration> {
        self.log.write_outstanding()
    }

    fn compact(&self) -> io::Result<()> {
        self.state.compact();
        self.log.compact()
    }

    fn quarantine(&self, why: &str) -> io::Result<()> {
        Quarantine::differs(why).write(&self.folder)
    }

    fn quarantined(&self) -> Option<String> {
        self.quarantined.clone()
    }

    fn note_members(&self, membership: &Membership, own: NodeId) -> io::Result<()> {
        let members = membership.members.values().map(|member| RollEntry {
            name: member.name.clone(),
            address: member.address.clone(),
            voter: membership.is_voter(member.id),
            here: member.id == own,
        });
        note_members(&self.folder, &members.collect::<Vec<_>>())
    }
}

/// Why the data folder can't be used, for person and supervisor.
pub(crate) fn refused(error: OpenError) -> Ended {
    let exit = match &error {
        OpenError::InUse { .. } | OpenError::Io { .. } => Exit::Folder,
        OpenError::NewerFormat { .. }
        | OpenError::OlderFormat { .. }
        | OpenError::NoFormat { .. }
        | OpenError::NotOurs { .. } => Exit::Foreign,
        OpenError::NoNode { .. } => Exit::No,
        OpenError::LogDamaged { .. } | OpenError::StateDamaged { .. } => Exit::Damaged,
        _ => Exit::Disk,
    };
    let mut why = error.to_string();
    if exit == Exit::Damaged {
        why.push_str(
            "; this node is quarantined: `trellis rebuild` moves the folder's content aside and \
             gets everything from the others (docs/errors/quarantined.md)",
        );
    }
    if let Some(source) = std::error::Error::source(&error) {
        why = format!("{why}: {source}");
    }
    if let OpenError::Io { source, .. } = &error
        && source.kind() == io::ErrorKind::PermissionDenied
    {
        let user = nix::unistd::geteuid();
        why.push_str(&format!(
            "; this process runs as user {}, to whom the folder and all in it must belong",
            match nix::unistd::User::from_uid(user) {
                Ok(Some(known)) => known.name,
                _ => user.to_string(),
            }
        ));
    }
    Ended::new(exit, why)
}
