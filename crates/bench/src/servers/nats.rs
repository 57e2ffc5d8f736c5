use std::path::Path;

use super::{Launch, Server, free_ports};
use crate::drive::Tongue;

/// Servers of the cluster.
const SERVERS: u16 = 3;

/// When JetStream syncs its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Before it acknowledges.
    Always,
    /// As it does unless it is told otherwise: every two minutes.
    Default,
}

impl Server {
    /// Starts three NATS servers with JetStream.
    pub(crate) fn nats(program: &Path, sync: Sync, launch: &Launch) -> anyhow::Result<Self> {
        let base = free_ports(2 * SERVERS)?;
        let ports: Vec<u16> = (0..SERVERS).map(|server| base + 2 * server).collect();
        let mut server = Self::new("nats-server", launch, Tongue::Nats, &ports)?;
        let routes: Vec<String> = ports
            .iter()
            .map(|port| format!("\"nats://127.0.0.1:{}\"", port + 1))
            .collect();
        let sync = match sync {
            Sync::Always => "sync_interval: always",
            Sync::Default => "",
        };
        for port in &ports {
            let dir = launch.folder(&format!("s{port}"))?;
            let settings = dir.join("settings.conf");
            let text = format!(
                "server_name: s{port}\nlisten: \"127.0.0.1:{port}\"\n\
                 jetstream {{ store_dir: \"{}\", max_file_store: 64GB, {sync} }}\n\
                 cluster {{ name: bench, listen: \"127.0.0.1:{}\", routes: [{}] }}\n",
                dir.display(),
                port + 1,
                routes.join(", ")
            );
            std::fs::write(&settings, text)?;
            let mut command = launch.command(program);
            command.arg("--config").arg(settings);
            server.spawn(command)?;
        }
        server.ready()
    }
}
