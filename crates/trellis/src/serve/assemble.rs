//! Puts a node together and keeps it until it ends.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use prometheus_client::registry::Registry;
use tokio::{sync::watch, time::timeout};
use trellis_beanstalk::Door;
use trellis_consensus::ConsensusSettings;
use trellis_http::{Actions, AdminPort, View};
use trellis_node::{
    BootError, BootParts, Node, NodeSettings, Reads, boot,
    membership::{DiskMark, MemberSettings, Members, NodeStop, Seed},
};
use trellis_store::{Opened, Store, StoreOptions};

use super::{
    PidFile,
    signals::{Signals, Told},
    storage::{self, StoredIdentity, Volume},
};
use crate::{
    exit::{Ended, Exit},
    gather::Gather,
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
    let drainer = Arc::new(Drainer {
        slot: Arc::clone(&slot),
        limit: settings.drain_timeout,
    });
    // The registry is whole only when storage is open, and probes are answered before.
    let gather = Arc::new(Gather::new(Arc::clone(&slot)));
    let registry = Arc::new(OnceLock::new());
    let view = View {
        members: Arc::clone(&members),
        actions: drainer.clone(),
        registry: Arc::clone(&registry),
        figures: Arc::new(move || gather.figures()),
        runtime: tokio::runtime::Handle::current(),
    };
    admin
        .start(view)
        .map_err(|error| Ended::new(Exit::System, error.to_string()))?;

    let opening = tokio::task::spawn_blocking({
        let folder = settings.data_dir.clone();
        move || Store::open(&folder, StoreOptions::default())
    });
    // A log of many GiB takes a while to read; nothing is lost by stopping meanwhile.
    let opened = tokio::select! {
        opened = opening => opened.map_err(|error| Ended::new(Exit::Defect, error.to_string()))?,
        () = told_to_stop(&mut signals) => return Ok(()),
    };
    let Opened {
        identity: _,
        log,
        state,
        meta,
        quarantined: _,
        lock,
    } = opened.map_err(storage::refused)?;
    let pid_file = PidFile::write(&settings)?;
    let mut metrics = Registry::with_prefix("trellis");
    log.metrics().register(&mut metrics);
    state.metrics().register(&mut metrics);

    let volume = Volume {
        folder: settings.data_dir.clone(),
        log: log.clone(),
        state: Arc::clone(&state),
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
                    tracing::warn!("stopping at once");
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

/// Makes the node ready to be stopped, within a bound.
struct Drainer {
    slot: Arc<OnceLock<Node>>,
    limit: Duration,
}

impl Drainer {
    async fn run(&self) {
        let Some(node) = self.slot.get() else { return };
        if timeout(self.limit, node.members().drain()).await.is_err() {
            tracing::warn!(limit = ?self.limit, "draining takes too long");
        }
    }
}

impl Actions for Drainer {
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let drainer = Self {
            slot: Arc::clone(&self.slot),
            limit: self.limit,
        };
        Box::pin(async move { drainer.run().await })
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
