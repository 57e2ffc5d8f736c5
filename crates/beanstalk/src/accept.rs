use std::{
    fmt, fs, io,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    backing::Backing,
    connection::{self, Connection},
    door::Shared,
    listener::Listener,
};

/// A pause after an accept that failed for want of something: an accept loop that spins helps
/// nobody (specification, sharp edge 143).
const SHORT_OF: Duration = Duration::from_millis(100);

/// At most one line a second about one thing.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Accepts connections for ever; each is served by its own task until `closed`.
pub(crate) async fn run<B: Backing>(
    listener: Listener,
    backing: B,
    shared: Arc<Shared>,
    closed: CancellationToken,
) {
    loop {
        match listener.accept().await {
            Ok(socket) => {
                if let Err(error) = socket.prepare(&shared.keep_alive) {
                    // Gone before we looked.
                    tracing::debug!(%error, "a connection ended at once");
                    continue;
                }
                // Asked here, so that those who are too many hold a descriptor for a moment only.
                if let Some(connection) = Connection::let_in(&backing, socket, &shared) {
                    let (shared, closed) = (Arc::clone(&shared), closed.clone());
                    tokio::spawn(connection::serve(connection, shared, closed));
                }
            }
            Err(error) if is_about_the_client(&error) => {}
            Err(error) => {
                shared.refusals.note(&error);
                // Rather closed than left hanging without an answer.
                if shared.spare.give_up() {
                    if let Ok(excess) = tokio::time::timeout(SHORT_OF, listener.accept()).await {
                        drop(excess);
                    }
                    shared.spare.take_back();
                }
                sleep(SHORT_OF).await;
            }
        }
    }
}

/// Errors of `accept` that belong to the connection that was to be accepted.
fn is_about_the_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Says that something happens to connections, at most once a second, and how often it did.
#[derive(Debug)]
pub(crate) struct Seldom {
    what: &'static str,
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    last: Option<Instant>,
    since: u64,
}

impl Seldom {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            said: Mutex::default(),
        }
    }

    /// It happened once more, because of `why`.
    pub(crate) fn note(&self, why: &dyn fmt::Display) {
        let mut said = self.said.lock();
        said.since += 1;
        if said.last.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
            tracing::warn!(connections = said.since, %why, "{}", self.what);
            *said = Said {
                last: Some(Instant::now()),
                since: 0,
            };
        }
    }
}

/// A descriptor kept for the moment when there is none left: given up, it lets one connection be
/// accepted, which is then closed.
#[derive(Debug)]
pub(crate) struct Spare(Mutex<Option<fs::File>>);

impl Spare {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(fs::File::open("/dev/null").ok()))
    }

    fn give_up(&self) -> bool {
        self.0.lock().take().is_some()
    }

    fn take_back(&self) {
        let mut spare = self.0.lock();
        if spare.is_none() {
            *spare = fs::File::open("/dev/null").ok();
        }
    }
}
