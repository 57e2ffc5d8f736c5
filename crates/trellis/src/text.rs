//! What the admin port answers, as text for people.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The fields of a status in the order in which somebody reads them who wants to know what is
/// wrong; docs/operations.md says what each means.
const STATUS: [&[&str]; 4] = [
    &[
        "name",
        "node",
        "version",
        "cluster",
        "stage",
        "waits_for",
        "role",
        "leads",
        "leader",
        "term",
    ],
    &[
        "doors_open",
        "origin",
        "draining",
        "puts_refused_here",
        "puts_refused",
        "short_of_disk",
        "quarantined",
        "in_doubt",
        "changes",
    ],
    &[
        "last_log",
        "committed",
        "applied",
        "flushed",
        "snapshot",
        "purged",
        "digest",
        "digest_mismatches",
        "feature_level",
        "feature_level_max",
    ],
    &["jobs", "tubes", "job_bytes", "time_ms", "disk"],
];

/// A node's status: the verdict first, then its fields, then the members.
pub(crate) fn status(status: &Value) -> String {
    let Some(fields) = status.as_object() else {
        return plain_text(status);
    };
    let mut text = verdict(status, "not_ready");
    // Told in the verdict and in the table.
    let mut told = vec!["ready", "not_ready", "members"];
    for group in STATUS {
        let group: Map<String, Value> = group
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), fields.get(*key)?.clone())))
            .filter(|(_, value)| says_something(value))
            .collect();
        if !group.is_empty() {
            text.push('\n');
        }
        for key in STATUS.iter().copied().flatten() {
            if let Some(value) = group.get(*key) {
                write_field(&mut text, key, value, 0);
            }
        }
    }
    told.extend(STATUS.iter().copied().flatten());
    // Of a node that knows more than this binary.
    for (key, value) in fields {
        if !told.contains(&key.as_str()) && says_something(value) {
            write_field(&mut text, key, value, 0);
        }
    }
    if fields.contains_key("members") {
        text.push('\n');
        text.push_str(&table(status));
    }
    text
}

/// What `/readyz` answers: the verdict, then each check.
pub(crate) fn health(said: &Value) -> String {
    let checks = said.get("checks").and_then(Value::as_array);
    let checks: Vec<&Value> = checks.into_iter().flatten().collect();
    let is = |check: &Value| check.get("ok") == Some(&Value::Bool(true));
    let mut text = match said.get("ok") {
        Some(Value::Bool(true)) => "ready\n".to_owned(),
        _ => {
            let found = checks.iter().filter(|check| !is(check));
            let mut found: Vec<String> = found.map(|check| plain(&check["found"])).collect();
            if found.is_empty() {
                found.extend(said.get("stage").map(plain));
            }
            format!("not ready: {}\n", found.join("; "))
        }
    };
    for check in checks {
        let word = if is(check) { "ok" } else { "NO" };
        let (name, found) = (plain(&check["name"]), plain(&check["found"]));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {word}  {name:<10}  {found}");
    }
    text
}

/// One line that says whether the node is ready, and why not. Nothing of a node that is too old to
/// say it.
fn verdict(said: &Value, reasons: &str) -> String {
    match said.get("ready") {
        Some(Value::Bool(true)) => {
            let members = said.get("members").and_then(Value::as_array);
            let voters: Vec<&Value> = members
                .into_iter()
                .flatten()
                .filter(|member| member["voter"] == true)
                .collect();
            let present = voters.iter().filter(|voter| voter["present"] == true);
            format!(
                "ready; {} of {} voters present\n",
                present.count(),
                voters.len()
            )
        }
        Some(_) => {
            let reasons = said.get(reasons).and_then(Value::as_array);
            let reasons: Vec<String> = reasons.into_iter().flatten().map(plain).collect();
            format!("NOT READY: {}\n", reasons.join("; "))
        }
        None => String::new(),
    }
}

/// Whether a field is worth a line.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

/// Members as a table; `-` is what the asked node can't know.
pub(crate) fn table(members: &Value) -> String {
    const COLUMNS: [&str; 9] = [
        "name",
        "node",
        "address",
        "version",
        "voter",
        "leader",
        "present",
        "quarantined",
        "lag",
    ];
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    let members = members.get("members").and_then(Value::as_array);
    rows.extend(members.into_iter().flatten().map(|member| {
        COLUMNS.map(|column| member.get(column).map_or_else(|| "-".to_owned(), plain))
    }));
    rows[1..].sort();
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0))
        .collect();
    let lines = rows.iter().map(|row| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let cells: Vec<String> = cells.collect();
        format!("{}\n", cells.join("  ").trim_end())
    });
    lines.collect()
}

/// JSON for people: one `key: value` line each, what is nested further in.
pub(crate) fn plain_text(value: &Value) -> String {
    let mut text = String::new();
    write_plain(&mut text, value, 0);
    text
}

fn write_plain(text: &mut String, value: &Value, depth: usize) {
    let pad = "  ".repeat(depth);
    // Writing to a string cannot fail.
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                write_field(text, key, value, depth);
            }
        }
        Value::Array(items) => {
            for item in items {
                if is_nested(item) && flat(item).is_none() {
                    let _ = writeln!(text, "{pad}-");
                    write_plain(text, item, depth + 1);
                } else {
                    let item = flat(item).unwrap_or_else(|| plain(item));
                    let _ = writeln!(text, "{pad}- {item}");
                }
            }
        }
        value => {
            let _ = writeln!(text, "{pad}{}", plain(value));
        }
    }
}

fn write_field(text: &mut String, key: &str, value: &Value, depth: usize) {
    let pad = "  ".repeat(depth);
    // Writing to a string cannot fail.
    if let Some(flat) = flat(value) {
        let _ = writeln!(text, "{pad}{key}: {flat}");
    } else if is_nested(value) {
        let _ = writeln!(text, "{pad}{key}:");
        write_plain(text, value, depth + 1);
    } else {
        let _ = writeln!(text, "{pad}{key}: {}", plain(value));
    }
}

/// An object of nothing nested on one line.
fn flat(value: &Value) -> Option<String> {
    let fields = value.as_object().filter(|fields| !fields.is_empty())?;
    if fields.values().any(is_nested) {
        return None;
    }
    let fields = fields
        .iter()
        .map(|(key, value)| format!("{key}: {}", plain(value)));
    Some(fields.collect::<Vec<_>>().join(", "))
}

fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_begins_with_the_verdict_and_ends_with_the_members() {
        let ready = json!({
            "ready": true, "not_ready": [], "name": "a", "waits_for": null, "in_doubt": null,
            "changes": [], "disk": { "free": 1, "total": 2 }, "term": 3, "shoe_size": 44,
            "members": [
                { "name": "a", "voter": true, "present": true, "version": "1", "lag": 0 },
                { "name": "b", "voter": true, "present": false, "version": null, "lag": null },
            ],
        });
        assert_eq!(
            status(&ready),
            "ready; 1 of 2 voters present\n\
             \nname: a\nterm: 3\n\
             \ndisk: free: 1, total: 2\nshoe_size: 44\n\
             \nname  node  address  version  voter  leader  present  quarantined  lag\n\
             a     -     -        1        true   -       true     -            0\n\
             b     -     -        -        true   -       false    -            -\n"
        );
        let out =
            json!({ "ready": false, "not_ready": ["no leader", "closed"], "stage": "running" });
        assert_eq!(
            status(&out),
            "NOT READY: no leader; closed\n\nstage: running\n"
        );
    }

    #[test]
    fn health_begins_with_the_verdict_too() {
        let said = json!({ "ok": false, "checks": [
            { "name": "runtime", "ok": true, "found": "turned" },
            { "name": "leader", "ok": false, "found": "no leader" },
        ]});
        assert_eq!(
            health(&said),
            "not ready: no leader\n  ok  runtime     turned\n  NO  leader      no leader\n"
        );
        let starting = json!({ "ok": false, "checks": [], "stage": "storage is being opened" });
        assert_eq!(health(&starting), "not ready: storage is being opened\n");
        assert_eq!(health(&json!({ "ok": true })), "ready\n");
    }
}
