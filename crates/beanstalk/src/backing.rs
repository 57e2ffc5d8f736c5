use std::{future::Future, sync::Arc};

use tokio::sync::watch;
use trellis_node::{Call, DoorState, Node, Outlet, Refused, Session};
use trellis_types::limits;

/// What the door needs of a node. [`Node`] is one; a script in the tests is another.
pub trait Backing: Clone + Send + Sync + 'static {
    /// Its sessions.
    type Session: Talk;

    /// Whether clients may come in.
    fn doors(&self) -> watch::Receiver<DoorState>;

    /// A session for a new connection.
    ///
    /// # Errors
    ///
    /// [`Refused`] when there are too many, or the door has just been closed.
    fn connect(&self, outlet: Arc<dyn Outlet>) -> Result<Self::Session, Refused>;
}

/// What the door needs of a session; dropping it ends it.
pub trait Talk: Send + Sync + 'static {
    /// Hands in commands, all that are at hand, in order.
    fn submit(&self, calls: &mut Vec<Call>);

    /// Whether more of this connection may be read.
    fn may_read(&self) -> bool;

    /// Waits until [`Self::may_read`].
    fn wait_readable(&self) -> impl Future<Output = ()> + Send;

    /// Waits until the node as a whole has room for about `bytes` more of a body. Sets nothing
    /// aside.
    fn wait_room(&self, bytes: usize) -> impl Future<Output = ()> + Send;

    /// The client has shut its sending side, though its input is not read to the end yet.
    fn hung_up(&self);

    /// The client has shut its sending side and all of its input is submitted.
    fn half_closed(&self);
}

impl Backing for Node {
    type Session = Session;

    fn doors(&self) -> watch::Receiver<DoorState> {
        Node::doors(self)
    }

    fn connect(&self, outlet: Arc<dyn Outlet>) -> Result<Session, Refused> {
        Node::connect(self, outlet)
    }
}

impl Talk for Session {
    fn submit(&self, calls: &mut Vec<Call>) {
        Session::submit(self, calls);
    }

    fn may_read(&self) -> bool {
        Session::may_read(self)
    }

    async fn wait_readable(&self) {
        Session::wait_readable(self).await;
    }

    async fn wait_room(&self, bytes: usize) {
        // Only a look at the bound, nothing is set aside: a client that announces much and sends
        // nothing must not keep anybody else waiting. What has arrived is in the door's ledger.
        // A body that needs all the room would wait for ever beside small ones: half of it will do.
        let bytes = bytes.min(limits::NODE_PENDING_BYTES_MAX / 2);
        drop(Session::admit_body(self, bytes).await);
    }

    fn hung_up(&self) {
        Session::hung_up(self);
    }

    fn half_closed(&self) {
        Session::half_closed(self);
    }
}
