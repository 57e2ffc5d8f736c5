use std::time::Duration;

use prometheus_client::{
    metrics::histogram::{Histogram, exponential_buckets},
    registry::{Registry, Unit},
};
use trellis_queue::{Event, Fate};

/// What a node tells the operator of the way of its commands. Cloning shares the histograms.
#[derive(Clone, Debug)]
pub struct NodeMetrics {
    /// Seconds from when the oldest command of a batch of this node could first be submitted to
    /// when this node had applied it.
    pub commit_seconds: Histogram,
    /// Commands, of all nodes, that one log entry carried out; entries without any left out.
    pub commands_per_entry: Histogram,
}

impl Default for NodeMetrics {
    fn default() -> Self {
        Self {
            commit_seconds: Histogram::new(exponential_buckets(0.000_25, 2.0, 17)),
            commands_per_entry: Histogram::new(exponential_buckets(1.0, 2.0, 14)),
        }
    }
}

impl NodeMetrics {
    /// Adds everything to `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "commit",
            "From when a command could be submitted to when this node had applied it",
            Unit::Seconds,
            self.commit_seconds.clone(),
        );
        registry.register(
            "commands_per_entry",
            "Commands that one log entry carried out",
            self.commands_per_entry.clone(),
        );
    }

    pub(crate) fn committed(&self, after: Duration) {
        self.commit_seconds.observe(after.as_secs_f64());
    }

    pub(crate) fn entry(&self, events: &[Event]) {
        let commands: usize = events
            .iter()
            .map(|event| match event {
                Event::Batch {
                    fate: Fate::Applied(verdicts),
                    ..
                } => verdicts.len(),
                _ => 0,
            })
            .sum();
        if commands > 0 {
            self.commands_per_entry.observe(commands as f64);
        }
    }
}
