//! How often a server makes data durable, counted in a pass of its own: being watched slows it.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;

/// Why calls can't be counted here; `None` if they can.
pub(crate) fn hindrance() -> Option<String> {
    let tried = Command::new("strace")
        .args(["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e"])
        .args(["trace=fsync", "true"])
        .output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .next()
                .unwrap_or("strace fails")
                .to_owned(),
        ),
        Err(error) => Some(format!("strace: {error}")),
    }
}

/// Seconds since the epoch, as strace writes them.
pub(crate) fn moment() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// Calls that began between two moments, in what strace wrote.
pub(crate) fn count(trace: &Path, from: f64, until: f64) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(trace)
        .with_context(|| format!("can't read {}", trace.display()))?;
    Ok(text
        .lines()
        .filter_map(began)
        .filter(|moment| (from..until).contains(moment))
        .count() as u64)
}

/// When the call of a line began; `None` if the line is only of its end, or of something else.
fn began(line: &str) -> Option<f64> {
    // "1234  1790000000.123456 fdatasync(7) = 0", or "... fsync(7 <unfinished ...>" and later "<... fsync resumed>"
    let mut words = line.split_ascii_whitespace();
    let (_pid, moment, call) = (words.next()?, words.next()?, words.next()?);
    let called = ["fsync(", "fdatasync(", "sync_file_range(", "msync("];
    called
        .iter()
        .any(|name| call.starts_with(name))
        .then(|| moment.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_once_and_when_it_began() {
        let lines = "\
12 100.5 fdatasync(7) = 0
12 101.0 fsync(8 <unfinished ...>
13 101.1 fdatasync(9) = 0
12 101.2 <... fsync resumed>) = 0
12 101.3 +++ exited with 0 +++
14 102.0 fsync(8) = 0
";
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), lines).expect("it is written");
        assert_eq!(count(file.path(), 101.0, 102.0).expect("sound"), 2);
    }
}
