use trellis_wire::beanstalk::Counted;

/// What the front end of one run of a node counts. Never replicated; gathered from all nodes when
/// a client asks.
///
/// Source: protocol specification, 4.5 and 4.6; architecture, section 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands by [`Counted::index`].
    pub commands: [u64; 22],
    /// Open connections.
    pub connections: u64,
    /// Open connections that have put.
    pub producers: u64,
    /// Open connections that have reserved.
    pub workers: u64,
    /// Connections accepted since the node started.
    pub connections_total: u64,
}

impl Counters {
    pub(crate) fn count(&mut self, counted: Counted) {
        if let Some(counter) = self.commands.get_mut(counted.index()) {
            *counter += 1;
        }
    }

    /// Adds another node's.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.commands.iter_mut().zip(other.commands) {
            *mine = mine.saturating_add(theirs);
        }
        self.connections = self.connections.saturating_add(other.connections);
        self.producers = self.producers.saturating_add(other.producers);
        self.workers = self.workers.saturating_add(other.workers);
        self.connections_total = self
            .connections_total
            .saturating_add(other.connections_total);
    }
}
