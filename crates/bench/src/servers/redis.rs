use std::path::Path;

use super::{Launch, Server, free_ports};
use crate::drive::Tongue;

impl Server {
    /// Starts Redis with its log synced before each answer, and no snapshots beside it.
    pub(crate) fn redis(program: &Path, launch: &Launch) -> anyhow::Result<Self> {
        let port = free_ports(1)?;
        let mut server = Self::new("redis-server", launch, Tongue::Redis, &[port])?;
        let mut command = launch.command(program);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.args([
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--save",
            "",
        ]);
        command.arg("--dir").arg(launch.folder("data")?);
        server.spawn(command)?;
        server.ready()
    }
}
