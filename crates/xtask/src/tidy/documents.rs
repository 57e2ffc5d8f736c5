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
    unlisted(tree, &mut findings);
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

/// Every setting and every exit code stands in the operator's document.
fn unlisted(tree: &Tree, findings: &mut Vec<Finding>) {
    let document = "docs/operations.md";
    let text_of = |path: &str| tree.files.iter().find(|file| file.path == path);
    let Some(operations) = text_of(document) else {
        return;
    };
    let settings = text_of("crates/trellis/src/config.rs")
        .and_then(|file| file.text.split("pub(crate) struct Config {").nth(1))
        .and_then(|text| text.split("\n}").next())
        .unwrap_or_default();
    for line in settings.lines() {
        let field = line.trim().strip_prefix("pub ");
        if let Some((key, _)) = field.and_then(|field| field.split_once(':'))
            && !operations.text.contains(&format!("`{key}`"))
        {
            findings.push(Finding::new(
                document,
                0,
                format!("the setting `{key}` is missing"),
            ));
        }
    }
    let exits = text_of("crates/trellis/src/exit.rs")
        .and_then(|file| file.text.split("enum Exit {").nth(1))
        .and_then(|text| text.split("\n}").next())
        .unwrap_or_default();
    for line in exits.lines() {
        let variant = line.trim().trim_end_matches(',').split_once(" = ");
        if let Some((_, code)) = variant
            && code.parse::<u8>().is_ok()
            && !operations.text.contains(&format!("\n| {code} |"))
        {
            findings.push(Finding::new(
                document,
                0,
                format!("the exit code {code} is missing"),
            ));
        }
    }
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
    fn an_operator_finds_every_setting_and_exit_code() {
        let tree = Tree::of(&[
            ("docs/operations.md", "| `port` |\n| 0 | stopped |\n"),
            (
                "crates/trellis/src/config.rs",
                "pub(crate) struct Config {\n    pub port: u16,\n    pub user: String,\n}\n",
            ),
            (
                "crates/trellis/src/exit.rs",
                "enum Exit {\n    Done = 0,\n    Disk = 74,\n}\n",
            ),
        ]);
        let mut findings = Vec::new();
        unlisted(&tree, &mut findings);
        let texts: Vec<_> = findings.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "the setting `user` is missing",
                "the exit code 74 is missing"
            ]
        );
    }

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
