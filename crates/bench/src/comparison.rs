use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use crate::plan::{Load, Mix};

/// What every comparison with servers that are started for it can be told.
#[derive(Clone, Debug, Args)]
pub(crate) struct Comparison {
    /// The `trellis` binary.
    #[arg(long, default_value = "trellis")]
    pub(crate) trellis: PathBuf,
    /// Nodes of the Trellis cluster.
    #[arg(long, default_value_t = 3)]
    pub(crate) nodes: u16,
    /// Where the servers write. It should be on the disk that you mean to use, not in memory.
    #[arg(long, default_value = "data/bench")]
    pub(crate) data_dir: PathBuf,
    /// Seconds that count, in each round.
    #[arg(long, short = 's', default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// Seconds before them that do not.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) warm_up: f64,
    /// How often each server is measured under each load, in turn.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Bytes of a job's body.
    #[arg(long, default_value_t = 256)]
    pub(crate) body_bytes: usize,
    /// Threads that drive.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Write the figures of all rounds as JSON into this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Comparison {
    /// A closed loop of so many connections, in beanstalkd's protocol.
    pub(crate) fn load(&self, mix: Mix, connections: usize, depth: usize) -> Load {
        Load {
            dialect: Default::default(),
            mix,
            connections,
            depth,
            body_bytes: self.body_bytes,
            tubes: 1,
            roam: 0,
            rate: None,
            warm_up: self.warm_up,
            seconds: self.seconds,
            threads: self.threads,
            patience: 30.0,
        }
    }

    /// Writes all figures into the file that was asked for, if one was.
    pub(crate) fn write(&self, figures: &impl Serialize) -> anyhow::Result<()> {
        let Some(path) = &self.json else {
            return Ok(());
        };
        std::fs::write(path, serde_json::to_vec_pretty(figures)?)
            .with_context(|| format!("can't write {}", path.display()))
    }
}
