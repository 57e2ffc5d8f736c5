use std::path::Path;

use super::{Launch, Server, free_ports};
use crate::drive::Tongue;

impl Server {
    /// Starts beanstalkd with `args` behind its address; with `-b` among them its log is in the launch's folder.
    pub(crate) fn beanstalkd(
        program: &Path,
        args: &[&str],
        launch: &Launch,
    ) -> anyhow::Result<Self> {
        let port = free_ports(1)?;
        let mut server = Self::new("beanstalkd", launch, Tongue::Beanstalk, &[port])?;
        let mut command = launch.command(program);
        command.args(["-l", "127.0.0.1", "-p", &port.to_string()]);
        for arg in args {
            command.arg(arg);
            if *arg == "-b" {
                command.arg(launch.folder("log")?);
            }
        }
        server.spawn(command)?;
        server.ready()
    }
}
