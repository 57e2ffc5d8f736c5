use std::path::Path;

use super::{Launch, Server, free_ports};
use crate::drive::Tongue;

/// Members of the cluster.
const MEMBERS: u16 = 3;
/// The largest that its documentation suggests: a run must not end at the default 2 GiB.
const QUOTA_BYTES: &str = "8589934592";

impl Server {
    /// Starts three members of etcd.
    pub(crate) fn etcd(program: &Path, launch: &Launch) -> anyhow::Result<Self> {
        let base = free_ports(2 * MEMBERS)?;
        let ports: Vec<u16> = (0..MEMBERS).map(|member| base + 2 * member).collect();
        let mut server = Self::new("etcd", launch, Tongue::Etcd, &ports)?;
        let all: Vec<String> = ports
            .iter()
            .map(|port| format!("m{port}=http://127.0.0.1:{}", port + 1))
            .collect();
        for port in &ports {
            let client = format!("http://127.0.0.1:{port}");
            let peer = format!("http://127.0.0.1:{}", port + 1);
            let mut command = launch.command(program);
            command.args(["--name", &format!("m{port}"), "--data-dir"]);
            command.arg(launch.folder(&format!("m{port}"))?);
            command.args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ]);
            command.args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ]);
            command.args([
                "--initial-cluster",
                &all.join(","),
                "--initial-cluster-state",
                "new",
            ]);
            command.args(["--quota-backend-bytes", QUOTA_BYTES, "--log-level", "error"]);
            server.spawn(command)?;
        }
        server.ready()
    }
}
