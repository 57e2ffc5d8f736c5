//! Floor 5: the admin port. Health for probes and load balancers, metrics for Prometheus, a JSON
//! interface for operators.
//!
//! Architecture invariants: it runs on a thread and a runtime of its own, so that a busy main
//! runtime neither fails a probe nor hides that it is stuck; it translates and never decides.
//! What changes something is carried out on the main runtime.

mod actions;
mod bounded;
mod figures;
mod port;
mod probes;
mod view;

pub use figures::{Figures, PeerFigures, TubeFigures};
pub use port::AdminPort;
pub use view::{Actions, View};
