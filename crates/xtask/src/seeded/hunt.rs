use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use trellis_types::seeded::Bug;

use super::{
    build::Suites,
    instrument::{Instrument, Program, Step},
};

/// How an instrument fared.
pub(super) enum Course {
    /// It came to its end and objects to nothing.
    Nothing { after: Duration },
    /// It objects.
    Found {
        /// What failed.
        test: String,
        /// In its own words.
        message: String,
        /// Since it was started.
        after: Duration,
    },
    /// It did not come to its end in time, which proves nothing on a busy machine.
    GivenUp { after: Duration },
}

/// Runs an instrument with a bug, or without any; of its tests `only` the one of that name, if given.
pub(super) fn hunt(
    suites: &mut Suites,
    instrument: Instrument,
    bug: Option<Bug>,
    only: Option<&str>,
) -> anyhow::Result<Course> {
    let steps = instrument.steps();
    // Building is no part of it.
    let mut programs = Vec::new();
    for step in &steps {
        programs.extend(
            suites
                .programs(step)?
                .into_iter()
                .map(|program| (step, program)),
        );
    }
    if instrument.wants_product() {
        suites.binary("trellis", "trellis")?;
    }
    let begin = Instant::now();
    let mut told = only.is_none();
    for (step, program) in programs {
        let mut command = command(suites, step, &program);
        command.args(only);
        match bug {
            Some(bug) => command.env("SEEDED_BUG", bug.name()),
            None => command.env_remove("SEEDED_BUG"),
        };
        let seen = Run::of(command, step.bound, instrument.can_be_cut_off())?;
        let after = begin.elapsed();
        told |= only.is_some_and(|name| seen.tells_of(name));
        if seen.is_rejected() {
            return Ok(Course::GivenUp { after });
        }
        if let Some((test, message)) = seen.objection(step) {
            return Ok(Course::Found {
                test,
                message,
                after,
            });
        }
        if seen.given_up {
            return Ok(Course::GivenUp { after });
        }
    }
    if !told {
        bail!(
            "{} has no test {only:?} any more: crates/xtask/src/seeded/plan.rs names it",
            instrument.name()
        );
    }
    Ok(Course::Nothing {
        after: begin.elapsed(),
    })
}

fn command(suites: &Suites, step: &Step, program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(match step.program {
            // What it leaves behind is nobody's.
            Program::Binary(..) => suites.folder.clone(),
            _ => suites.home(step.package),
        })
        .env("TRELLIS_BIN", suites.folder.join("bin/trellis"))
        .env("RUST_BACKTRACE", "0")
        // Nothing that a bug has caused is a regression to be kept.
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    match &step.program {
        // Panics are told at once, and so is each failed test.
        Program::UnitTests | Program::Tests(_) => {
            command.args(["--nocapture", "--test-threads", "2"]);
        }
        Program::Binary(_, args) => {
            command.args(*args);
        }
    }
    command
}

/// What was seen of one program.
struct Run {
    /// Both its outputs, in about the order of their coming.
    lines: Vec<String>,
    failed: bool,
    given_up: bool,
}

impl Run {
    fn of(mut command: Command, bound: Duration, cut_off: bool) -> anyhow::Result<Self> {
        let until = Instant::now() + bound;
        let mut child = command
            .spawn()
            .with_context(|| format!("{}", command.get_program().display()))?;
        let (sender, coming) = mpsc::channel();
        let outputs = [
            child
                .stdout
                .take()
                .map(|it| Box::new(it) as Box<dyn Read + Send>),
            child
                .stderr
                .take()
                .map(|it| Box::new(it) as Box<dyn Read + Send>),
        ];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                    // Who does not listen any more has seen enough.
                    let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
                }
            });
        }
        drop(sender);
        let mut run = Self {
            lines: Vec::new(),
            failed: false,
            given_up: false,
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match coming.recv_timeout(left) {
                Ok(line) => {
                    let hit = failed_test(&line).is_some();
                    run.lines.push(line);
                    if hit && cut_off {
                        // Its last words may still be on their way through the other pipe.
                        while let Ok(line) = coming.recv_timeout(Duration::from_millis(300)) {
                            run.lines.push(line);
                        }
                        end(&mut child)?;
                        return Ok(run);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    run.given_up = true;
                    end(&mut child)?;
                    return Ok(run);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        run.failed = !child.wait()?.success();
        Ok(run)
    }

    /// Whether a test of that name was begun.
    fn tells_of(&self, name: &str) -> bool {
        self.lines
            .iter()
            .filter_map(|line| line.strip_prefix("test "))
            .any(|line| {
                line.split(' ')
                    .next()
                    .is_some_and(|test| is_called(test, name))
            })
    }

    /// Whether too little happened for the checker to say anything.
    fn is_rejected(&self) -> bool {
        let says = |word: &str| self.lines.iter().any(|line| line.starts_with(word));
        says("REJECTED: ") && !says("BROKEN ")
    }

    /// What it objects to, if it does.
    fn objection(&self, step: &Step) -> Option<(String, String)> {
        if let Some(test) = self.lines.iter().find_map(|line| failed_test(line)) {
            return Some((test.to_owned(), self.last_words(test)));
        }
        if !self.failed {
            return None;
        }
        let Program::Binary(name, args) = &step.program else {
            let panic = self
                .lines
                .iter()
                .position(|line| line.contains("panicked at"));
            let message = panic.map_or_else(|| self.last_line(), |at| self.words_from(at + 1));
            return Some(("the whole suite".to_owned(), message));
        };
        let word = args.first().copied().unwrap_or_default();
        // The simulation says which promise of the list is broken, and on the next line by what; and
        // in the end which seed it was. The model says it behind the line that shows how to replay.
        let broken = self
            .lines
            .iter()
            .position(|line| line.starts_with("BROKEN "))
            .or_else(|| {
                let short = |line: &String| line.contains("FALLS SHORT: ");
                self.lines.iter().position(short)
            });
        let replay = self
            .lines
            .iter()
            .rposition(|line| line.starts_with("replay: "))
            .map(|at| at + 1);
        let message = match broken.or(replay) {
            Some(at) => self.words_from(at),
            None => self.last_line(),
        };
        let seed = self
            .lines
            .iter()
            .find(|line| line.starts_with("seed ") && line.ends_with(": BROKEN"))
            .and_then(|line| line.split(' ').nth(1))
            .map_or_else(String::new, |seed| format!(", seed {seed}"));
        let name = format!("{name} {word}{seed}");
        Some((name, message))
    }

    /// What a test said when it panicked.
    fn last_words(&self, test: &str) -> String {
        let beginning = format!("thread '{test}'");
        let said = self
            .lines
            .iter()
            .rposition(|line| line.starts_with(&beginning) && line.contains("panicked at"));
        match said {
            Some(at) => self.words_from(at + 1),
            None => "it said nothing".to_owned(),
        }
    }

    fn last_line(&self) -> String {
        let last = self.lines.iter().rfind(|line| !line.trim().is_empty());
        last.map_or("it ended badly", |line| line.trim()).to_owned()
    }

    /// A message that begins there, up to what is enough to know it by.
    fn words_from(&self, at: usize) -> String {
        let words: Vec<&str> = self
            .lines
            .iter()
            .skip(at)
            .map(|line| line.trim())
            .take_while(|line| {
                !["note: ", "thread '", "minimal failing input"]
                    .iter()
                    .any(|end| line.starts_with(end))
            })
            .filter(|line| !line.is_empty() && !line.starts_with("test "))
            .take(4)
            .collect();
        words.join("; ").chars().take(400).collect()
    }
}

/// Whether the last part of a test's path is that name.
fn is_called(test: &str, name: &str) -> bool {
    test.rsplit("::").next() == Some(name)
}

/// The name of the test that failed, if the line says so.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

fn end(child: &mut Child) -> anyhow::Result<()> {
    // It may have ended by itself.
    let _ = child.kill();
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_found_with_its_last_words() {
        let lines = [
            "running 2 tests",
            "thread 'a::b' (17) panicked at crates/a/src/b.rs:1:2:",
            "assertion failed: the job is gone",
            "note: run with `RUST_BACKTRACE=1`",
            "test a::c ... ok",
            "test a::b ... FAILED",
        ];
        let run = Run {
            lines: lines.map(str::to_owned).to_vec(),
            failed: true,
            given_up: false,
        };
        let step = Step {
            package: "a",
            program: Program::UnitTests,
            bound: Duration::ZERO,
        };
        let found = run.objection(&step).expect("an objection");
        assert_eq!(found.0, "a::b");
        assert_eq!(found.1, "assertion failed: the job is gone");
    }
}
