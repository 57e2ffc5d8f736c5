//! The documents a user is promised exist, and what they point at exists too.

use super::{Finding, Tree};

const PROMISED: &[&str] = &[
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "docs/ARCHITECTURE.md",
    "docs/COMPAT.md",
    "docs/operations.md",
    "docs/adr/0000-template.md",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<_> = PROMISED
        .iter()
        .filter(|path| !tree.has(path))
        .map(|path| Finding::new(path, 0, "this document is missing"))
        .collect();
    for file in tree.ending(".md") {
        for (number, line) in file.lines() {
            for target in links(line) {
                let path = resolve(&file.path, target);
                let folder = format!("{}/", path.trim_end_matches('/'));
                if !tree.has(&path)
                    && !tree
                        .files
                        .iter()
                        .any(|other| other.path.starts_with(&folder))
                {
                    findings.push(Finding::new(
                        &file.path,
                        number,
                        format!("the link to '{target}' leads nowhere"),
                    ));
                }
            }
        }
    }
    findings
}

/// The targets of `[text](target)` that are files here.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?;
        let path = target.split('#').next()?;
        (!path.is_empty() && !path.contains("://") && !path.starts_with("mailto:")).then_some(path)
    })
}

/// Where a link in `document` leads, relative to the workspace.
fn resolve(document: &str, target: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_from_where_they_stand() {
        assert_eq!(
            resolve("docs/adr/0001-rows.md", "../ARCHITECTURE.md"),
            "docs/ARCHITECTURE.md"
        );
        assert_eq!(
            resolve("README.md", "docs/operations.md"),
            "docs/operations.md"
        );
        let found: Vec<_> =
            links("see [a](docs/a.md#part), [b](https://example.org) and [c](#here)").collect();
        assert_eq!(found, ["docs/a.md"]);
    }
}
