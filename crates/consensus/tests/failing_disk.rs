//! A disk that fails stops the process. In a file, and so a process, of its own: what happens then
//! is said once per process.

mod support;

use std::sync::Arc;

use parking_lot::Mutex;
use support::{Cluster, PATIENCE, eventually, puts};
use tokio::time::timeout;
use trellis_consensus::{Role, on_fail_stop};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_or_write_stops_the_node_and_the_others_go_on() {
    let reasons = Arc::new(Mutex::new(Vec::<String>::new()));
    let heard = reasons.clone();
    on_fail_stop(move |reason| heard.lock().push(reason.into()));
    let stopped = |count: usize| {
        let reasons = reasons.clone();
        move || match reasons.lock().len() {
            stops if stops >= count => Ok(()),
            stops => Err(format!("{stops} stops")),
        }
    };

    let mut cluster = Cluster::of(3).await;
    cluster.open_origin().await;
    cluster.put(3).await;

    // The leader's log cannot be synced any more.
    let leader = cluster.leader().await;
    cluster.node(leader).log.fail_syncs();
    let term = cluster.roles()[&leader].leads().expect("it leads");
    let consensus = cluster.node(leader).consensus.clone();
    let receipt = consensus
        .propose(term, puts(4, 1, b""))
        .await
        .expect("raft runs");
    eventually("stop", stopped(1)).await;
    eventually("end of raft", || match cluster.roles()[&leader] {
        Role::Stopped => Ok(()),
        role => Err(format!("{role:?}")),
    })
    .await;
    // Followers may have synced it: nobody knows.
    assert!(
        timeout(PATIENCE, receipt)
            .await
            .expect("an answer")
            .is_err()
    );
    cluster.stop(leader).await;

    // The state of another cannot be written any more.
    let before = reasons.lock().len();
    let leader = cluster.leader().await;
    let other = *cluster
        .nodes
        .keys()
        .find(|id| **id != leader)
        .expect("two are left");
    let index = cluster.propose(puts(4, 1, b"")).await;
    cluster.agree(index).await;
    cluster.node(other).state.fail_records();
    cluster.propose(puts(5, 1, b"")).await;
    eventually("another stop", stopped(before + 1)).await;
    assert!(
        reasons
            .lock()
            .iter()
            .any(|reason| reason.contains("recording an entry"))
    );
    cluster.shutdown().await;
}
