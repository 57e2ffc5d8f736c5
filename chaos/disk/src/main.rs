//! `trellis-chaos-disk`: mounts a disk that can be broken, gives it orders, and tells stories of nodes on such disks.

use std::{
    io::{Read, Write},
    os::unix::net::UnixListener,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicU64},
};

use anyhow::Context;
use clap::{Parser, Subcommand};
use fuser::{Config, MountOption, SessionACL};
use parking_lot::Mutex;
use rustix::mount::{UnmountFlags, unmount};
use trellis_chaos_disk::{
    control,
    disk::{Disk, NameRule},
    fault::Rules,
    layer::{Counts, Layer},
    mounted::Mounted,
    story,
};

#[derive(Parser)]
#[command(version, about)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Mount an empty disk; it ends with its standard input.
    Mount {
        /// An empty folder.
        at: PathBuf,
        /// Where durable bytes lie; an empty folder on the disk beneath.
        #[arg(long)]
        objects: PathBuf,
        /// Where orders are taken.
        #[arg(long)]
        socket: PathBuf,
        /// Each sync also waits for the disk beneath.
        #[arg(long)]
        sync_beneath: bool,
    },
    /// Tell stories of a cluster of three on such disks; each ends with one line of JSON.
    Story(story::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    let holds = match Args::parse().what {
        What::Mount {
            at,
            objects,
            socket,
            sync_beneath,
        } => mount(at, objects, socket, sync_beneath).map(|()| true)?,
        What::Story(args) => story::run(&args)?,
    };
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn mount(at: PathBuf, objects: PathBuf, socket: PathBuf, sync_beneath: bool) -> anyhow::Result<()> {
    // Each file has its object open.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised)?;

    let layer = Arc::new(Layer {
        disk: Mutex::new(Disk::new(&objects, NameRule::Journal)?),
        rules: Mutex::new(Rules::default()),
        counts: Counts::default(),
        syncs_beneath: sync_beneath,
        cuts: AtomicU64::new(0),
    });
    let listener = UnixListener::bind(&socket)
        .with_context(|| format!("can't take orders at {}", socket.display()))?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("trellis-chaos-disk".to_owned()),
        MountOption::NoAtime,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::DefaultPermissions,
    ];
    config.acl = SessionACL::All;
    // A read must not wait for a sync.
    config.n_threads = Some(4);
    let session = fuser::spawn_mount(Mounted(layer.clone()), &at, &config)
        .with_context(|| format!("can't mount at {}", at.display()))?;
    let leave = {
        let at = at.clone();
        move || {
            // Somebody may still have something open in there.
            let _ = unmount(&at, UnmountFlags::DETACH);
            std::process::exit(0);
        }
    };
    control::serve(listener, layer, leave.clone())?;
    println!("mounted");
    std::io::stdout().flush()?;

    // Until whoever started it closes the pipe or dies.
    let mut nothing = [0; 64];
    while matches!(std::io::stdin().read(&mut nothing), Ok(count) if count > 0) {}
    drop(session.notifier());
    leave();
    Ok(())
}
