use std::{
    io::{self, IsTerminal as _, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use crate::settings::Settings;

/// Sends what is logged to standard error, with colours on a terminal only. `tag` stands before
/// each line when several nodes share one terminal.
pub(crate) fn start(settings: &Settings, tag: Option<String>) {
    // Checked when the settings were made; should it fail all the same, the default will do.
    let filter = EnvFilter::try_new(with_quiet_raft(&settings.log)).unwrap_or_default();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // A standard error that nobody reads any more is no reason to panic.
        .log_internal_errors(false)
        .with_writer(Tagged {
            tag: tag.filter(|_| !settings.log_json),
        });
    let started = if settings.log_json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.try_init()
    };
    if let Err(error) = started {
        eprintln!("trellis: nothing will be logged: {error}");
    }
}

/// What openraft's lines are filtered by.
const RAFT: &str = "openraft";

static SILENT: AtomicBool = AtomicBool::new(false);

/// From now on nothing is logged: the reason why the process ends is to be the last line, and other threads see the
/// consequences of it before they are gone.
pub(crate) fn fall_silent() {
    // Whoever is writing a line has the lock until it is written, so none comes later.
    let _between_lines = io::stderr().lock();
    SILENT.store(true, Ordering::SeqCst);
}

/// openraft tells every vote and every failed attempt in its own words; what an operator needs to know of it is
/// said by us. Its module `raft` adds an error each time that nobody waits any more for what it was asked, as when a
/// client hangs up in the middle of a read; whoever does wait is told by what it returns. Whoever names it in the
/// filter gets what they ask for.
fn with_quiet_raft(filter: &str) -> String {
    if filter.contains(RAFT) {
        filter.to_owned()
    } else {
        format!("{RAFT}=error,{RAFT}::raft=off,{filter}")
    }
}

/// Standard error, with a tag before each line.
struct Tagged {
    tag: Option<String>,
}

/// One line on its way; written with one call, so that the lines of several processes do not mix.
struct Line {
    bytes: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Tagged {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        let mut bytes = Vec::with_capacity(256);
        if let Some(tag) = &self.tag {
            bytes.extend_from_slice(tag.as_bytes());
            bytes.extend_from_slice(b" | ");
        }
        Line { bytes }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut stderr = io::stderr().lock();
        if SILENT.load(Ordering::SeqCst) {
            return;
        }
        // Nowhere to complain if standard error is gone.
        let _ = stderr.write_all(&self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With hundreds of lines at ERROR a healthy node looks like a broken one.
    #[test]
    fn a_read_that_nobody_waits_for_any_more_is_no_error() {
        let filter = EnvFilter::try_new(with_quiet_raft("info")).expect("it is a filter");
        let heard = filter.to_string();
        assert!(heard.contains(&format!("{RAFT}::raft=off")), "{heard}");
        assert!(heard.contains("openraft=error"), "{heard}");
        assert_eq!(with_quiet_raft("openraft=debug"), "openraft=debug");
    }
}
