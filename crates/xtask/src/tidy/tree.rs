//! The files of the project, read once for all rules.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// Every text file that git knows or would know.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<SourceFile>,
}

/// One text file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Tree {
    /// Asks git for the files (those not yet added too) and reads them. Binary files are left out.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let listed = Command::new("git")
            .current_dir(root)
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
                "--deduplicate",
            ])
            .output()
            .context("git is needed to list the project's files")?;
        if !listed.status.success() {
            bail!(
                "git ls-files: {}",
                String::from_utf8_lossy(&listed.stderr).trim()
            );
        }
        let mut files = Vec::new();
        for path in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
            // A file that was deleted but is still in the index is nobody's concern here.
            let Ok(bytes) = std::fs::read(root.join(path)) else {
                continue;
            };
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(SourceFile {
                    path: path.to_owned(),
                    text,
                });
            }
        }
        Ok(Self { files })
    }

    /// The files whose names end so, `.rs` for instance.
    pub(crate) fn ending<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = &'a SourceFile> {
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(suffix))
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.files.iter().any(|file| file.path == path)
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| SourceFile {
            path: path.into(),
            text: text.into(),
        };
        Self {
            files: files.iter().map(file).collect(),
        }
    }
}

impl SourceFile {
    /// The lines with their numbers, counted from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }

    /// Like [`lines`](Self::lines), each cut where a `//` comment starts. A `//` inside a string cuts too, which makes
    /// a rule miss something there and never accuse wrongly.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines()
            .map(|(number, line)| (number, line.split("//").next().unwrap_or_default()))
    }
}
