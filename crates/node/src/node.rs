use std::sync::Arc;

use tokio::sync::watch;

use crate::{Core, DoorState, Outlet, Refused, Session, membership::Members};

/// A node as its doors see it. Cheap to clone.
#[derive(Clone)]
pub struct Node {
    core: Core,
    members: Members,
}

impl Node {
    pub(crate) fn new(core: Core, members: Members) -> Self {
        Self { core, members }
    }

    /// Whether clients are served: doors listen only while it is `Open`.
    pub fn doors(&self) -> watch::Receiver<DoorState> {
        self.core.doors()
    }

    /// A new client.
    ///
    /// # Errors
    ///
    /// [`Refused`]: the node does not serve, or has as many clients as it may have.
    pub fn connect(&self, outlet: Arc<dyn Outlet>) -> Result<Session, Refused> {
        self.core.connect(outlet)
    }

    /// Whether puts of this node's clients get `DRAINING` (SIGUSR1).
    pub fn drain_puts(&self, on: bool) {
        self.core.drain_puts(on);
    }

    /// Sessions, origin and leading.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// How this node is, and what can be changed in its cluster.
    pub fn members(&self) -> &Members {
        &self.members
    }
}
