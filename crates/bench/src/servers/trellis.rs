use std::path::Path;

use super::{Launch, Server, free_ports};
use crate::drive::Tongue;

impl Server {
    /// Starts a Trellis cluster of `nodes`, all settings at their defaults.
    pub(crate) fn trellis(program: &Path, nodes: u16, launch: &Launch) -> anyhow::Result<Self> {
        Self::trellis_at(program, nodes, free_ports(nodes * 10)?, &[], launch)
    }

    /// Starts one whose first node has its port at `base`, with some settings, `key=value`. Started again with the same
    /// launch it finds its data.
    pub(crate) fn trellis_at(
        program: &Path,
        nodes: u16,
        base: u16,
        settings: &[String],
        launch: &Launch,
    ) -> anyhow::Result<Self> {
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
        for setting in settings {
            command.args(["--set", setting]);
        }
        server.spawn(command)?;
        server.ready()
    }
}
