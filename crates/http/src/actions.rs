use std::{future::Future, time::Duration};

use axum::{
    Json,
    extract::{Path, Query, State, rejection::JsonRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinError;
use trellis_node::membership::{Members, Refused};

use crate::View;

/// A change that takes longer goes on, but nobody waits for its answer any more. A new member is
/// a voter only when it has caught up, which may take longer; that is not waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A member to invite.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Invitation {
    /// Its peer address, host:port.
    address: String,
}

/// Who is to lead.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Transfer {
    /// A name or id; nobody in particular if it is missing.
    to: Option<String>,
}

/// How a snapshot is taken.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Saving {
    /// Whether to answer when it is written.
    wait: bool,
}

/// How a member is removed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Removal {
    /// Even if two voters would be left.
    force: bool,
}

pub(crate) async fn status(State(view): State<View>) -> Response {
    match view.members.get() {
        Some(members) => Json(members.status()).into_response(),
        None => match view.out() {
            Some(why) => {
                let status = json!({
                    "name": view.name,
                    "stage": "quarantined",
                    "ready": false,
                    "not_ready": [format!("quarantined: {why}")],
                    "quarantined": why,
                });
                Json(status).into_response()
            }
            None => starting(&view),
        },
    }
}

pub(crate) async fn members(State(view): State<View>) -> Response {
    match view.members.get() {
        Some(members) => Json(json!({ "members": members.status().members })).into_response(),
        None => starting(&view),
    }
}

pub(crate) async fn add(
    State(view): State<View>,
    new: Result<Json<Invitation>, JsonRejection>,
) -> Response {
    let Json(new) = match new {
        Ok(new) => new,
        Err(why) => return said(why.status(), &why.body_text(), false),
    };
    change(
        &view,
        |members| async move { members.add(&new.address).await },
    )
    .await
}

pub(crate) async fn remove(
    State(view): State<View>,
    Path(member): Path<String>,
    Query(how): Query<Removal>,
) -> Response {
    change(&view, |members| async move {
        members.remove(&member, how.force).await
    })
    .await
}

pub(crate) async fn transfer_leader(
    State(view): State<View>,
    wish: Result<Json<Transfer>, JsonRejection>,
) -> Response {
    let Json(wish) = match wish {
        Ok(wish) => wish,
        Err(why) => return said(why.status(), &why.body_text(), false),
    };
    change(&view, |members| async move {
        members.transfer_leader(wish.to.as_deref()).await
    })
    .await
}

pub(crate) async fn snapshot(State(view): State<View>, Query(how): Query<Saving>) -> Response {
    change(&view, |members| async move {
        if how.wait {
            members.snapshot_written().await
        } else {
            members.snapshot().await
        }
    })
    .await
}

pub(crate) async fn unbind(State(view): State<View>) -> Response {
    change(&view, |members| async move { members.unbind().await }).await
}

pub(crate) async fn drain(State(view): State<View>) -> Response {
    let drained = view.actions.drain();
    change(&view, |_| async move {
        drained.await;
        Ok("drained: this node serves no clients any more and may be stopped".to_owned())
    })
    .await
}

pub(crate) async fn rebuild(State(view): State<View>) -> Response {
    match view.runtime.spawn(view.actions.rebuild()).await {
        Ok(Ok(done)) => Json(json!({ "done": done })).into_response(),
        Ok(Err(why)) => said(StatusCode::CONFLICT, &why, false),
        Err(error) => unfinished(&error),
    }
}

/// Carries something out on the main runtime and says how it went.
async fn change<F>(view: &View, act: impl FnOnce(Members) -> F) -> Response
where
    F: Future<Output = Result<String, Refused>> + Send + 'static,
{
    let Some(members) = view.members.get() else {
        return starting(view);
    };
    let acting = view.runtime.spawn(act(members.clone()));
    match tokio::time::timeout(PATIENCE, acting).await {
        Ok(Ok(Ok(done))) => Json(json!({ "done": done })).into_response(),
        Ok(Ok(Err(refused))) => {
            let status = if refused.again {
                StatusCode::SERVICE_UNAVAILABLE
            } else {
                StatusCode::CONFLICT
            };
            said(status, &refused.why, refused.again)
        }
        Ok(Err(error)) => unfinished(&error),
        Err(_) => said(
            StatusCode::GATEWAY_TIMEOUT,
            "it takes longer than a minute and goes on; `trellis status` shows how far it is",
            true,
        ),
    }
}

/// The main runtime ended under the task, or the task has a defect.
fn unfinished(error: &JoinError) -> Response {
    if error.is_cancelled() {
        return said(
            StatusCode::SERVICE_UNAVAILABLE,
            "the node is stopping",
            true,
        );
    }
    said(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string(), false)
}

fn starting(view: &View) -> Response {
    match view.out() {
        Some(why) => said(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the node is quarantined: {why}; `trellis rebuild` is the way out"),
            false,
        ),
        None => said(
            StatusCode::SERVICE_UNAVAILABLE,
            "the node is starting: its storage is being opened",
            true,
        ),
    }
}

fn said(status: StatusCode, error: &str, again: bool) -> Response {
    (status, Json(json!({ "error": error, "again": again }))).into_response()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_task_that_the_end_cut_off_says_that_the_node_stops() {
        let task = tokio::spawn(pending::<()>());
        task.abort();
        let cut_off = task.await.expect_err("it was aborted");
        let answer = unfinished(&cut_off);
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = axum::body::to_bytes(answer.into_body(), 1_000).await;
        let body = String::from_utf8_lossy(&body.expect("a body")).into_owned();
        assert!(body.contains("the node is stopping"), "{body}");
    }
}
