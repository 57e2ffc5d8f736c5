//! Words that never belong in a commit.

use super::{Finding, Tree};

/// In Rust code: left-overs, and tests that do not run.
const IN_RUST: &[(&str, &str)] = &[
    ("todo!", "unfinished"),
    ("unimplemented!", "unfinished"),
    ("dbg!", "left over from a search"),
    (
        "#[ignore",
        "a test that does not run proves nothing; give a long one its own make target",
    ),
];

/// In any text: left-overs, and paths of one machine.
const ANYWHERE: &[(&str, &str)] = &[
    ("/root/", "a path of one machine"),
    ("/work/", "a path of one machine"),
    ("<<<<<<< ", "left over from a merge"),
    (">>>>>>> ", "left over from a merge"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        // The rules name what they forbid; the lock file is cargo's.
        if file.path.starts_with("crates/xtask/src/tidy/") || file.path.ends_with(".lock") {
            continue;
        }
        for (number, line) in file.lines() {
            for (word, reason) in ANYWHERE {
                if line.contains(word) {
                    findings.push(Finding::new(
                        &file.path,
                        number,
                        format!("'{}': {reason}", word.trim()),
                    ));
                }
            }
        }
        if !file.path.ends_with(".rs") {
            continue;
        }
        for (number, code) in file.code_lines() {
            for (word, reason) in IN_RUST {
                if code.contains(word) {
                    findings.push(Finding::new(
                        &file.path,
                        number,
                        format!("'{word}': {reason}"),
                    ));
                }
            }
        }
        if is_crate_root(&file.path) && !file.text.starts_with("//!") {
            findings.push(Finding::new(
                &file.path,
                1,
                "a crate starts with a //! comment that says what it is",
            ));
        }
    }
    findings
}

fn is_crate_root(path: &str) -> bool {
    path.starts_with("crates/") && (path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_overs_are_found_in_code_and_not_in_comments() {
        let tree = Tree::of(&[(
            "crates/a/src/b.rs",
            "fn f() { todo!() }\n// no todo! here\n#[ignore]\n",
        )]);
        let lines: Vec<_> = check(&tree)
            .into_iter()
            .map(|finding| finding.line)
            .collect();
        assert_eq!(lines, [1, 3]);
    }

    #[test]
    fn a_crate_says_what_it_is() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "pub mod b;\n"),
            ("crates/c/src/lib.rs", "//! Words.\n"),
        ]);
        assert_eq!(check(&tree).len(), 1);
    }
}
