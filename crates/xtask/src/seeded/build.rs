use std::{
    collections::BTreeMap,
    fs,
    io::BufReader,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};
use serde_json::Value;

use super::instrument::{Program, Step};

/// The feature that compiles the bugs in; nothing else ever asks for it.
const FEATURE: &str = "trellis-types/seeded-bugs";

/// The suites with all bugs in them, built when they are first asked for.
pub(super) struct Suites {
    root: PathBuf,
    built: BTreeMap<String, Vec<Suite>>,
    /// A folder of ours beside what is built.
    pub(super) folder: PathBuf,
}

/// One program with a test harness.
struct Suite {
    kind: String,
    name: String,
    path: PathBuf,
}

impl Suites {
    pub(super) fn new(root: &Path) -> anyhow::Result<Self> {
        let here = std::env::current_exe()?;
        let folder = here.parent().context("this program lies nowhere")?;
        Ok(Self {
            root: root.to_owned(),
            built: BTreeMap::new(),
            folder: folder.join("seeded-bugs"),
        })
    }

    /// The programs of a step.
    pub(super) fn programs(&mut self, step: &Step) -> anyhow::Result<Vec<PathBuf>> {
        if let Program::Binary(name, _) = step.program {
            return Ok(vec![self.binary(step.package, name)?]);
        }
        if !self.built.contains_key(step.package) {
            let built = self.cargo("test", step.package, &["--no-run", "--lib", "--tests"]);
            let suites: Vec<Suite> = built?.iter().filter_map(suite).collect();
            self.built.insert(step.package.to_owned(), suites);
        }
        let found: Vec<PathBuf> = self
            .built
            .get(step.package)
            .into_iter()
            .flatten()
            .filter(|suite| match step.program {
                Program::UnitTests => suite.kind == "lib",
                Program::Tests(None) => suite.kind == "test",
                Program::Tests(Some(name)) => suite.kind == "test" && suite.name == name,
                Program::Binary(..) => false,
            })
            .map(|suite| suite.path.clone())
            .collect();
        if found.is_empty() {
            bail!(
                "{} has no such suite any more: crates/xtask/src/seeded names it",
                step.package
            );
        }
        Ok(found)
    }

    /// The folder in which cargo would run the tests of a package.
    pub(super) fn home(&self, package: &str) -> PathBuf {
        match package.strip_prefix("trellis-") {
            Some("tests") => self.root.join("tests"),
            Some(name) => self.root.join("crates").join(name),
            None => self.root.join("crates").join(package),
        }
    }

    /// A binary with all bugs in it, apart from the product's, which lies where cargo laid it.
    pub(super) fn binary(&mut self, package: &str, name: &str) -> anyhow::Result<PathBuf> {
        let own = self.folder.join("bin").join(name);
        let key = format!("{package}/{name}");
        if self.built.contains_key(&key) {
            return Ok(own);
        }
        fs::create_dir_all(self.folder.join("bin"))?;
        let place = self.folder.with_file_name(name);
        let product = self.folder.join(format!("{name}.product"));
        if product.exists() {
            fs::remove_file(&product)?;
        }
        if place.exists() {
            fs::hard_link(&place, &product)?;
        }
        let built = self.cargo("build", package, &["--bin", name]);
        if built.is_ok() {
            fs::rename(&place, &own)?;
        }
        if product.exists() {
            fs::rename(&product, &place)?;
        }
        built?;
        self.built.insert(key, Vec::new());
        Ok(own)
    }

    /// What cargo says of a build with the feature.
    fn cargo(&self, word: &str, package: &str, args: &[&str]) -> anyhow::Result<Vec<Value>> {
        let mut child = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(&self.root)
            .args([word, "--package", package, "--features", FEATURE])
            .args(["--message-format", "json-render-diagnostics"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cargo")?;
        let output = child.stdout.take().context("no pipe to cargo")?;
        let messages = serde_json::Deserializer::from_reader(BufReader::new(output))
            .into_iter()
            .collect::<Result<Vec<Value>, _>>()
            .context("what cargo says of the build")?;
        if !child.wait()?.success() {
            bail!("{package} does not build with the feature {FEATURE}");
        }
        Ok(messages)
    }
}

/// What one message of cargo says of a suite.
fn suite(message: &Value) -> Option<Suite> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    Some(Suite {
        kind: message["target"]["kind"][0].as_str()?.to_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        path: PathBuf::from(message["executable"].as_str()?),
    })
}
