use std::{future::Future, sync::Arc};

use trellis_types::ConnectionId;

use crate::{Admitted, Call, Line, mind::Inner};

/// One client of this node. Dropping it ends the session: its wait goes, its holds return.
///
/// All methods may be called from any task; the answers come on the connection's
/// [`Outlet`](crate::Outlet).
pub struct Session {
    id: ConnectionId,
    line: Arc<Line>,
    core: Arc<Inner>,
}

impl Session {
    pub(crate) fn new(id: ConnectionId, line: Arc<Line>, core: Arc<Inner>) -> Self {
        Self { id, line, core }
    }

    /// Its number among this node's connections; never used again.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Submits all whole commands of one read, in order, and leaves `calls` empty. What can be
    /// answered at once is delivered before this returns. Never waits.
    pub fn submit(&self, calls: &mut Vec<Call>) {
        if calls.is_empty() {
            return;
        }
        let now = crate::now();
        self.core
            .with_origin(|origin| origin.submit(self.id, calls, now));
    }

    /// Whether more may be read from this connection now: its pipeline and the whole node have
    /// room (architecture, section 11).
    pub fn may_read(&self) -> bool {
        !self.line.is_full() && self.core.budget.has_room()
    }

    /// Returns when [`Self::may_read`] is true. The socket is to be watched for hang-up meanwhile.
    pub async fn wait_readable(&self) {
        while !self.may_read() {
            if self.line.is_full() {
                self.line.readable().await;
            } else {
                self.core.budget.room().await;
            }
        }
    }

    /// Waits until a body of `bytes` may be read in. To be held until the put is submitted.
    pub fn admit_body(&self, bytes: usize) -> impl Future<Output = Admitted> + Send + 'static {
        self.core.budget.clone().admit(bytes)
    }

    /// The client shut its sending side, but its input is not read to the end yet: whoever of it
    /// waits for a job is answered now, and what is submitted from now on does not wait.
    pub fn hung_up(&self) {
        let now = crate::now();
        self.core.with_origin(|origin| origin.hung_up(self.id, now));
    }

    /// The client shut its sending side: what it has sent is carried out and answered, without
    /// waiting for jobs; then the outlet is closed. Nothing may be submitted after it.
    pub fn half_closed(&self) {
        let now = crate::now();
        self.core
            .with_origin(|origin| origin.half_closed(self.id, now));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.core.with_origin(|origin| origin.disconnect(self.id));
    }
}
