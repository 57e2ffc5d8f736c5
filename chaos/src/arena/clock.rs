use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail};
use trellis_testkit::admin::ask;

use super::{Arena, name, wait};

/// Where Debian puts libfaketime.
const LIBRARIES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
];

/// A wall clock of a process' own, by libfaketime. Its monotonic clock is the machine's.
#[derive(Debug)]
pub(super) struct Clock {
    file: PathBuf,
    library: &'static str,
}

impl Clock {
    /// A clock that goes as the machine's does.
    pub(super) fn new(file: PathBuf) -> Result<Self> {
        let library = LIBRARIES
            .into_iter()
            .find(|path| fs::exists(path).unwrap_or(false))
            .context("libfaketime is not installed (Debian's package faketime)")?;
        let clock = Self { file, library };
        clock.set(0)?;
        Ok(clock)
    }

    pub(super) fn set(&self, ahead_s: i64) -> Result<()> {
        // Renamed into place: a reader sees the old text or the new one, never half of it.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{ahead_s:+}\n"))?;
        Ok(fs::rename(new, &self.file)?)
    }

    /// What makes a process use it.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let file = self.file.display().to_string();
        [
            ("LD_PRELOAD", self.library),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}

/// Wall clocks of nodes.
impl Arena {
    /// Sets a node's wall clock so far ahead of the machine's (or behind it) and waits until it is
    /// seen: by any process with that clock, and, where it can be told, by the node itself.
    ///
    /// # Errors
    ///
    /// The story has no clocks, or the node has another time.
    pub fn set_clock(&mut self, node: usize, ahead_s: i64) -> Result<()> {
        let clock = self.clocks.get(node).context("this story has no clocks")?;
        let before = seen_ahead_s(clock)?;
        clock.set(ahead_s)?;
        let pid = self.nodes[node].pid().context("no process")?;
        if !is_used_by(clock, pid)? {
            bail!("{} does not use the clock", name(node));
        }
        let admin = self.nodes[node].admin();
        wait(Duration::from_secs(5), "the clock is set", || {
            let seen = seen_ahead_s(clock)?;
            // What was told before was told with the clock as it was.
            let told = if ahead_s > before {
                told_ahead_s(admin)?
            } else {
                seen
            };
            if (seen - ahead_s).abs() > 2 || told < ahead_s - 2 {
                bail!(
                    "{} is {seen} s ahead and tells {told}, not {ahead_s}",
                    name(node)
                );
            }
            Ok(())
        })
    }

    /// Sets a node's wall clock without looking: the node may be frozen.
    ///
    /// # Errors
    ///
    /// The story has no clocks.
    pub fn set_clock_unseen(&self, node: usize, ahead_s: i64) -> Result<()> {
        let clock = self.clocks.get(node).context("this story has no clocks")?;
        clock.set(ahead_s)
    }
}

/// How far the wall clock of a process that uses `clock` is ahead of ours, in seconds.
pub(super) fn seen_ahead_s(clock: &Clock) -> Result<i64> {
    let seen = Command::new("date")
        .arg("+%s")
        .envs(clock.variables())
        .output()?;
    ahead_s(&seen.stdout)
}

/// How far a node's wall clock is ahead of ours, in seconds, by the date in its admin port's
/// answer. It tells the latest date that it ever told: a step back does not show there.
pub(super) fn told_ahead_s(admin: SocketAddr) -> Result<i64> {
    let answer = ask(admin, "GET", "/livez", "", Duration::from_secs(2))?;
    let date = answer
        .head
        .lines()
        .find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case("date").then(|| value.trim())
        })
        .context("the admin port tells no date")?;
    let read = Command::new("date").args(["-d", date, "+%s"]).output()?;
    ahead_s(&read.stdout)
}

fn ahead_s(told: &[u8]) -> Result<i64> {
    let told: i64 = String::from_utf8_lossy(told).trim().parse()?;
    let ours = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    Ok(told - i64::try_from(ours)?)
}

/// Whether a process has the library in its memory.
pub(super) fn is_used_by(clock: &Clock, pid: u32) -> Result<bool> {
    Ok(fs::read_to_string(format!("/proc/{pid}/maps"))?.contains(clock.library))
}
