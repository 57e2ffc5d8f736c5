//! Puts a node together and keeps it until it ends.

use std::{
    future::Future,
    path::Path,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use prometheus_client::registry::Registry;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};
use trellis_beanstalk::Door;
use trellis_consensus::ConsensusSettings;
use trellis_http::{Actions, AdminPort, View};
use trellis_node::{
    BootError, BootParts, Node, NodeSettings, Reads, boot,
    membership::{DiskMark, MemberSettings, Members, NodeStop, Seed},
};
use trellis_store::{
    OpenError, Opened, Quarantine, QuarantineKind, Store, StoreOptions, has_evidence, is_alone,
    is_being_rebuilt, rebuild, rebuild_at_next_start,
};

use super::{
    PidFile, leave,
    signals::{Signals, Told},
    storage::{self, StoredIdentity, Volume},
};
use crate::{
    exit::{Ended, Exit},
    gather::{self, Gather},
    settings::Settings,
};

/// Opens storage, starts the node, lets clients in, and waits for the end.
pub(super) async fn run(
    settings: Arc<Settings>,
    door: Door,
    admin: AdminPort,
) -> Result<(), Ended> {
    let mut signals = Signals::new()?;
    let slot: Arc<OnceLock<Node>> = Arc::default();
    let members: Arc<OnceLock<Members>> = Arc::default();
    let (out, is_out) = watch::channel(None);
    let drainer = Arc::new(Drainer {
        slot: Arc::clone(&slot),
        limit: settings.drain_timeout,
        settings: Arc::clone(&settings),
        is_out: is_out.clone(),
        rebuilding: Arc::default(),
    });
    // The registry is whole only when storage is open, and probes are answered before.
    let gather = Arc::new(Gather::new(Arc::clone(&slot)));
    let registry = Arc::new(OnceLock::new());
    let figures = {
        let (is_out, name) = (is_out.clone(), settings.name.clone());
        move || {
            let figures = gather.figures();
            figures.or_else(|| Some(gather::without_node(&name, is_out.borrow().is_some())))
        }
    };
    let view = View {
        name: settings.name.clone(),
        members: Arc::clone(&members),
        quarantined: is_out,
        actions: drainer.clone(),
        registry: Arc::clone(&registry),
        figures: Arc::new(figures),
        runtime: tokio::runtime::Handle::current(),
    };
    admin
        .start(view)
        .map_err(|error| Ended::new(Exit::System, error.to_string()))?;

    refuse_to_stay_alone(&settings, is_to_be_new(&settings.data_dir))?;
    let Some(opened) = open(&settings, &mut signals, &out).await? else {
        return Ok(());
    };
    // However the folder came to be empty, and however far an earlier start has come with it.
    let is_new = opened.log.last_index().is_none() && opened.state.durable_index().is_none();
    refuse_to_stay_alone(&settings, is_new)?;
    let Opened {
        identity: _,
        log,
        state,
        meta,
        quarantined,
        lock,
    } = opened;
    let pid_file = PidFile::write(&settings)?;
    let mut metrics = Registry::with_prefix("trellis");
    log.metrics().register(&mut metrics);
    state.metrics().register(&mut metrics);

    let volume = Volume {
        folder: settings.data_dir.clone(),
        log: log.clone(),
        state: Arc::clone(&state),
        quarantined,
    };
    let booting = boot(BootParts {
        identity: Arc::new(StoredIdentity(meta)),
        log,
        state,
        disk: Arc::new(volume),
        settings: node_settings(&settings),
        consensus: consensus_settings(&settings),
        members: member_settings(&settings),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    });
    let node = tokio::select! {
        node = booting => node.map_err(refused)?,
        () = told_to_stop(&mut signals) => return Ok(()),
    };
    node.core().metrics().register(&mut metrics);
    // Set once, here.
    let _ = registry.set(metrics);
    let _ = slot.set(node.clone());
    let _ = members.set(node.members().clone());
    tokio::spawn(door.run(node.clone()));

    let result = keep(&node, &drainer, &mut signals).await;
    drop((pid_file, lock));
    result
}

/// How often a process without a node looks whether its folder was rebuilt.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long a rebuilding may take that has begun: some names are changed and synced.
const REBUILDING_MAX: Duration = Duration::from_secs(60);

/// Opens the data folder; `None` if the process was told to stop meanwhile.
///
/// A quarantined folder is not opened. The process stays, so that probes and people can ask it
/// why, and goes on when the folder is rebuilt.
async fn open(
    settings: &Settings,
    signals: &mut Signals,
    out: &watch::Sender<Option<String>>,
) -> Result<Option<Opened>, Ended> {
    let mut rebuilding = None;
    loop {
        let opening = tokio::task::spawn_blocking({
            let folder = settings.data_dir.clone();
            let options = StoreOptions {
                damaged: Arc::new(leave::damaged),
                ..StoreOptions::default()
            };
            move || Store::open(&folder, options)
        });
        // A log of many GiB takes a while to read; nothing is lost by stopping meanwhile.
        let opened = tokio::select! {
            opened = opening => opened.map_err(|error| Ended::new(Exit::Defect, error.to_string()))?,
            () = told_to_stop(signals) => return Ok(None),
        };
        match opened {
            Ok(opened) => {
                out.send_replace(None);
                return Ok(Some(opened));
            }
            // Whoever rebuilds the folder, this process or a command, is at it and is to be waited
            // for: an end now would take its answer along.
            Err(OpenError::InUse { .. })
                if rebuilding.is_some_and(|since: Instant| since.elapsed() < REBUILDING_MAX) =>
            {
                tokio::select! {
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                    () = told_to_stop(signals) => return Ok(None),
                }
            }
            Err(OpenError::Quarantined { why, .. }) => {
                tracing::error!(
                    why,
                    "this node is quarantined and takes no part in anything; its data folder is \
                     kept as it is. `trellis rebuild` moves it aside and gets everything from the \
                     others (docs/errors/quarantined.md)"
                );
                let _pid_file = PidFile::write(settings)?;
                out.send_replace(Some(why));
                tokio::select! {
                    () = rebuilt(&settings.data_dir) => {}
                    () = told_to_stop(signals) => return Ok(None),
                }
                rebuilding = Some(Instant::now());
                refuse_to_stay_alone(settings, is_to_be_new(&settings.data_dir))?;
            }
            Err(refused) => return Err(storage::refused(refused)),
        }
    }
}

/// Resolves when the folder is rebuilt, or begins to be.
async fn rebuilt(folder: &Path) {
    let is_damaged = || match Quarantine::read(folder) {
        Ok(note) => note.is_some_and(|note| note.kind == QuarantineKind::Damaged),
        Err(_) => true,
    };
    while is_damaged() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// A folder that was rebuilt belongs to a cluster. A node that knows nobody of it would form one
/// of its own, without its jobs.
fn refuse_to_stay_alone(settings: &Settings, is_new: bool) -> Result<(), Ended> {
    let folder = &settings.data_dir;
    if is_new && has_evidence(folder) && !names_others(settings) {
        return Err(Ended::new(
            Exit::Config,
            format!(
                "{ALONE} (what it held is in {}, or will be; to begin anew without it, give this \
                 node an empty folder)",
                folder.join("evidence").display()
            ),
        ));
    }
    Ok(())
}

/// Whether opening the folder would find nothing in it, a rebuilding that has begun included.
fn is_to_be_new(folder: &Path) -> bool {
    !folder.join("log").exists() || is_being_rebuilt(folder)
}

const ALONE: &str = "configuration: initial_members and join name no other node; allowed is a list \
                     with the members of the cluster that this rebuilt node is to come back to";

/// Whether the node would find its cluster with an empty folder.
fn names_others(settings: &Settings) -> bool {
    let others = settings
        .initial_members
        .iter()
        .any(|(name, _)| *name != settings.name);
    others || !settings.join.is_empty()
}

/// Waits for the end of a node that runs.
async fn keep(node: &Node, drainer: &Arc<Drainer>, signals: &mut Signals) -> Result<(), Ended> {
    let (drained, mut is_drained) = watch::channel(false);
    let mut draining = false;
    loop {
        tokio::select! {
            told = signals.next() => match told {
                Told::RefusePuts => {
                    tracing::info!("puts of this node's clients are refused from now on");
                    node.drain_puts(true);
                }
                Told::Stop if draining => {
                    tracing::info!("told a second time: stopping at once");
                    return Ok(());
                }
                Told::Stop => {
                    tracing::info!("stopping in good order; a second signal stops at once");
                    draining = true;
                    let (drainer, drained) = (Arc::clone(drainer), drained.clone());
                    tokio::spawn(async move {
                        drainer.run().await;
                        drained.send_replace(true);
                    });
                }
            },
            stop = node.members().stopped() => return Err(stopped(&stop)),
            () = drainer.rebuilding.notified() => {
                // Whoever asked for it is to hear of it first.
                tokio::time::sleep(ANSWER_WITHIN).await;
                node.members().stop().await;
                let why = "rebuilding: start this node again, and it joins as a new member";
                return Err(Ended::new(Exit::Temporary, why));
            }
            _ = is_drained.wait_for(|drained| *drained) => {
                node.members().stop().await;
                return Ok(());
            }
        }
    }
}

/// Resolves at the first SIGTERM or SIGINT.
async fn told_to_stop(signals: &mut Signals) {
    while signals.next().await != Told::Stop {}
}

/// Between noting that the folder is to be rebuilt and the end of the process.
const ANSWER_WITHIN: Duration = Duration::from_millis(300);

/// Makes the node ready to be stopped, within a bound, or to be rebuilt.
#[derive(Clone)]
struct Drainer {
    slot: Arc<OnceLock<Node>>,
    limit: Duration,
    settings: Arc<Settings>,
    /// Why there is no node.
    is_out: watch::Receiver<Option<String>>,
    rebuilding: Arc<Notify>,
}

impl Drainer {
    async fn run(&self) {
        let Some(node) = self.slot.get() else { return };
        if timeout(self.limit, node.members().drain()).await.is_err() {
            tracing::warn!(limit = ?self.limit, "draining takes too long");
        }
    }

    async fn clear(&self) -> Result<String, String> {
        if !names_others(&self.settings) {
            return Err(ALONE.to_owned());
        }
        let folder = self.settings.data_dir.clone();
        if is_alone(&folder) {
            return Err(format!(
                "this node is the only voter of its cluster: nobody else has its jobs; to go on \
                 without them, stop it and run `trellis rebuild --force --data-dir {}`",
                folder.display()
            ));
        }
        if self.is_out.borrow().is_some() {
            let moved = tokio::task::spawn_blocking(move || rebuild(&folder)).await;
            let evidence = moved
                .map_err(|error| error.to_string())?
                .map_err(|error| storage::refused(error).why)?;
            return Ok(format!(
                "what it held is in {}; this node joins again as a new member",
                evidence.display()
            ));
        }
        let members = self.slot.get().map(|node| node.members().status());
        let Some(why) = members.and_then(|status| status.quarantined) else {
            return Err(format!(
                "this node is not quarantined; to give it an empty folder all the same, stop it and \
                 run `trellis rebuild --data-dir {}`",
                folder.display()
            ));
        };
        let noted = tokio::task::spawn_blocking(move || rebuild_at_next_start(&folder, &why)).await;
        let evidence = noted
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        self.rebuilding.notify_one();
        Ok(format!(
            "this process ends now; started again (its supervisor does that) it moves what it held to {} \
             and joins as a new member",
            evidence.display()
        ))
    }
}

impl Actions for Drainer {
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let drainer = self.clone();
        Box::pin(async move { drainer.run().await })
    }

    fn rebuild(&self) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> {
        let drainer = self.clone();
        Box::pin(async move { drainer.clear().await })
    }
}

fn node_settings(settings: &Settings) -> NodeSettings {
    NodeSettings {
        node_lease: settings.node_lease,
        commit_timeout: settings.commit_timeout,
        reads: if settings.reads_local {
            Reads::Local
        } else {
            Reads::Linearizable
        },
        body_bytes_max: settings.body_bytes_max,
        connections_max: settings.connections_max,
        max_downtime: settings.downtime_max,
        election_timeout_max: settings.election.1,
        ..NodeSettings::default()
    }
}

fn consensus_settings(settings: &Settings) -> ConsensusSettings {
    let (election_min, election_max) = settings.election;
    ConsensusSettings {
        heartbeat: settings.heartbeat,
        election_min,
        election_max,
        ..ConsensusSettings::default()
    }
}

fn member_settings(settings: &Settings) -> MemberSettings {
    let seeds = settings.initial_members.iter();
    let (bytes, percent) = settings.disk_low;
    MemberSettings {
        name: settings.name.clone(),
        listen: settings.peer_listen,
        address: settings.peer_address.clone(),
        initial_members: seeds
            .map(|(name, address)| Seed {
                name: name.clone(),
                address: address.clone(),
            })
            .collect(),
        join: settings.join.clone(),
        disk_mark: DiskMark { bytes, percent },
    }
}

/// Why the node did not start, for person and supervisor.
fn refused(error: BootError) -> Ended {
    let exit = match &error {
        BootError::Members(_) | BootError::OtherName { .. } => Exit::Config,
        BootError::Listen { .. } => Exit::System,
        BootError::Identity(_) | BootError::Consensus(_) => Exit::Disk,
    };
    Ended::new(exit, error.to_string())
}

/// Why the node cannot go on, for person and supervisor.
fn stopped(stop: &NodeStop) -> Ended {
    let exit = match stop {
        NodeStop::Hello(_) | NodeStop::Level { .. } => Exit::Foreign,
        NodeStop::Unbound => Exit::Temporary,
        NodeStop::Failed(_) => Exit::Defect,
    };
    Ended::new(exit, stop.to_string())
}
