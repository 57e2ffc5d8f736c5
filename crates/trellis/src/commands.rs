use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::Path,
};

use serde_json::{Value, json};

use crate::{
    admin::Admin,
    args::{AdminArgs, MemberCommand},
    exit::{Ended, Exit},
    serve::storage,
};

/// `trellis status`
pub(crate) fn status(admin: &AdminArgs, as_json: bool) -> Result<(), Ended> {
    let status = Admin::at(&admin.addr).get("/v1/status")?.done()?;
    if as_json {
        print(&format!("{status:#}\n"));
    } else if status.get("members").is_none() {
        print(&plain_text(&status));
    } else {
        let mut status = status;
        let members = status
            .as_object_mut()
            .and_then(|fields| fields.remove("members"));
        let members = json!({ "members": members });
        print(&format!("{}\n{}", plain_text(&status), table(&members)));
    }
    Ok(())
}

/// `trellis health`
pub(crate) fn health(admin: &AdminArgs) -> Result<(), Ended> {
    let said = Admin::at(&admin.addr).get("/readyz")?;
    print(&plain_text(&said.body));
    if said.status == 200 {
        Ok(())
    } else {
        Err(Ended::new(Exit::No, "the node is not ready"))
    }
}

/// `trellis snapshot`
pub(crate) fn snapshot(admin: &AdminArgs) -> Result<(), Ended> {
    told(
        Admin::at(&admin.addr)
            .post("/v1/snapshot", &json!({}))?
            .done()?,
    )
}

/// `trellis drain`
pub(crate) fn drain(admin: &AdminArgs) -> Result<(), Ended> {
    told(
        Admin::at(&admin.addr)
            .post("/v1/drain", &json!({}))?
            .done()?,
    )
}

/// `trellis rebuild`
pub(crate) fn rebuild(admin: &AdminArgs, data_dir: Option<&Path>) -> Result<(), Ended> {
    let Some(folder) = data_dir else {
        let answer = Admin::at(&admin.addr).post("/v1/rebuild", &json!({}))?;
        return told(answer.done()?);
    };
    let evidence = trellis_store::rebuild(folder).map_err(storage::refused)?;
    print(&format!(
        "what it held is in {}; started again, this node joins its cluster as a new member\n",
        evidence.display()
    ));
    Ok(())
}

/// `trellis member …`
pub(crate) fn member(what: MemberCommand) -> Result<(), Ended> {
    match what {
        MemberCommand::List { admin, json } => {
            let members = Admin::at(&admin.addr).get("/v1/members")?.done()?;
            if json {
                print(&format!("{members:#}\n"));
            } else {
                print(&table(&members));
            }
            Ok(())
        }
        MemberCommand::Add { address, admin } => {
            let body = json!({ "address": address });
            told(Admin::at(&admin.addr).post("/v1/members", &body)?.done()?)
        }
        MemberCommand::Remove {
            member,
            force,
            admin,
        } => {
            // It becomes a part of a path.
            let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if member.is_empty() || !member.bytes().all(sound) {
                return Err(Ended::new(
                    Exit::Usage,
                    format!(
                        "MEMBER is {member:?}; allowed is a name or an id (16 hexadecimal digits)"
                    ),
                ));
            }
            let path = format!("/v1/members/{member}?force={force}");
            told(Admin::at(&admin.addr).delete(&path)?.done()?)
        }
        MemberCommand::TransferLeader { member, admin } => {
            let body = json!({ "to": member });
            told(
                Admin::at(&admin.addr)
                    .post("/v1/transfer-leader", &body)?
                    .done()?,
            )
        }
        MemberCommand::Unbind { admin } => told(
            Admin::at(&admin.addr)
                .post("/v1/unbind", &json!({}))?
                .done()?,
        ),
    }
}

/// Says what the node did.
fn told(answer: Value) -> Result<(), Ended> {
    match answer.get("done").and_then(Value::as_str) {
        Some(sentence) => print(&format!("{sentence}\n")),
        None => print(&plain_text(&answer)),
    }
    Ok(())
}

/// Prints; a pipe that is closed on us is no reason to fail.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Members as a table.
fn table(members: &Value) -> String {
    const COLUMNS: [&str; 8] = [
        "name",
        "node",
        "address",
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
fn plain_text(value: &Value) -> String {
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
                if is_nested(value) {
                    let _ = writeln!(text, "{pad}{key}:");
                    write_plain(text, value, depth + 1);
                } else {
                    let _ = writeln!(text, "{pad}{key}: {}", plain(value));
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::Object(fields) if fields.values().all(|value| !is_nested(value)) => {
                        let fields: Vec<String> = fields
                            .iter()
                            .map(|(key, value)| format!("{key}: {}", plain(value)))
                            .collect();
                        let _ = writeln!(text, "{pad}- {}", fields.join(", "));
                    }
                    item if is_nested(item) => {
                        let _ = writeln!(text, "{pad}-");
                        write_plain(text, item, depth + 1);
                    }
                    item => {
                        let _ = writeln!(text, "{pad}- {}", plain(item));
                    }
                }
            }
        }
        value => {
            let _ = writeln!(text, "{pad}{}", plain(value));
        }
    }
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
