use std::{
    fs,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use trellis_testkit::network::Network;

use super::wait;

/// HAProxy in a place of its own, in front of all nodes. Each new connection goes to the next of
/// those that say they are ready.
#[derive(Debug)]
pub(super) struct Balancer {
    child: Child,
}

impl Balancer {
    pub(super) fn start(
        network: &Network,
        host: u8,
        folder: &Path,
        nodes: &[SocketAddr],
    ) -> Result<Self> {
        let configuration = folder.join("haproxy.cfg");
        let mut file = fs::File::create(&configuration)?;
        let address = network.address(host);
        write!(
            file,
            "global\n  maxconn 4000\n\
             defaults\n  mode tcp\n  timeout connect 2s\n  timeout client 1h\n  timeout server 1h\n  \
             retries 3\n  option redispatch\n\
             listen beanstalk\n  bind {address}:11300\n  balance roundrobin\n  \
             option httpchk GET /lb\n  http-check disable-on-404\n  \
             default-server inter 500ms fall 2 rise 1 check port 11302 on-marked-down shutdown-sessions\n"
        )?;
        for (number, node) in nodes.iter().enumerate() {
            writeln!(file, "  server node-{number} {node}")?;
        }
        drop(file);
        let log = fs::File::create(folder.join("haproxy.log"))?;
        let child = network
            .command(host, "haproxy")
            .args(["-db", "-f"])
            .arg(&configuration)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("haproxy can't be started")?;
        let balancer = Self { child };
        wait(Duration::from_secs(10), "haproxy listens", || {
            let at = SocketAddr::from((address, 11_300));
            TcpStream::connect_timeout(&at, Duration::from_secs(1))?;
            Ok(())
        })?;
        Ok(balancer)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
