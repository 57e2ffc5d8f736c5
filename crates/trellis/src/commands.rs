use serde_json::{Value, json};

use crate::{
    admin::Admin,
    args::{AdminArgs, MemberCommand},
    exit::{Ended, Exit},
};

/// `trellis status`
pub(crate) fn status(admin: &AdminArgs, as_json: bool) -> Result<(), Ended> {
    let status = Admin::at(&admin.addr).get("/v1/status")?.done()?;
    if as_json {
        println!("{status:#}");
    } else {
        print_plain(&status, 0);
    }
    Ok(())
}

/// `trellis health`
pub(crate) fn health(admin: &AdminArgs) -> Result<(), Ended> {
    let said = Admin::at(&admin.addr).get("/readyz")?;
    print_plain(&said.body, 0);
    if said.status == 200 { Ok(()) } else { Err(Ended::new(Exit::No, "the node is not ready")) }
}

/// `trellis snapshot`
pub(crate) fn snapshot(admin: &AdminArgs) -> Result<(), Ended> {
    told(Admin::at(&admin.addr).post("/v1/snapshot", &json!({}))?.done()?)
}

/// `trellis drain`
pub(crate) fn drain(admin: &AdminArgs) -> Result<(), Ended> {
    told(Admin::at(&admin.addr).post("/v1/drain", &json!({}))?.done()?)
}

/// `trellis member …`
pub(crate) fn member(what: MemberCommand) -> Result<(), Ended> {
    match what {
        MemberCommand::List { admin, json } => {
            let members = Admin::at(&admin.addr).get("/v1/members")?.done()?;
            if json {
                println!("{members:#}");
            } else {
                print_members(&members);
            }
            Ok(())
        }
        MemberCommand::Add { address, admin } => {
            let body = json!({ "address": address });
            told(Admin::at(&admin.addr).post("/v1/members", &body)?.done()?)
        }
        MemberCommand::Remove { member, force, admin } => {
            let path = format!("/v1/members/{member}?force={force}");
            told(Admin::at(&admin.addr).delete(&path)?.done()?)
        }
        MemberCommand::TransferLeader { member, admin } => {
            let body = json!({ "to": member });
            told(Admin::at(&admin.addr).post("/v1/transfer-leader", &body)?.done()?)
        }
        MemberCommand::Unbind { admin } => {
            told(Admin::at(&admin.addr).post("/v1/unbind", &json!({}))?.done()?)
        }
    }
}

/// Says what the node did.
fn told(answer: Value) -> Result<(), Ended> {
    match answer.get("done").and_then(Value::as_str) {
        Some(sentence) => println!("{sentence}"),
        None => print_plain(&answer, 0),
    }
    Ok(())
}

/// Members as a table.
fn print_members(members: &Value) {
    const COLUMNS: [&str; 7] = ["name", "node", "address", "voter", "leader", "present", "lag"];
    let rows: Vec<[String; 7]> = members
        .get("members")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|member| COLUMNS.map(|column| member.get(column).map_or_else(|| "-".to_owned(), plain)))
        .collect();
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|at| rows.iter().map(|row| row[at].len()).chain([COLUMNS[at].len()]).max().unwrap_or(0))
        .collect();
    let line = |cells: &[String]| {
        let cells: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("{}", cells.join("  ").trim_end());
    };
    line(&COLUMNS.map(str::to_owned));
    for row in &rows {
        line(row);
    }
}

/// JSON for people: one `key: value` line each, what is nested further in.
fn print_plain(value: &Value, depth: usize) {
    let pad = "  ".repeat(depth);
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if is_nested(value) {
                    println!("{pad}{key}:");
                    print_plain(value, depth + 1);
                } else {
                    println!("{pad}{key}: {}", plain(value));
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::Object(fields) if fields.values().all(|value| !is_nested(value)) => {
                        let fields: Vec<String> =
                            fields.iter().map(|(key, value)| format!("{key}: {}", plain(value))).collect();
                        println!("{pad}- {}", fields.join(", "));
                    }
                    item if is_nested(item) => {
                        println!("{pad}-");
                        print_plain(item, depth + 1);
                    }
                    item => println!("{pad}- {}", plain(item)),
                }
            }
        }
        value => println!("{pad}{}", plain(value)),
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
