use trellis_queue::{Machine, Outcome};
use trellis_types::Timestamp;

use crate::{Membership, Position};

/// Hears, in order, what this node applies. Called by the apply task: nothing here may block.
pub trait Listener: Send + 'static {
    /// One entry of commands is applied; `machine` is exactly at that entry. `outcome.changes` has
    /// been handed to the state store and is empty.
    fn applied(&mut self, position: Position, at: Timestamp, outcome: Outcome, machine: &Machine);

    /// A membership entry is applied, or the membership came with a snapshot.
    fn membership(&mut self, membership: &Membership);

    /// A snapshot replaced the state: what happened in between is unknowable. Called before
    /// anything else once when the state is loaded, with `position` `None` if it is still empty.
    fn replaced(&mut self, machine: &Machine, position: Option<Position>);

    /// No further entry is at hand: now answer the sockets.
    fn round_over(&mut self);
}

/// Hears nothing.
impl Listener for () {
    fn applied(&mut self, _: Position, _: Timestamp, _: Outcome, _: &Machine) {}
    fn membership(&mut self, _: &Membership) {}
    fn replaced(&mut self, _: &Machine, _: Option<Position>) {}
    fn round_over(&mut self) {}
}
