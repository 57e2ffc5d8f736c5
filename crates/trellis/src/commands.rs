use std::{
    io::{self, Write as _},
    path::Path,
};

use serde_json::{Value, json};

use crate::{
    admin::Admin,
    args::{AdminArgs, MemberCommand, NodeArgs},
    exit::{Ended, Exit},
    serve::storage,
    text,
};

/// `trellis status`
pub(crate) fn status(admin: &AdminArgs, as_json: bool) -> Result<(), Ended> {
    let status = Admin::at(&admin.addr).get("/v1/status")?.done()?;
    if as_json {
        print(&format!("{status:#}\n"));
    } else {
        print(&text::status(&status));
    }
    Ok(())
}

/// `trellis health`
pub(crate) fn health(admin: &NodeArgs) -> Result<(), Ended> {
    let said = Admin::at(&admin.addr).get("/readyz")?;
    print(&text::health(&said.body));
    if said.status == 200 {
        Ok(())
    } else {
        Err(Ended::new(Exit::No, "the node is not ready"))
    }
}

/// `trellis snapshot`
pub(crate) fn snapshot(admin: &NodeArgs) -> Result<(), Ended> {
    told(
        Admin::at(&admin.addr)
            .post("/v1/snapshot?wait=true", &json!({}))?
            .done()?,
    )
}

/// `trellis drain`
pub(crate) fn drain(admin: &NodeArgs) -> Result<(), Ended> {
    told(
        Admin::at(&admin.addr)
            .post("/v1/drain", &json!({}))?
            .done()?,
    )
}

/// `trellis rebuild`
pub(crate) fn rebuild(admin: &NodeArgs, data_dir: Option<&Path>, force: bool) -> Result<(), Ended> {
    let Some(folder) = data_dir else {
        let answer = Admin::at(&admin.addr).post("/v1/rebuild", &json!({}))?;
        return told(answer.done()?);
    };
    if trellis_store::is_alone(folder) && !force {
        return Err(Ended::new(
            Exit::No,
            format!(
                "the node in {} is the only voter of its cluster: nobody else has its jobs, so a new \
                 member would get none; --force moves them aside all the same",
                folder.display()
            ),
        ));
    }
    let evidence = trellis_store::rebuild(folder).map_err(storage::refused)?;
    print(&format!(
        "what it held is in {}; started again with initial_members or join, this node joins its cluster as a new member\n",
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
                print(&text::table(&members));
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
        None => print(&text::plain_text(&answer)),
    }
    Ok(())
}

/// Prints; a pipe that is closed on us is no reason to fail.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
