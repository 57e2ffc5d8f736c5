//! A file that can't be read in one sitting wants splitting.

use super::{Finding, Tree};

const LINES_GOOD: usize = 500;
const LINES_MAX: usize = 1000;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(".rs") {
        match file.text.lines().count() {
            lines if lines > LINES_MAX => {
                findings.push(Finding::new(
                    &file.path,
                    0,
                    format!("{lines} lines, at most {LINES_MAX}: split it"),
                ));
            }
            lines if lines > LINES_GOOD => {
                findings.push(Finding::warning(
                    &file.path,
                    0,
                    format!("{lines} lines: above {LINES_GOOD} it wants splitting"),
                ));
            }
            _ => {}
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_is_a_warning_and_too_long_an_error() {
        let tree = Tree::of(&[
            ("a.rs", &"\n".repeat(500)),
            ("b.rs", &"\n".repeat(501)),
            ("c.rs", &"\n".repeat(1001)),
        ]);
        let found: Vec<_> = check(&tree)
            .into_iter()
            .map(|finding| (finding.path, finding.warning))
            .collect();
        assert_eq!(
            found,
            [("b.rs".to_owned(), true), ("c.rs".to_owned(), false)]
        );
    }
}
