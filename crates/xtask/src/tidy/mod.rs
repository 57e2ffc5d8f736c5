//! `cargo xtask tidy`: the house rules, as far as a program can check them.
//!
//! Each rule is a function from the [`Tree`] to findings and lives in a file of its own. A rule that no longer fits is
//! changed here, in the open; there is no list of exceptions elsewhere.

mod documents;
mod floors;
mod names;
mod proto;
mod seeded;
mod sizes;
mod tree;
mod words;

use std::fmt;
use std::path::Path;

pub(crate) use tree::{SourceFile, Tree};

/// Something that a rule objects to.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the workspace.
    path: String,
    /// Counted from 1; 0 if it concerns the whole file.
    line: usize,
    text: String,
    /// A warning is shown and fails nothing.
    warning: bool,
}

impl Finding {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            text: text.into(),
            warning: false,
        }
    }

    fn warning(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self {
            warning: true,
            ..Self::new(path, line, text)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning" } else { "error" };
        match self.line {
            0 => write!(f, "{kind}: {}: {}", self.path, self.text),
            line => write!(f, "{kind}: {}:{line}: {}", self.path, self.text),
        }
    }
}

/// Checks every rule and prints what it finds. True if nothing but warnings was found.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let tree = Tree::read(root)?;
    let rules: [fn(&Tree) -> Vec<Finding>; 7] = [
        floors::check,
        names::check,
        words::check,
        sizes::check,
        documents::check,
        proto::check,
        seeded::check,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    let errors = findings.iter().filter(|finding| !finding.warning).count();
    eprintln!(
        "tidy: {} files, {errors} errors, {} warnings",
        tree.files.len(),
        findings.len() - errors
    );
    Ok(errors == 0)
}
