use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};
use trellis_types::seeded::Bug;

use super::{build::Suites, hunt::Course, instrument::Instrument};

/// One instrument that found a bug.
pub(super) struct Found {
    pub(super) instrument: Instrument,
    pub(super) test: String,
    pub(super) message: String,
    pub(super) after: Duration,
}

/// The table, and the same as one JSON object a line for `make fault-report`.
pub(super) struct Report {
    results: File,
    commit: String,
    rows: Vec<(Bug, Option<Found>)>,
}

impl Report {
    /// Results go to the file that `SEEDED_RESULTS` names, else to one beside what is built. What
    /// an earlier run found stays; the newest line of a bug counts.
    pub(super) fn begin(root: &Path, suites: &Suites) -> anyhow::Result<Self> {
        let path = std::env::var_os("SEEDED_RESULTS")
            .map_or_else(|| suites.folder.join("results.jsonl"), Into::into);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        println!("results: {}", path.display());
        let results = File::options().create(true).append(true).open(path)?;
        let commit = Command::new("git")
            .current_dir(root)
            .args(["describe", "--always", "--dirty"])
            .output();
        let commit = commit.map_or_else(
            |_| String::new(),
            |out| String::from_utf8_lossy(&out.stdout).trim().to_owned(),
        );
        Ok(Self {
            results,
            commit,
            rows: Vec::new(),
        })
    }

    /// How a story or an instrument fared without a bug. True if it objects to nothing.
    pub(super) fn control(&self, name: &str, course: &Course) -> bool {
        let (passes, words) = match course {
            Course::Nothing { after } => (true, format!("passes ({:.0} s)", after.as_secs_f64())),
            Course::Found { test, message, .. } => (false, format!("FAILS: {test}: {message}")),
            Course::GivenUp { .. } => (false, "came to nothing".to_owned()),
        };
        println!("no bug: {name} {words}");
        passes
    }

    /// Says at once what came of one attempt.
    pub(super) fn tried(&self, bug: Bug, instrument: Instrument, course: &Course) {
        let words = match course {
            Course::Nothing { after } => format!("finds nothing in {:.0} s", after.as_secs_f64()),
            Course::Found {
                test,
                message,
                after,
            } => {
                format!(
                    "finds it in {:.1} s: {test}: {message}",
                    after.as_secs_f64()
                )
            }
            Course::GivenUp { after } => format!("given up after {:.0} s", after.as_secs_f64()),
        };
        println!("{}: {} {words}", bug.name(), instrument.name());
    }

    /// What became of one bug.
    pub(super) fn add(
        &mut self,
        bug: Bug,
        mut found: Vec<Found>,
        tried: Vec<Instrument>,
    ) -> anyhow::Result<()> {
        let by: Vec<Value> = found
            .iter()
            .map(|found| {
                json!({
                    "instrument": found.instrument.name(),
                    "test": found.test,
                    "message": found.message,
                    "seconds": (found.after.as_secs_f64() * 10.0).round() / 10.0,
                })
            })
            .collect();
        let mut tried: Vec<&str> = tried.iter().map(|one| one.name()).collect();
        tried.dedup();
        let line = json!({
            "seeded_bug": bug.name(),
            "does": bug.does(),
            "like": bug.like(),
            "found": !by.is_empty(),
            "by": by,
            "tried": tried,
            "commit": self.commit,
        });
        writeln!(self.results, "{line}")?;
        self.results.flush()?;
        let first = (!found.is_empty()).then(|| found.remove(0));
        self.rows.push((bug, first));
        Ok(())
    }

    /// Prints the table.
    pub(super) fn close(self) -> anyhow::Result<()> {
        println!(
            "\n{:<27} {:<11} {:>7}  test: what it says",
            "bug", "found by", "after"
        );
        for (bug, found) in &self.rows {
            match found {
                Some(found) => println!(
                    "{:<27} {:<11} {:>5.1} s  {}: {}",
                    bug.name(),
                    found.instrument.name(),
                    found.after.as_secs_f64(),
                    found.test,
                    found.message.chars().take(160).collect::<String>(),
                ),
                None => println!("{:<27} NOT FOUND: {}", bug.name(), bug.does()),
            }
        }
        let found = self
            .rows
            .iter()
            .filter(|(_, found)| found.is_some())
            .count();
        println!("{found} of {} seeded bugs found", self.rows.len());
        Ok(())
    }
}
