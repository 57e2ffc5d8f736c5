//! `trellis serve`: one node, from the first line of its configuration to its last goodbye.

mod assemble;
mod leave;
mod signals;
pub(crate) mod storage;

use std::{fs, io, net::TcpListener, num::NonZero, sync::Arc, thread};

use nix::unistd;
use trellis_beanstalk::{Door, DoorSettings, KeepAlive, Listen};
use trellis_http::AdminPort;

use crate::{
    args::ServeArgs,
    exit::{Ended, Exit},
    settings::{self, Settings},
    settings_of, telemetry,
};

/// Runs one node until it is told to stop, or has to.
///
/// # Errors
///
/// Every way in which a node does not start or does not go on; see [`Exit`].
pub(crate) fn run(args: &ServeArgs) -> Result<(), Ended> {
    if let Some(parent) = args.die_with_parent {
        die_with(parent)?;
    }
    let (_, mut settings) = settings_of(args)?;
    let tag = args.die_with_parent.map(|_| settings.name.clone());
    telemetry::start(&settings, tag);
    for line in args.unused_flags() {
        tracing::warn!("{line}");
    }
    leave::on_failure();
    settings.connections_max = within_descriptors(settings.connections_max);

    // Whatever can be refused is refused before anything is written.
    let door = Door::bind(door_settings(&settings))
        .map_err(|error| Ended::new(Exit::System, format!("{error} (listen)")))?;
    let in_use = |key: &str, address, error: io::Error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another process does".to_owned(),
            _ => error.to_string(),
        };
        let why = format!("cannot listen on {address}: {why} ({key})");
        Ended::new(Exit::System, why)
    };
    let admin = AdminPort::bind(settings.admin_listen)
        .map_err(|error| in_use("admin_listen", settings.admin_listen, error))?;
    // Taken for good when storage is open; here only so that a mistake is told in time.
    TcpListener::bind(settings.peer_listen)
        .map_err(|error| in_use("peer_listen", settings.peer_listen, error))?;
    if let Some(user) = &settings.user {
        become_user(user)?;
    }

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(workers(
            thread::available_parallelism().map_or(1, NonZero::get),
        ))
        .thread_name("trellis")
        .build()
        .map_err(|error| Ended::new(Exit::System, error.to_string()))?;
    let result = runtime.block_on(assemble::run(Arc::new(settings), door, admin));
    leave::within_bounds(match &result {
        Ok(()) => Exit::Done,
        Err(ended) => ended.exit,
    });
    // Tasks that are still there hold nothing that is not on disk.
    runtime.shutdown_background();
    if result.is_ok() {
        tracing::info!("stopped");
    }
    result
}

/// Threads that run tasks on a machine with `cores`: half as many. Log, state and RocksDB's own work
/// have threads beside them, and every hand-over from one worker to another costs more than most
/// tasks do; what may take long goes to other threads anyway.
fn workers(cores: usize) -> usize {
    cores.div_ceil(2)
}

/// Descriptors beside those of clients: files of storage, peers, listeners.
const DESCRIPTORS_BESIDE: usize = 1_024;

/// Raises the number of descriptors to what the system lets this process have, and returns how
/// many connections may be allowed with it: storage that is refused a descriptor is storage that
/// failed, so clients must not be able to use them up.
fn within_descriptors(connections_max: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let have = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let Some(have) = have.and_then(|have| usize::try_from(have).ok()) else {
        return connections_max;
    };
    let allowed = connections_for(have);
    if allowed < connections_max {
        tracing::info!(
            descriptors = have,
            connections_max = allowed,
            "fewer connections than configured: raise the limit of descriptors (ulimit -n)"
        );
    }
    allowed.min(connections_max)
}

/// Connections that leave enough of `descriptors` for everything else.
fn connections_for(descriptors: usize) -> usize {
    descriptors.saturating_sub(DESCRIPTORS_BESIDE.min(descriptors / 2))
}

/// Ends this process when its parent ends.
fn die_with(parent: i32) -> Result<(), Ended> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    let orphan = || Ended::new(Exit::System, "the process that started this node is gone");
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Ended::new(Exit::System, error.to_string()))?;
    // It may have ended before we asked to be told.
    match getppid() {
        Some(pid) if pid.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(orphan()),
    }
}

/// Gives up this user's rights for those of `name`, and of its groups.
fn become_user(name: &str) -> Result<(), Ended> {
    let failed =
        |why: String| Ended::new(Exit::System, format!("cannot become user {name}: {why}"));
    let user = unistd::User::from_name(name)
        .map_err(|error| failed(error.to_string()))?
        .ok_or_else(|| failed("there is no such user".to_owned()))?;
    if user.uid == unistd::geteuid() {
        return Ok(());
    }
    let c_name = std::ffi::CString::new(name).map_err(|error| failed(error.to_string()))?;
    unistd::initgroups(&c_name, user.gid)
        .and_then(|()| unistd::setgid(user.gid))
        .and_then(|()| unistd::setuid(user.uid))
        .map_err(|error| failed(error.to_string()))
}

fn door_settings(settings: &Settings) -> DoorSettings {
    let listen = settings.listen.iter().map(|listen| match listen {
        settings::Listen::Tcp(address) => Listen::Tcp(*address),
        settings::Listen::Unix(path) => Listen::Unix(path.clone()),
    });
    let (idle, interval, probes) = settings.keepalive;
    DoorSettings {
        body_bytes_max: settings.body_bytes_max,
        keep_alive: KeepAlive {
            idle,
            interval,
            probes,
            user_timeout: settings.user_timeout,
        },
        ..DoorSettings::on(listen.collect())
    }
}

/// The file that says which process serves a data folder, for as long as it does.
struct PidFile(std::path::PathBuf);

impl PidFile {
    fn write(settings: &Settings) -> Result<Self, Ended> {
        let path = settings.data_dir.join("pid");
        fs::write(&path, format!("{}\n", std::process::id())).map_err(|error| {
            Ended::new(
                Exit::Folder,
                format!("cannot write {}: {error}", path.display()),
            )
        })?;
        Ok(Self(path))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // A file that stays names a process that is gone; nobody trusts it alone.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_cores_run_tasks_and_one_always_does() {
        assert_eq!([1, 2, 3, 4, 64].map(workers), [1, 1, 2, 2, 32]);
    }

    #[test]
    fn clients_leave_descriptors_for_storage_and_peers() {
        assert_eq!(connections_for(100_000), 98_976);
        assert_eq!(connections_for(1_024), 512);
        assert_eq!(connections_for(0), 0);
    }
}
