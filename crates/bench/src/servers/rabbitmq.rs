use std::path::Path;

use anyhow::ensure;

use super::{Launch, Server, free_ports};
use crate::drive::Tongue;

/// Nodes of the cluster.
const NODES: u16 = 3;

impl Server {
    /// Starts three RabbitMQ nodes, with a port mapper of their own. `program` is `rabbitmq-server` as the release has it,
    /// not the wrapper of a distribution, which insists on a user and on folders of its own.
    pub(crate) fn rabbitmq(program: &Path, launch: &Launch) -> anyhow::Result<Self> {
        let base = free_ports(2 * NODES + 1)?;
        let mapper = (base + 2 * NODES).to_string();
        let ports: Vec<u16> = (0..NODES).map(|node| base + 2 * node).collect();
        let mut server = Self::new("rabbitmq-server", launch, Tongue::Amqp, &ports)?;

        let home = launch.folder("home")?;
        let cookie = home.join(".erlang.cookie");
        std::fs::write(&cookie, "trellisbench")?;
        owner_only(&cookie)?;
        let plugins = home.join("enabled_plugins");
        std::fs::write(&plugins, "[].")?;
        let nothing = home.join("nothing");
        std::fs::write(&nothing, "")?;

        let mut attendant = launch.command("epmd");
        attendant.args(["-port", &mapper, "-address", "127.0.0.1"]);
        server.spawn(attendant)?;
        server.attendants = 1;

        let name = |port: &u16| format!("bench{port}@localhost");
        for (index, port) in ports.iter().enumerate() {
            let dir = launch.folder(&format!("node-{index}"))?;
            let mut settings = format!(
                "listeners.tcp.1 = 127.0.0.1:{port}\nlog.file.level = error\n\
                 cluster_formation.peer_discovery_backend = classic_config\n"
            );
            for (number, port) in ports.iter().enumerate() {
                settings += &format!(
                    "cluster_formation.classic_config.nodes.{} = {}\n",
                    number + 1,
                    name(port)
                );
            }
            let file = dir.join("rabbitmq.conf");
            std::fs::write(&file, settings)?;
            let mut command = launch.command(program);
            command
                .env("HOME", &home)
                .env("ERL_EPMD_PORT", &mapper)
                .env("ERL_EPMD_ADDRESS", "127.0.0.1")
                .env("RABBITMQ_NODENAME", name(port))
                .env("RABBITMQ_NODE_PORT", port.to_string())
                .env("RABBITMQ_DIST_PORT", (port + 1).to_string())
                .env("RABBITMQ_MNESIA_BASE", dir.join("data"))
                .env("RABBITMQ_LOG_BASE", dir.join("log"))
                .env("RABBITMQ_CONFIG_FILE", &file)
                .env("RABBITMQ_CONF_ENV_FILE", &nothing)
                .env("RABBITMQ_ENABLED_PLUGINS_FILE", &plugins)
                // Input is "allowed" so that the script becomes the server rather than its parent; none comes.
                .env("RABBITMQ_ALLOW_INPUT", "true")
                .env(
                    "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                    "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
                );
            server.spawn(command)?;
            // One after the other: the first makes the cluster, the others find it.
            server.wait_for(index + 1)?;
        }
        ensure!(server.pids().len() == usize::from(NODES), "a node is gone");
        Ok(server)
    }
}

/// Erlang refuses a cookie that others may read.
fn owner_only(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(())
}
