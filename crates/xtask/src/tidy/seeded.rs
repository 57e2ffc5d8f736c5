//! Bugs on purpose (`crates/types/src/seeded.rs`) are in no build that did not ask for them by name.

use super::{Finding, Tree};

/// Where the feature is defined, and the one file that it changes.
const MANIFEST: &str = "crates/types/Cargo.toml";
const SOURCE: &str = "crates/types/src/seeded.rs";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut object = |path: &str, number: usize, text: &str| {
        findings.push(Finding::new(path, number, text));
    };
    for file in tree.ending("Cargo.toml") {
        for (number, line) in file.lines() {
            let code = line.split('#').next().unwrap_or_default().trim();
            let here = file.path == MANIFEST && code == "seeded-bugs = []";
            if code.contains("seeded-bugs") && !here {
                object(
                    &file.path,
                    number,
                    "no manifest turns seeded-bugs on: `cargo xtask seeded-bugs` does, for itself",
                );
            }
        }
    }
    for file in tree.ending(".rs") {
        if file.path == SOURCE || file.path.starts_with("crates/xtask/") {
            continue;
        }
        for (number, code) in file.code_lines() {
            if code.contains("\"seeded-bugs\"") {
                object(
                    &file.path,
                    number,
                    "the feature seeded-bugs changes one file: ask `planted` instead",
                );
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&Tree::of(&[(path, text)]));
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn only_its_own_manifest_names_the_feature_and_nothing_turns_it_on() {
        assert!(lines(MANIFEST, "[features]\n# seeded-bugs\nseeded-bugs = []\n").is_empty());
        assert_eq!(lines(MANIFEST, "default = [\"seeded-bugs\"]\n"), [1]);
        let dependency = "trellis-types = { features = [\"seeded-bugs\"] }\n";
        assert_eq!(lines("crates/node/Cargo.toml", dependency), [1]);
    }

    #[test]
    fn only_one_file_knows_whether_it_is_on() {
        let code = "#[cfg(feature = \"seeded-bugs\")]\nfn bug() {}\n";
        assert!(lines(SOURCE, code).is_empty());
        assert_eq!(lines("crates/node/src/a.rs", code), [1]);
    }
}
