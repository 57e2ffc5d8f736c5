use std::{
    ffi::OsString,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::port::{free_base_port, listens};

/// How long a server may take to listen.
const STARTUP_MAX: Duration = Duration::from_secs(30);

/// What to run. `-l 127.0.0.1 -p PORT` is added; a flag `-b` gets a folder of the server's own.
#[derive(Clone, Debug)]
pub struct ServerCommand {
    /// The program.
    pub program: PathBuf,
    /// What stands before the flags: `serve`, or nothing.
    pub first: Vec<OsString>,
    /// beanstalkd's flags.
    pub flags: Vec<String>,
    /// Whether the program always keeps its data in a folder.
    pub always_stores: bool,
    /// What to add for the port base (`--peer-listen` and the like need ports, too).
    pub more: fn(port: u16) -> Vec<OsString>,
}

/// One server process on loopback, killed when dropped.
pub struct Server {
    command: ServerCommand,
    port: u16,
    folder: TempDir,
    child: Child,
}

impl Server {
    /// Starts it on a free port and waits until it takes connections.
    ///
    /// # Errors
    ///
    /// It cannot be started, ends early, or does not listen in time; its own words are included.
    pub fn start(command: ServerCommand) -> io::Result<Self> {
        let mut tries = 0;
        loop {
            tries += 1;
            let port = free_base_port()?;
            let folder = TempDir::with_prefix("trellis-server-")?;
            fs::create_dir(folder.path().join("data"))?;
            let child = spawn(&command, port, &folder)?;
            let mut server = Self {
                command: command.clone(),
                port,
                folder,
                child,
            };
            match server.wait_until_it_listens() {
                Ok(()) => return Ok(server),
                // Somebody else may have taken the port between our look and the server's bind.
                Err(_) if tries < 3 && matches!(server.child.try_wait(), Ok(Some(_))) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGUSR1: beanstalkd's drain mode.
    ///
    /// # Errors
    ///
    /// The process is gone.
    pub fn drain(&self) -> io::Result<()> {
        self.signal(Signal::USR1)
    }

    /// SIGSTOP, and SIGCONT after that long.
    ///
    /// # Errors
    ///
    /// The process is gone.
    pub fn stall(&self, time: Duration) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        thread::sleep(time);
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("no pid"))?;
        Ok(kill_process(pid, signal)?)
    }

    /// kill -9, then a new process on the same port and data, with other flags if given.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn restart(&mut self, flags: Option<&[String]>) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        if let Some(flags) = flags {
            self.command.flags = flags.to_vec();
        }
        self.child = spawn(&self.command, self.port, &self.folder)?;
        self.wait_until_it_listens()
    }

    fn wait_until_it_listens(&mut self) -> io::Result<()> {
        let until = Instant::now() + STARTUP_MAX;
        while !listens(self.child.id(), self.port) {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() > until {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let program = self.command.program.display();
                return Err(io::Error::other(format!(
                    "{program} does not listen on {} (ended: {ended:?}); it says:\n{log}",
                    self.address()
                )));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(command: &ServerCommand, port: u16, folder: &TempDir) -> io::Result<Child> {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.path().join("log"))?;
    let data = folder.path().join("data");
    let mut process = super::without_settings(&command.program);
    process.args(&command.first);
    process.args(["-l", "127.0.0.1", "-p", &port.to_string()]);
    let stores = command.always_stores || command.flags.iter().any(|flag| flag == "-b");
    if stores {
        process.arg("-b").arg(data);
    }
    process.args(command.flags.iter().filter(|flag| *flag != "-b"));
    process.args((command.more)(port));
    process
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    process.spawn()
}
