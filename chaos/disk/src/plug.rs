use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// How long a layer may take to mount, or to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A layer as a process of its own, mounted as long as this lives.
pub struct Plug {
    child: Child,
    /// The layer ends when this is closed, however its owner died.
    stdin: Option<ChildStdin>,
    mount: PathBuf,
    socket: PathBuf,
}

impl Plug {
    /// Whether a disk can be mounted here: it takes `/dev/fuse` and root.
    pub fn is_possible() -> bool {
        Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root()
    }

    /// Starts `program` (`trellis-chaos-disk`) with an empty disk at the folder `mount`, its objects and its socket
    /// in the folder `objects`. With `syncs_beneath` its syncs wait for the disk beneath.
    ///
    /// # Errors
    ///
    /// It cannot be started, or does not mount in time; its own words are included.
    pub fn mount(
        program: &Path,
        mount: &Path,
        objects: &Path,
        syncs_beneath: bool,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(mount)?;
        std::fs::create_dir_all(objects)?;
        let socket = objects.join("orders");
        let mut command = Command::new(program);
        command.arg("mount").arg(mount);
        command.arg("--objects").arg(objects.join("objects"));
        command.arg("--socket").arg(&socket);
        if syncs_beneath {
            command.arg("--sync-beneath");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let stdin = child.stdin.take();
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            // It says one line, or ends.
            BufReader::new(stdout).read_line(&mut said)?;
        }
        let plug = Self {
            child,
            stdin,
            mount: mount.to_owned(),
            socket,
        };
        match said.trim() {
            "mounted" => Ok(plug),
            other => Err(io::Error::other(format!(
                "{} does not mount: {other:?}",
                program.display()
            ))),
        }
    }

    /// Where the disk is to be found.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order and waits for the answer.
    ///
    /// # Errors
    ///
    /// It refuses, in its words; or it is gone.
    pub fn tell(&self, order: &str) -> io::Result<Value> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "{order}")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        match answer["error"].as_str() {
            Some(error) => Err(io::Error::other(error.to_owned())),
            None => Ok(answer),
        }
    }

    /// How often all rules in force struck so far.
    ///
    /// # Errors
    ///
    /// As [`Self::tell`].
    pub fn strikes(&self) -> io::Result<u64> {
        let counters = self.tell("counters")?;
        let rules = counters["rules"].as_array().into_iter().flatten();
        Ok(rules.filter_map(|rule| rule["hits"].as_u64()).sum())
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                let _ = rustix::mount::unmount(&self.mount, rustix::mount::UnmountFlags::DETACH);
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}
