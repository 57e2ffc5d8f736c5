use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use trellis_node::membership::{CHECKS, Check, Health};

use crate::View;

/// What a probe may ask for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    /// Checks that do not count, by name, separated by commas.
    exclude: String,
}

/// Whether the process works: if not, it should be killed. Never about leader, peers or disk.
pub(crate) async fn livez(State(view): State<View>) -> Response {
    match view.members.get().map(|members| members.health()) {
        Some(health) => {
            let runtime: Vec<&Check> = health
                .checks
                .iter()
                .filter(|check| check.name == "runtime")
                .collect();
            answer(health.live, json!({ "checks": runtime }))
        }
        // Storage may take minutes to open; a storage that hangs ends the process by itself.
        None => answer(true, json!({ "checks": [], "stage": stage(&view) })),
    }
}

/// Whether storage is open and the log replayed.
pub(crate) async fn startupz(State(view): State<View>) -> Response {
    // A quarantined node waits for a person; killing it again and again would help nobody.
    let started = match view.members.get() {
        Some(members) => members.health().started,
        None => view.out().is_some(),
    };
    let word = match view.members.get() {
        Some(_) if started => "started",
        _ => stage(&view),
    };
    answer(started, json!({ "stage": word }))
}

/// Whether clients should be sent here.
pub(crate) async fn readyz(State(view): State<View>, Query(asked): Query<Asked>) -> Response {
    let Some(health) = view.members.get().map(|members| members.health()) else {
        let checks: Vec<Check> = view
            .out()
            .map(|why| Check {
                name: "quarantine",
                ok: false,
                found: format!(
                    "quarantined: {why}; `trellis rebuild` moves the damaged files aside and gets \
                     everything from the others"
                ),
            })
            .into_iter()
            .collect();
        let body = json!({ "checks": checks, "stage": stage(&view) });
        return answer(false, with_unknown(body, &asked.exclude));
    };
    let body = json!({ "checks": health.checks });
    answer(
        is_ready(&health, &asked.exclude),
        with_unknown(body, &asked.exclude),
    )
}

/// Says which names of `exclude` are no checks: whoever misspells one thinks it does not count.
fn with_unknown(mut body: Value, exclude: &str) -> Value {
    let unknown: Vec<&str> = exclude
        .split(',')
        .filter(|name| !name.is_empty() && !CHECKS.contains(name))
        .collect();
    if !unknown.is_empty() {
        body["unknown"] = unknown.into();
        body["known"] = CHECKS.to_vec().into();
    }
    body
}

/// For load balancers: 200 ready, 404 draining (HAProxy's `http-check disable-on-404` keeps the
/// connections there are and sends no new ones), 503 otherwise.
pub(crate) async fn lb(State(view): State<View>) -> Response {
    let health = view.members.get().map(|members| members.health());
    let (status, word) = match health {
        Some(health) if health.draining => (StatusCode::NOT_FOUND, "draining"),
        Some(health) if health.ready => (StatusCode::OK, "ready"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "down"),
    };
    (status, format!("{word}\n")).into_response()
}

/// How far a process is that has no node yet.
fn stage(view: &View) -> &'static str {
    match view.out() {
        Some(_) => "quarantined",
        None => "storage is being opened",
    }
}

fn is_ready(health: &Health, exclude: &str) -> bool {
    let excluded: Vec<&str> = exclude.split(',').collect();
    health
        .checks
        .iter()
        .all(|check| check.ok || excluded.contains(&check.name))
}

fn answer(ok: bool, mut body: Value) -> Response {
    body["ok"] = ok.into();
    let status = if ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(checks: &[(&'static str, bool)]) -> Health {
        let checks = checks
            .iter()
            .map(|(name, ok)| Check {
                name,
                ok: *ok,
                found: String::new(),
            })
            .collect::<Vec<_>>();
        Health {
            live: true,
            ready: checks.iter().all(|check| check.ok),
            started: true,
            draining: false,
            checks,
        }
    }

    #[test]
    fn a_check_that_is_excluded_does_not_count() {
        let health = health(&[("leader", true), ("lag", false)]);
        assert!(!is_ready(&health, ""));
        assert!(!is_ready(&health, "leader"));
        assert!(is_ready(&health, "leader,lag"));
    }
}
