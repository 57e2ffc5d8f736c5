use std::{
    fs::{self, File},
    io,
    net::TcpListener,
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{
    args::LocalArgs,
    exit::{Ended, Exit},
    ports::Ports,
};

/// What cannot be changed of a local cluster once it is formed: its nodes know each other by
/// their ports. Kept beside the nodes' folders.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shape {
    base_port: u16,
    nodes: u16,
}

const FILE: &str = "local.toml";

/// The name of something in the folder that no local cluster puts there.
fn foreign(folder: &Path) -> io::Result<Option<String>> {
    let found = match fs::read_dir(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for item in found {
        let name = item?.file_name().to_string_lossy().into_owned();
        // Hidden ones come with mount points and home folders, as the nodes' own folders have it.
        let known = name.starts_with("node-") || name.starts_with('.') || name == "lost+found";
        if !known {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Looks whether all ports of a new cluster can be had.
fn free(args: &LocalArgs) -> Result<(), Ended> {
    let ports = (0..args.nodes).filter_map(|index| Ports::of(args.base_port, index));
    for port in ports.flat_map(|ports| [ports.clients, ports.peers, ports.admin]) {
        if let Err(error) = TcpListener::bind(("127.0.0.1", port)) {
            return Err(Ended::new(
                Exit::System,
                format!("cannot listen on 127.0.0.1:{port}: {error}; --base-port takes others"),
            ));
        }
    }
    Ok(())
}

/// Says that the cluster runs, for as long as it lives; the kernel lets go of it when the process
/// ends, however.
pub(super) struct Running(#[expect(dead_code, reason = "it is held, not looked at")] File);

/// Writes down the shape of a new cluster, or compares it with that of one that is there; and takes
/// care that nobody else runs it.
///
/// # Errors
///
/// As [`check`]; [`Exit::Folder`] if the cluster runs already.
pub(super) fn take(args: &LocalArgs) -> Result<Running, Ended> {
    check(args)?;
    let folder = args.data_dir.display();
    let unusable = |error: io::Error| {
        Ended::new(
            Exit::Folder,
            format!("cannot use the data folder {folder}: {error}"),
        )
    };
    let file = File::open(args.data_dir.join(FILE)).map_err(unusable)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Running(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Ended::new(
            Exit::Folder,
            format!(
                "the cluster in {folder} is running already; use it, stop it where it was started, or \
                 start another one with another --data-dir and --base-port"
            ),
        )),
        Err(error) => Err(unusable(error.into())),
    }
}

/// Writes down the shape of a new cluster, and compares it with that of one that is there.
///
/// # Errors
///
/// [`Exit::Config`] with one sentence if they differ, [`Exit::Folder`] if the folder can't be used,
/// [`Exit::Foreign`] if something else is in it,
/// [`Exit::System`] if a new cluster's ports are in use; then nothing is written.
fn check(args: &LocalArgs) -> Result<(), Ended> {
    let folder = &args.data_dir;
    let path = folder.join(FILE);
    let wanted = Shape {
        base_port: args.base_port,
        nodes: args.nodes,
    };
    let unusable = |error: &dyn std::fmt::Display| {
        Ended::new(
            Exit::Folder,
            format!("cannot use the data folder {}: {error}", folder.display()),
        )
    };
    let found: Shape = match fs::read_to_string(&path) {
        Ok(text) => toml::from_str(&text).map_err(|error| unusable(&error.message()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(name) = foreign(folder).map_err(|error| unusable(&error))? {
                return Err(Ended::new(
                    Exit::Foreign,
                    format!(
                        "{} holds {name:?} and no cluster of `trellis local`: name another folder with --data-dir, or an empty one",
                        folder.display()
                    ),
                ));
            }
            // What a first start can't have is not to be all that the next one is allowed.
            free(args)?;
            let text = toml::to_string(&wanted).map_err(|error| unusable(&error))?;
            fs::create_dir_all(folder).map_err(|error| unusable(&error))?;
            return fs::write(&path, text).map_err(|error| unusable(&error));
        }
        Err(error) => return Err(unusable(&error)),
    };
    let differs = |flag: &str, wanted: u16, found: u16| {
        let folder = folder.display();
        Ended::new(
            Exit::Config,
            format!(
                "configuration: {flag} is {wanted}; allowed is {found}, with which the cluster in {folder} was made, or another --data-dir"
            ),
        )
    };
    if wanted.base_port != found.base_port {
        return Err(differs("--base-port", wanted.base_port, found.base_port));
    }
    if wanted.nodes != found.nodes {
        return Err(differs("--nodes", wanted.nodes, found.nodes));
    }
    Ok(())
}
