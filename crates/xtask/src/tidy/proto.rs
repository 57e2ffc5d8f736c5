//! What is on disk or between nodes is protobuf, and a field's number is a promise.

use std::collections::BTreeMap;

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(".proto") {
        // Numbers seen, by nesting: a oneof shares its message's numbers, a nested message has its own.
        let mut scopes: Vec<Scope> = Vec::new();
        for (number, line) in file.code_lines() {
            let code = line.trim();
            for word in code.split_inclusive(['{', '}', ';']) {
                if word.ends_with('{') {
                    scopes.push(Scope::opened_by(word));
                } else if word.ends_with('}') {
                    scopes.pop();
                } else if let Some(field) = field_number(word)
                    && let Some(scope) = scopes.iter_mut().rev().find(|scope| !scope.is_oneof)
                    && let Some(first) = scope.seen.insert(field, number)
                {
                    let text =
                        format!("number {field} is taken in line {first} of the same message");
                    findings.push(Finding::new(&file.path, number, text));
                }
            }
        }
        if !file.text.contains("package trellis") {
            findings.push(Finding::new(
                &file.path,
                0,
                "the package's name starts with trellis",
            ));
        }
    }
    findings
}

#[derive(Default)]
struct Scope {
    is_oneof: bool,
    /// Field number → the line where it was given.
    seen: BTreeMap<u32, usize>,
}

impl Scope {
    fn opened_by(words: &str) -> Self {
        Self {
            is_oneof: words.trim_start().starts_with("oneof"),
            ..Self::default()
        }
    }
}

/// The number of a statement such as `bytes body = 4;`.
fn field_number(statement: &str) -> Option<u32> {
    let statement = statement.trim().trim_end_matches(';');
    if ["syntax", "option", "package", "reserved", "import"]
        .iter()
        .any(|word| statement.starts_with(word))
    {
        return None;
    }
    let (_, value) = statement.split_once('=')?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_once_per_message() {
        let text = "package trellis.queue;\nmessage A {\n  uint64 a = 1;\n  oneof b {\n    bytes c = 1;\n  }\n}\nmessage D { uint64 a = 1; }\n";
        let lines: Vec<_> = check(&Tree::of(&[("proto/a.proto", text)]))
            .into_iter()
            .map(|f| f.line)
            .collect();
        assert_eq!(lines, [5]);
    }
}
