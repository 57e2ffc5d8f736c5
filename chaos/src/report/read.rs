use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::account::Account;

/// What all instruments left behind.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) chaos: Vec<Account>,
    pub(super) sims: Vec<Sim>,
    pub(super) disks: Vec<Disk>,
    pub(super) seeded: Vec<Seeded>,
}

/// A run of the simulation.
#[derive(Debug, Deserialize)]
pub(super) struct Sim {
    pub(super) seed: u64,
    #[serde(default)]
    pub(super) commit: String,
    pub(super) acknowledged: u64,
    pub(super) unknown: u64,
    /// How often each fault took effect, by number.
    pub(super) faults: BTreeMap<u32, u64>,
    pub(super) sound: bool,
    #[serde(default)]
    pub(super) rejected: bool,
    #[serde(default)]
    pub(super) why: String,
}

/// A story of nodes on a disk that fails on command.
#[derive(Debug, Deserialize)]
pub(super) struct Disk {
    #[serde(flatten)]
    pub(super) account: Account,
    /// What was seen besides.
    #[serde(default)]
    pub(super) figures: Map<String, Value>,
}

/// A bug that was planted.
#[derive(Debug, Deserialize)]
pub(super) struct Seeded {
    pub(super) seeded_bug: String,
    pub(super) does: String,
    pub(super) found: bool,
    pub(super) by: Vec<By>,
    #[serde(default)]
    pub(super) tried: Vec<String>,
}

/// Who found a bug that was planted.
#[derive(Debug, Deserialize)]
pub(super) struct By {
    pub(super) instrument: String,
    pub(super) test: String,
    pub(super) seconds: f64,
}

impl Results {
    /// Reads every `*.jsonl` of a folder. What a line is, it says itself.
    ///
    /// # Errors
    ///
    /// A line that no instrument writes; file and line are named.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let entries = fs::read_dir(folder).with_context(|| {
            format!("no results in {}: run `make chaos` first", folder.display())
        })?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|it| it == "jsonl"));
        files.sort();
        let mut results = Self::default();
        for file in files {
            for (number, line) in fs::read_to_string(&file)?.lines().enumerate() {
                results
                    .add(line)
                    .with_context(|| format!("{}, line {}", file.display(), number + 1))?;
            }
        }
        // Of a bug the newest word counts.
        let mut newest: BTreeMap<String, Seeded> = BTreeMap::new();
        for bug in results.seeded.drain(..) {
            newest.insert(bug.seeded_bug.clone(), bug);
        }
        results.seeded = newest.into_values().collect();
        Ok(results)
    }

    fn add(&mut self, line: &str) -> Result<()> {
        let value: Value = serde_json::from_str(line)?;
        if value["instrument"] == "chaos" {
            self.chaos.push(serde_json::from_value(value)?);
        } else if value["instrument"] == "sim" {
            self.sims.push(serde_json::from_value(value)?);
        } else if value["instrument"] == "disks" {
            self.disks.push(serde_json::from_value(value)?);
        } else if !value["seeded_bug"].is_null() {
            self.seeded.push(serde_json::from_value(value)?);
        } else {
            bail!("no instrument writes such a line");
        }
        Ok(())
    }
}
