//! What runs beside Raft for as long as it lives.

use std::{sync::Arc, time::Duration};

use openraft::{
    Raft, ServerState, async_runtime::watch::WatchReceiver, errors::Fatal,
    metrics::RaftServerMetrics,
};

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use super::Consensus;
use crate::{
    Role, StateStore, fail_stop,
    raft::{StateMachine, TypeConfig},
};

/// Publishes the role, and where the members are, for as long as Raft lives, and ends the process if
/// a failed disk ended Raft.
pub(super) async fn watch_role(this: Consensus) {
    let mut server = this.0.raft.server_metrics();
    loop {
        let role = {
            let server = server.borrow_watched();
            this.0.addresses.learn(&server.membership_config);
            role(&server)
        };
        this.0
            .role
            .send_if_modified(|known| std::mem::replace(known, role) != role);
        if server.changed().await.is_err() {
            break;
        }
    }
    this.0.front.set_running(false);
    this.0.role.send_replace(Role::Stopped);
    let end = this.0.raft.metrics().borrow_watched().running_state.clone();
    match end {
        Err(Fatal::StorageError(error)) => fail_stop(error),
        Err(Fatal::Panicked) => fail_stop("raft has panicked"),
        Err(Fatal::Stopped) | Ok(()) => {}
    }
}

/// Shows whoever follows that this node leads, for as long as it does. openraft would do it at its
/// next tick, so its tick would have to be as fine as the heartbeat is to be exact, on every node.
pub(super) async fn show_leader(
    raft: Raft<TypeConfig, StateMachine>,
    mut role: watch::Receiver<Role>,
    every: Duration,
) {
    while role.wait_for(|role| role.leads().is_some()).await.is_ok() {
        let mut beats = interval(every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = beats.tick() => {
                    if raft.trigger().heartbeat().await.is_err() {
                        return;
                    }
                }
                changed = role.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if role.borrow_and_update().leads().is_none() {
                        break;
                    }
                }
            }
        }
    }
}

/// Tells the store how far the log is durable (rule 2).
pub(super) async fn watch_log(raft: Raft<TypeConfig, StateMachine>, store: Arc<dyn StateStore>) {
    let mut progress = raft.watch_log_progress();
    while let Ok(point) = progress.next().await {
        if let Some(last) = point.and_then(|point| point.last_log_id) {
            store.log_flushed(last.index);
        }
    }
}

fn role(metrics: &RaftServerMetrics<TypeConfig>) -> Role {
    let (term, leader) = (metrics.vote.leader_id.term, metrics.current_leader);
    match metrics.state {
        ServerState::Leader => Role::Leader { term },
        ServerState::Follower => Role::Follower { term, leader },
        ServerState::Candidate => Role::Candidate { term },
        ServerState::Learner => Role::Learner { term, leader },
        ServerState::Shutdown => Role::Stopped,
    }
}
