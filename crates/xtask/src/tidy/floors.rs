//! A crate depends only on crates of lower floors (docs/ARCHITECTURE.md), and some libraries have one home.

use super::{Finding, SourceFile, Tree};

/// The floor of each crate, by the name of its folder in `crates/`.
const FLOORS: &[(&str, u8)] = &[
    ("types", 0),
    ("queue", 1),
    ("wire", 1),
    ("rpc", 2),
    ("consensus", 3),
    ("node", 4),
    ("store", 4),
    ("beanstalk", 5),
    ("http", 5),
    ("trellis", 6),
    ("bench", 6),
];

/// These may depend on any floor. A floor may use them in its tests only.
const STAIRS: &[&str] = &[
    "testkit",
    "checker",
    "sim",
    "xtask",
    "tests",
    "chaos",
    "chaos/disk",
];

/// Libraries that bring tasks, clocks, chance or I/O: nothing for `types`, `queue` and `wire`.
const IMPURE: &[&str] = &[
    "async-trait",
    "axum",
    "futures",
    "libc",
    "mio",
    "openraft",
    "parking_lot",
    "rand",
    "rocksdb",
    "rustix",
    "socket2",
    "tokio",
    "tokio-stream",
    "tokio-util",
    "tonic",
    "tracing",
];

/// A library that only the code under these paths may name.
struct Home {
    library: &'static str,
    paths: &'static [&'static str],
}

const HOMES: &[Home] = &[
    // `store` implements openraft's log storage; its suite for storages is run in store's tests.
    Home {
        library: "openraft",
        paths: &[
            "crates/consensus/",
            "crates/store/src/log",
            "crates/store/src/stories/",
            "crates/store/tests/",
            // Micro-benchmarks of the log.
            "crates/bench/benches/micro/store.rs",
        ],
    },
    Home {
        library: "rocksdb",
        paths: &["crates/store/"],
    },
    Home {
        library: "axum",
        paths: &["crates/http/"],
    },
    Home {
        library: "tonic",
        paths: &[
            "crates/rpc/",
            "crates/consensus/",
            "crates/node/",
            // etcd, which it is compared with, speaks gRPC.
            "crates/bench/src/drive/etcd.rs",
        ],
    },
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in tree.ending("Cargo.toml") {
        check_manifest(manifest, &mut findings);
    }
    for file in tree.ending(".rs") {
        for home in HOMES {
            if home.paths.iter().any(|path| file.path.starts_with(path))
                || file.path.starts_with("crates/xtask/")
            {
                continue;
            }
            for (number, code) in file.code_lines() {
                if names_library(code, home.library) {
                    let text =
                        format!("{} is used only in {}", home.library, home.paths.join(", "));
                    findings.push(Finding::new(&file.path, number, text));
                }
            }
        }
    }
    findings
}

/// True for `library::…`, `use library;` and the like, not for a longer word or a word in prose.
fn names_library(code: &str, library: &str) -> bool {
    let path = format!("{library}::");
    let starts_word = |at: usize| {
        !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '.')
    };
    code.match_indices(&path).any(|(at, _)| starts_word(at))
        || code.trim() == format!("use {library};")
}

fn check_manifest(manifest: &SourceFile, findings: &mut Vec<Finding>) {
    let error = |text: String| Finding::new(&manifest.path, 0, text);
    let table: toml::Table = match manifest.text.parse() {
        Ok(table) => table,
        Err(bad) => return findings.push(error(format!("not TOML: {}", bad.message()))),
    };
    // A fuzz target is a workspace of its own: it is built by another compiler, with other flags.
    if !table.contains_key("package") || table.contains_key("workspace") {
        return;
    }
    if table
        .get("lints")
        .and_then(|lints| lints.get("workspace"))
        .and_then(toml::Value::as_bool)
        != Some(true)
    {
        findings.push(error(
            "a crate takes the workspace's lints: [lints] workspace = true".into(),
        ));
    }

    let folder = manifest.path.trim_end_matches("/Cargo.toml");
    let crate_name = folder.strip_prefix("crates/").unwrap_or(folder);
    if STAIRS.contains(&crate_name) {
        return;
    }
    let Some(floor) = floor_of(crate_name) else {
        return findings.push(error(format!("the crate '{crate_name}' stands on no floor; give it one here and in docs/ARCHITECTURE.md")));
    };

    for (section, tests_only) in [
        ("dependencies", false),
        ("build-dependencies", false),
        ("dev-dependencies", true),
    ] {
        let Some(dependencies) = table.get(section).and_then(toml::Value::as_table) else {
            continue;
        };
        for name in dependencies.keys() {
            if floor <= 1 && !tests_only && IMPURE.contains(&name.as_str()) {
                findings.push(error(format!(
                    "{crate_name} is pure: it can't depend on {name}"
                )));
            }
            let Some(ours) = name.strip_prefix("trellis-") else {
                continue;
            };
            if STAIRS.contains(&ours) {
                if !tests_only {
                    findings.push(error(format!(
                        "{name} is for tests: it belongs in [dev-dependencies]"
                    )));
                }
            } else if floor_of(ours).is_none_or(|lower| lower >= floor) {
                findings.push(error(format!("{crate_name} is on floor {floor}: it depends only on lower floors, not on {name}")));
            }
        }
    }
}

fn floor_of(crate_name: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(name, _)| *name == crate_name)
        .map(|(_, floor)| *floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)]))
            .into_iter()
            .map(|finding| finding.text)
            .collect()
    }

    fn manifest(dependencies: &str) -> String {
        format!("[package]\nname = \"x\"\n[lints]\nworkspace = true\n{dependencies}")
    }

    #[test]
    fn a_crate_may_use_lower_floors_and_no_others() {
        let down = manifest("[dependencies]\ntrellis-queue.workspace = true\n");
        assert!(findings("crates/rpc/Cargo.toml", &down).is_empty());

        let level = manifest("[dependencies]\ntrellis-store.workspace = true\n");
        assert_eq!(
            findings("crates/node/Cargo.toml", &level).len(),
            1,
            "node and store share a floor"
        );

        let up = manifest("[dev-dependencies]\ntrellis-node.workspace = true\n");
        assert_eq!(
            findings("crates/queue/Cargo.toml", &up).len(),
            1,
            "not even in tests"
        );
    }

    #[test]
    fn the_heart_stays_pure() {
        let tokio = manifest("[dependencies]\ntokio.workspace = true\n");
        assert_eq!(findings("crates/queue/Cargo.toml", &tokio).len(), 1);
        assert!(findings("crates/node/Cargo.toml", &tokio).is_empty());
    }

    #[test]
    fn test_tools_stay_out_of_the_product() {
        let product = manifest("[dependencies]\ntrellis-testkit.workspace = true\n");
        assert_eq!(findings("crates/node/Cargo.toml", &product).len(), 1);
        let tests = manifest("[dev-dependencies]\ntrellis-testkit.workspace = true\n");
        assert!(findings("crates/node/Cargo.toml", &tests).is_empty());
    }

    #[test]
    fn openraft_is_named_only_at_home() {
        assert_eq!(
            findings("crates/node/src/a.rs", "use openraft::Raft;\n").len(),
            1
        );
        assert!(findings("crates/node/src/a.rs", "// openraft::Raft would do this\n").is_empty());
        assert!(findings("crates/consensus/src/a.rs", "use openraft::Raft;\n").is_empty());
        assert!(findings("crates/store/src/log/writer.rs", "use openraft::Raft;\n").is_empty());
        assert_eq!(
            findings("crates/store/src/state/mod.rs", "use openraft::Raft;\n").len(),
            1
        );
    }
}
