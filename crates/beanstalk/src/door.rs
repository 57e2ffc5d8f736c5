use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use trellis_node::DoorState;
use trellis_types::limits;

use crate::{
    accept::{self, Seldom, Spare},
    backing::Backing,
    connection::{self, Connection},
    large::LargeBodies,
    ledger::Ledger,
    listener::{BindError, Bound, Listen},
    outbox::Outbox,
    socket::{Socket, Stream},
};

/// What an operator may change about the door.
#[derive(Clone, Debug)]
pub struct DoorSettings {
    /// Where clients connect; at least one.
    pub listen: Vec<Listen>,
    /// Longest job body in bytes.
    pub body_bytes_max: u32,
    /// How a vanished client is noticed.
    pub keep_alive: KeepAlive,
    /// Bytes of replies that may be in memory for slow readers, all of them together, before the
    /// connection whose client has taken nothing for longest is closed. Bodies that are on disk
    /// wait there until there is room.
    pub owed_bytes_max: usize,
    /// Whoever takes nothing for so long, and keeps replies in memory, is closed when others need
    /// the room to be fetched into.
    pub stall: Duration,
    /// Bytes of unfinished bodies, of all clients together, before the connection whose sender has
    /// stopped for longest is closed.
    pub arriving_bytes_max: usize,
    /// Bytes of large bodies that are read in at the same time; one is, however large.
    pub large_bodies_bytes_max: usize,
}

impl DoorSettings {
    /// The defaults for these addresses.
    pub fn on(listen: Vec<Listen>) -> Self {
        Self {
            listen,
            body_bytes_max: limits::BODY_BYTES_DEFAULT,
            keep_alive: KeepAlive::default(),
            owed_bytes_max: limits::OWED_BYTES_MAX,
            stall: STALL,
            arriving_bytes_max: limits::ARRIVING_BYTES_MAX,
            large_bodies_bytes_max: limits::LARGE_BODIES_BYTES_MAX,
        }
    }
}

/// How a vanished client is noticed (architecture, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// A silent socket is first probed after this long; whole seconds.
    pub idle: Duration,
    /// Between two probes; whole seconds.
    pub interval: Duration,
    /// So many unanswered probes end the connection.
    pub probes: u32,
    /// So long may bytes stay unacknowledged, or a client's window stay shut.
    pub user_timeout: Duration,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30),
            interval: Duration::from_secs(10),
            probes: 3,
            user_timeout: Duration::from_secs(30),
        }
    }
}

/// See [`DoorSettings::stall`]: a client that reads at all takes something every few seconds.
const STALL: Duration = Duration::from_secs(5);

/// Threads that may read owed bodies from disk at once, for all connections together.
const FETCHES: usize = 8;

/// How long to wait before an address that could not be had again is tried once more.
const BIND_AGAIN: Duration = Duration::from_secs(1);

/// What all connections share.
pub(crate) struct Shared {
    /// See [`DoorSettings::body_bytes_max`].
    pub body_bytes_max: u32,
    /// See [`DoorSettings::keep_alive`].
    pub keep_alive: KeepAlive,
    /// Replies that their clients do not read.
    pub owed: Arc<Ledger<Outbox>>,
    /// Bodies that are still arriving.
    pub arriving: Arc<Ledger<Outbox>>,
    /// Large ones of them.
    pub large: Arc<LargeBodies>,
    /// See [`FETCHES`].
    pub fetches: Arc<Semaphore>,
    /// Says that connections are refused, not too often.
    pub refusals: Seldom,
    /// Says that connections are closed for want of memory, not too often.
    pub evictions: Seldom,
    /// For when descriptors run out.
    pub spare: Spare,
}

impl Shared {
    fn new(settings: &DoorSettings) -> Self {
        Self {
            body_bytes_max: settings.body_bytes_max,
            keep_alive: settings.keep_alive,
            owed: Ledger::new(settings.owed_bytes_max, settings.stall),
            arriving: Ledger::new(settings.arriving_bytes_max, settings.stall),
            large: LargeBodies::new(settings.large_bodies_bytes_max),
            fetches: Arc::new(Semaphore::new(FETCHES)),
            refusals: Seldom::new("connections are refused"),
            evictions: Seldom::new("connections are closed"),
            spare: Spare::new(),
        }
    }
}

/// Serves connections that no kernel knows, as [`Door::run`] serves sockets: each that comes while
/// the node's doors are open until they close; one that comes while they are closed is dropped.
/// Returns when the node is gone or no more can come.
pub async fn serve_streams<B: Backing>(
    settings: DoorSettings,
    backing: B,
    mut incoming: mpsc::UnboundedReceiver<Arc<dyn Stream>>,
) {
    let shared = Arc::new(Shared::new(&settings));
    let mut doors = backing.doors();
    let mut closed = CancellationToken::new();
    loop {
        tokio::select! {
            biased;
            changed = doors.changed() => {
                // Also a change from one open origin to another closes: its sessions are over.
                closed.cancel();
                if changed.is_err() {
                    return;
                }
                closed = CancellationToken::new();
            }
            stream = incoming.recv() => {
                let Some(stream) = stream else { return };
                if !matches!(*doors.borrow(), DoorState::Open { .. }) {
                    continue;
                }
                let socket = Socket::Other(stream);
                if let Some(connection) = Connection::let_in(&backing, socket, &shared) {
                    let (shared, closed) = (Arc::clone(&shared), closed.clone());
                    tokio::spawn(connection::serve(connection, shared, closed));
                }
            }
        }
    }
}

/// The beanstalk door: its addresses are taken, nobody is let in before [`Door::run`].
pub struct Door {
    bound: BTreeMap<Listen, Bound>,
    shared: Arc<Shared>,
}

impl Door {
    /// Takes all addresses, so that a mistake is told at start-up. None of them listens yet:
    /// whoever connects is refused.
    ///
    /// # Errors
    ///
    /// [`BindError`] names the first address that cannot be had.
    pub fn bind(settings: DoorSettings) -> Result<Self, BindError> {
        let mut bound = BTreeMap::new();
        for listen in &settings.listen {
            let new = Bound::new(listen)?;
            bound.insert(new.listen().clone(), new);
        }
        Ok(Self {
            bound,
            shared: Arc::new(Shared::new(&settings)),
        })
    }

    /// Where clients can connect once the door is open, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<Listen> {
        self.bound.keys().cloned().collect()
    }

    /// Lets clients in while the node says so: listens when its doors open, and closes listeners
    /// and connections when they close (architecture, section 7). Returns when the node is gone.
    pub async fn run<B: Backing>(self, backing: B) {
        let Self { mut bound, shared } = self;
        let addresses: Vec<Listen> = bound.keys().cloned().collect();
        let mut doors = backing.doors();
        loop {
            let state = doors.borrow_and_update().clone();
            if let DoorState::Open { .. } = state {
                let closed = CancellationToken::new();
                let mut listeners = JoinSet::new();
                for listen in &addresses {
                    let first = bound.remove(listen);
                    let (listen, backing, shared) =
                        (listen.clone(), backing.clone(), Arc::clone(&shared));
                    let closed = closed.clone();
                    listeners.spawn(async move {
                        let accepting = async {
                            let listener = open(&listen, first).await;
                            accept::run(listener, backing, shared, closed.clone()).await;
                        };
                        tokio::select! {
                            () = accepting => {}
                            () = closed.cancelled() => {}
                        }
                    });
                }
                // Also a change from one open origin to another closes: its sessions are over.
                let gone = doors.changed().await.is_err();
                closed.cancel();
                while listeners.join_next().await.is_some() {}
                if gone {
                    return;
                }
            } else if doors.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Listens on an address, trying again for as long as it cannot be had: it was ours before, and a
/// node that came back must not stay shut because of a moment.
async fn open(listen: &Listen, first: Option<Bound>) -> crate::listener::Listener {
    let mut attempt = first.map_or_else(|| Bound::new(listen), Ok);
    loop {
        match attempt.and_then(Bound::open) {
            Ok(listener) => {
                tracing::info!(%listen, "open for clients");
                return listener;
            }
            Err(error) => tracing::error!(%error, "trying again"),
        }
        sleep(BIND_AGAIN).await;
        attempt = Bound::new(listen);
    }
}
