use std::path::Path;

use super::{Launch, Server, free_ports};
use crate::drive::Tongue;

impl Server {
    /// Starts a Trellis cluster of `nodes`, all settings at their defaults.
    pub(crate) fn trellis(program: &Path, nodes: u16, launch: &Launch) -> anyhow::Result<Self> {
        let base = free_ports(nodes * 10)?;
        let ports: Vec<u16> = (0..nodes).map(|node| base + 10 * node).collect();
        let mut server = Self::new("trellis", launch, Tongue::Beanstalk, &ports)?;
        let dir = launch.folder("cluster")?;
        server.node_dirs = (0..nodes)
            .map(|node| dir.join(format!("node-{node}")))
            .collect();
        let mut command = launch.command(program);
        command.args(["local", "--no-restart"]);
        command.args([
            "--nodes",
            &nodes.to_string(),
            "--base-port",
            &base.to_string(),
        ]);
        command.arg("--data-dir").arg(dir);
        server.spawn(command)?;
        server.ready()
    }
}
