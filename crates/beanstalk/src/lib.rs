//! Floor 5: the beanstalk door. Listens on TCP and Unix sockets, turns bytes into calls of a
//! node's sessions, and their answers into bytes.
//!
//! Architecture invariants: a door translates and never decides. It knows no clock of the cluster,
//! no log, no machine. Nothing a client sends or leaves unread makes another client wait, and
//! nothing here grows without a bound: what a client may have waiting is bounded per connection,
//! bodies that arrive or are owed are bounded for all of them together ([`Ledger`]).
//!
//! The way of a command: [`reader`](connection) reads, decodes everything whole and submits it at
//! once; the node answers through [`Outbox`], which encodes and writes to the socket from whatever
//! thread the answers come on; only what the socket does not take is left to the connection's own
//! task.

mod accept;
mod backing;
mod backlog;
mod calls;
mod connection;
mod door;
mod large;
mod ledger;
mod listener;
mod outbox;
mod replies;
mod socket;
mod stats;

pub use backing::{Backing, Talk};
pub use door::{Door, DoorSettings, KeepAlive, serve_streams};
pub use listener::{BindError, Listen};
pub use socket::Stream;
