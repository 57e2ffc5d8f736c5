use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use prometheus_client::registry::Registry;
use trellis_node::membership::Members;

use crate::Figures;

/// What the admin port looks at and acts on. It is there before the node is: storage may take a
/// while to open.
#[derive(Clone)]
pub struct View {
    /// The node, once it is there.
    pub members: Arc<OnceLock<Members>>,
    /// What only the binary can do.
    pub actions: Arc<dyn Actions>,
    /// What storage and node count by themselves, once they are there.
    pub registry: Arc<OnceLock<Registry>>,
    /// Figures that are gathered when they are asked for; `None` while there is no node.
    pub figures: Arc<dyn Fn() -> Option<Figures> + Send + Sync>,
    /// The runtime on which changes are carried out.
    pub runtime: tokio::runtime::Handle,
}

/// What only the binary can do.
pub trait Actions: Send + Sync + 'static {
    /// Makes the node ready to be stopped: hands leadership over and closes the doors. The process
    /// goes on, so that probes can see it. Resolves when that is done.
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("node", &self.members.get().is_some())
            .finish_non_exhaustive()
    }
}
