use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use prometheus_client::registry::Registry;
use tokio::sync::watch;
use trellis_node::membership::Members;

use crate::Figures;

/// What the admin port looks at and acts on. It is there before the node is: storage may take a
/// while to open.
#[derive(Clone)]
pub struct View {
    /// The node's name, as its configuration says.
    pub name: String,
    /// The node, once it is there.
    pub members: Arc<OnceLock<Members>>,
    /// Why there is no node and will be none until its folder is rebuilt; `None` usually.
    pub quarantined: watch::Receiver<Option<String>>,
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

    /// Moves what the node has on disk to a folder of evidence, so that it joins its cluster again
    /// as a new member. Only of a node that is quarantined. Resolves to what was done, or to why
    /// not.
    fn rebuild(&self) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;
}

impl View {
    /// Why there will be no node until its folder is rebuilt.
    pub(crate) fn out(&self) -> Option<String> {
        self.quarantined.borrow().clone()
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("node", &self.members.get().is_some())
            .finish_non_exhaustive()
    }
}
