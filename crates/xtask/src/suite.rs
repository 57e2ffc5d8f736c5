//! `cargo xtask test`: all tests, and one line that sums them up.
//!
//! cargo prints one summary per test binary, and the last of them is often of a binary without tests. A person (or a
//! program) who looks at the end of the output should see how the whole run went.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

/// What all test binaries together reported.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Tally {
    /// Adds what a line of cargo's output says, if it is a summary such as
    /// `test result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    fn add_line(&mut self, line: &str) {
        let Some(summary) = line.strip_prefix("test result: ") else {
            return;
        };
        let figures = summary
            .split_once(". ")
            .map_or(summary, |(_, figures)| figures);
        for figure in figures.split(';') {
            match figure.trim().split_once(' ') {
                Some((n, "passed")) => self.passed += n.parse().unwrap_or(0),
                Some((n, "failed")) => self.failed += n.parse().unwrap_or(0),
                Some((n, "ignored")) => self.skipped += n.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

/// Runs the tests, repeats cargo's output as it comes, and closes with the sum. False if anything failed.
pub(crate) fn run(root: &Path, args: Vec<String>) -> anyhow::Result<bool> {
    let mut tally = Tally::default();
    let mut sound = true;

    // All failures are of interest, not only those of the first crate that has one.
    let mut kinds = vec![vec!["--lib", "--bins", "--tests"], vec!["--doc"]];
    if !args.is_empty() {
        kinds = vec![vec![]];
    }
    for kind in kinds {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .current_dir(root)
            .args(["test", "--workspace", "--no-fail-fast"])
            .args(kind)
            .args(&args);
        sound &= follow(&mut cargo, &mut tally).context("cargo test")?;
    }

    if tally.passed + tally.failed == 0 {
        eprintln!("xtask: no test ran");
        sound = false;
    }
    if !sound && tally.failed == 0 {
        eprintln!(
            "xtask: cargo test failed without a failed test: something does not build, or a test binary died"
        );
    }
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    Ok(sound && tally.failed == 0)
}

/// Runs one command, its standard output going both to ours and into the tally.
fn follow(command: &mut Command, tally: &mut Tally) -> anyhow::Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().context("no pipe to the child")?;
    let mut out = std::io::stdout().lock();
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        // A test may print any bytes; they are passed on as they are.
        out.write_all(&line)?;
        out.write_all(b"\n")?;
        out.flush()?;
        tally.add_line(&String::from_utf8_lossy(&line));
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_several_binaries_add_up_and_other_lines_do_not_count() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.01s",
            "test result: FAILED. 4 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.20s",
            "a job said: 9 passed; 9 failed",
        ] {
            tally.add_line(line);
        }
        assert_eq!(
            tally,
            Tally {
                passed: 7,
                failed: 1,
                skipped: 2
            }
        );
    }
}
