//! Names that say nothing are not names.

use super::{Finding, Tree};

const EMPTY: &[&str] = &[
    "manager", "handler", "helper", "util", "utils", "helpers", "handlers", "managers", "common",
    "misc",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(".rs") {
        for part in file.path.trim_end_matches(".rs").split('/') {
            if EMPTY.contains(&part) {
                findings.push(Finding::new(
                    &file.path,
                    0,
                    format!("'{part}' says nothing: name it after what it does"),
                ));
            }
        }
        for (number, code) in file.code_lines() {
            if let Some(name) = declared(code) {
                let lower = name.to_lowercase();
                if EMPTY.iter().any(|word| {
                    lower == *word
                        || (lower.ends_with(word) && name.len() > word.len() && is_camel(name))
                }) {
                    findings.push(Finding::new(
                        &file.path,
                        number,
                        format!("'{name}' says nothing: name it after what it does"),
                    ));
                }
            }
        }
    }
    findings
}

fn is_camel(name: &str) -> bool {
    name.starts_with(|c: char| c.is_uppercase())
}

/// The name that a line declares as a type, trait or module.
fn declared(code: &str) -> Option<&str> {
    let mut words = code
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub"));
    let keyword = words.next()?;
    if !matches!(
        keyword,
        "struct" | "enum" | "trait" | "mod" | "type" | "union"
    ) {
        return None;
    }
    words.next().map(|word| {
        word.split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            .unwrap_or(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_words_are_refused_as_files_modules_and_types() {
        let tree = Tree::of(&[
            ("crates/a/src/util.rs", ""),
            (
                "crates/a/src/b.rs",
                "pub(crate) struct SessionManager<T> {}\nmod common;\nstruct Commonality;\n",
            ),
        ]);
        let lines: Vec<_> = check(&tree)
            .into_iter()
            .map(|finding| (finding.path, finding.line))
            .collect();
        assert_eq!(
            lines,
            [
                ("crates/a/src/util.rs".to_owned(), 0),
                ("crates/a/src/b.rs".to_owned(), 1),
                ("crates/a/src/b.rs".to_owned(), 2)
            ]
        );
    }
}
