//! Nodes die, fall silent and come back; clients of the others see nothing but a pause.

#[path = "support/cluster.rs"]
mod cluster;

use std::time::Duration;

use cluster::{Client, Cluster, POLL, RESERVE, delete, eventually, put, put_for};
use tokio::time::Instant;
use trellis_node::NodeSettings;
use trellis_types::NodeId;

/// For stories on tokio's clock, which a busy machine can't hurry.
fn short_lease() -> NodeSettings {
    NodeSettings {
        node_lease: Duration::from_secs(4),
        ..NodeSettings::default()
    }
}

/// Somebody is parked, as node `id` knows.
async fn waits(cluster: &Cluster, id: u64) {
    eventually("wait", || {
        match cluster.look(id, |machine| machine.server().waiting) {
            1 => Ok(()),
            count => Err(format!("{count} wait")),
        }
    })
    .await;
}

fn ids(words: &[String]) -> Vec<u64> {
    words
        .iter()
        .map(|word| {
            let id = word
                .strip_prefix("inserted ")
                .unwrap_or_else(|| panic!("heard {word:?}"));
            id.parse().expect("an id")
        })
        .collect()
}

/// Puts one job after the other while `meanwhile` happens; every one is answered.
async fn puts_during(client: &Client, rounds: usize) -> Vec<u64> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        client.say((0..10).map(|_| put("x")));
        all.extend(ids(&client.hears_next(10).await));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leader_dies_clients_of_others_see_no_error_and_nothing_twice() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let (ann, bob) = (cluster.client(others[0]), cluster.client(others[1]));
    let putting = tokio::spawn(async move {
        let mut all = puts_during(&ann, 30).await;
        // Until the death is in the middle.
        all.extend(puts_during(&ann, 300).await);
        all.len() as u64
    });
    bob.say((0..10).map(|_| put("y")));
    ids(&bob.hears_next(10).await);
    cluster.kill(leader).await;
    bob.say((0..10).map(|_| put("y")));
    ids(&bob.hears_next(10).await);
    let put = putting.await.expect("no panic");
    cluster.agree().await;
    let total = cluster.look(others[0], |machine| machine.server().total_jobs);
    assert_eq!(total, put + 20);
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_and_holds_of_others_live_through_a_fail_over() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let (ann, bob) = (cluster.client(others[0]), cluster.client(others[1]));
    assert_eq!(ann.asks(put("held")).await, "inserted 1");
    assert_eq!(ann.asks(RESERVE).await, "reserved 1 held");
    ann.say([RESERVE]);
    cluster.kill(leader).await;
    assert_eq!(bob.asks(put("waited for")).await, "inserted 2");
    assert_eq!(ann.hears().await, "reserved 2 waited for");
    assert_eq!(ann.asks(delete(1)).await, "Deleted", "still hers");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_ttr_runs_on_through_an_election_and_ends_neither_early_nor_late() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let (ann, bob) = (cluster.client(others[0]), cluster.client(others[1]));
    let asked = Instant::now();
    assert_eq!(ann.asks(put_for("x", 0, 4)).await, "inserted 1");
    assert_eq!(ann.asks(RESERVE).await, "reserved 1 x");
    let held = Instant::now();
    bob.say([RESERVE]);
    cluster.kill(leader).await;
    assert_eq!(bob.hears().await, "reserved 1 x");
    assert!(
        asked.elapsed() >= Duration::from_secs(4),
        "{:?}",
        asked.elapsed()
    );
    // An election may come at the very end of it.
    assert!(
        held.elapsed() < Duration::from_secs(8),
        "{:?}",
        held.elapsed()
    );
    cluster.end().await;
}

/// A node that lags learns late what its waiting client was given, even so late that the hold is
/// over and the job is gone. Answers are what the log says, in its order; that client can do no harm.
#[tokio::test(start_paused = true)]
async fn a_delivery_that_a_lagging_node_learns_too_late_settles_nothing() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let (late, worker) = (cluster.client(others[0]), cluster.client(others[1]));
    late.say([RESERVE]);
    waits(&cluster, leader).await;
    // Whoever leads, now and later: nothing reaches that node.
    cluster.cut(leader, others[0]);
    cluster.cut(others[1], others[0]);
    assert_eq!(
        worker.asks(put_for("x", 0, 1)).await,
        "inserted 1",
        "and given away in the same breath"
    );
    assert_eq!(worker.asks(RESERVE).await, "reserved 1 x", "after its TTR");
    assert_eq!(worker.asks(delete(1)).await, "Deleted");
    assert_eq!(late.heard(), [""; 0], "nothing has reached its node");
    cluster.mend();
    assert_eq!(late.hears().await, "reserved 1 x", "given before it ended");
    late.say([delete(1), POLL]);
    assert_eq!(late.hears_next(2).await, ["NotFound", "TimedOut"]);
    cluster.agree().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_transfer_under_load_loses_and_doubles_nothing() {
    let mut cluster = Cluster::of(3).await;
    let clients: Vec<_> = (1..=3).map(|id| cluster.client(id)).collect();
    let putting: Vec<_> = clients
        .into_iter()
        .map(|client| tokio::spawn(async move { puts_during(&client, 100).await.len() as u64 }))
        .collect();
    let mut led = vec![cluster.leader().await];
    for _ in 0..3 {
        let leader = led[led.len() - 1];
        let from = &cluster.node(leader).consensus;
        let before = *from.role().borrow();
        // It is refused if leadership has moved by itself.
        if from.transfer_leader(NodeId(leader % 3 + 1)).await.is_ok() {
            eventually("end of its leadership", || {
                let role = *from.role().borrow();
                let is_over = role.leads().is_none() || role.leads() > before.leads();
                is_over
                    .then_some(())
                    .ok_or_else(|| format!("{:?}", cluster.roles()))
            })
            .await;
        }
        led.push(cluster.leader().await);
    }
    assert!(led.iter().any(|it| *it != led[0]), "always led by {led:?}");
    let mut put = 0;
    for task in putting {
        put += task.await.expect("no panic");
    }
    cluster.agree().await;
    assert_eq!(cluster.look(1, |machine| machine.server().total_jobs), put);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn after_three_seconds_without_any_majority_everything_goes_on() {
    let mut cluster = Cluster::of(3).await;
    let clients: Vec<_> = (1..=3).map(|id| cluster.client(id)).collect();
    for client in &clients {
        client.asks(put("before")).await;
    }
    cluster.freeze();
    for client in &clients {
        client.say([put("during"), RESERVE]);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    for client in &clients {
        assert_eq!(client.heard(), [""; 0], "nothing lies");
    }
    cluster.mend();
    for client in &clients {
        let heard = client.hears_next(2).await;
        assert!(heard[0].starts_with("inserted"), "{heard:?}");
        assert!(heard[1].starts_with("reserved"), "{heard:?}");
    }
    cluster.agree().await;
    assert_eq!(cluster.look(1, |machine| machine.server().total_jobs), 6);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_commands_are_told_so_and_the_node_fences_itself() {
    let settings = NodeSettings {
        commit_timeout: Duration::from_secs(1),
        node_lease: Duration::from_secs(6),
        ..NodeSettings::default()
    };
    let mut cluster = Cluster::with(3, settings).await;
    let follower = cluster.follower().await;
    let ann = cluster.client(follower);
    assert_eq!(ann.asks(put("before")).await, "inserted 1");
    cluster.freeze();
    // A stream that has said nothing for two seconds is given up; from then on nothing is handed over. On tokio's
    // clock a timer that has run out is served before the next one.
    eventually("silent leader", || {
        let heard = cluster.node(follower).core.leader_heard();
        match heard {
            Some(heard) if heard < Duration::from_millis(2_100) => {
                Err(format!("heard {heard:?} ago"))
            }
            _ => Ok(()),
        }
    })
    .await;
    assert_eq!(ann.asks(put("x")).await, "Draining");
    assert_eq!(ann.hears().await, "closed: Fenced");
    cluster.closes(follower).await;
    cluster.mend();
    cluster.opens(follower).await;
    let bob = cluster.client(follower);
    assert!(bob.asks(put("after")).await.starts_with("inserted"));
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_lost_its_majority_serves_nobody() {
    let settings = NodeSettings {
        commit_timeout: Duration::from_secs(1),
        ..short_lease()
    };
    let mut cluster = Cluster::with(3, settings).await;
    let leader = cluster.leader().await;
    let ann = cluster.client(leader);
    assert_eq!(ann.asks(put("before")).await, "inserted 1");
    cluster.isolate(leader);
    let next = cluster.leader_other_than(leader).await;
    let bob = cluster.client(next);
    assert_eq!(bob.asks(delete(1)).await, "Deleted");
    let heard = ann
        .asks(trellis_node::Call::Peek(trellis_types::JobId(1)))
        .await;
    assert!(
        heard == "InternalError" || heard == "closed: Fenced",
        "a stale read: {heard}"
    );
    cluster.closes(leader).await;
    cluster.mend();
    cluster.opens(leader).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn holds_of_a_dead_node_return_and_its_waits_swallow_nothing() {
    let mut cluster = Cluster::with(3, short_lease()).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let (dies, lives) = (others[0], others[1]);
    let (ann, eve, bob) = (
        cluster.client(dies),
        cluster.client(dies),
        cluster.client(lives),
    );
    assert_eq!(ann.asks(put("held")).await, "inserted 1");
    assert_eq!(ann.asks(RESERVE).await, "reserved 1 held");
    eve.say([RESERVE]);
    waits(&cluster, lives).await;
    // The process stops: nothing of it says good-bye.
    cluster.isolate(dies);
    eventually("suspension", || {
        let view = cluster.look(lives, |machine| machine.origin(NodeId(dies)));
        match view {
            Some(view) if view.suspended => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(bob.asks(put("new")).await, "inserted 2");
    assert_eq!(bob.asks(RESERVE).await, "reserved 2 new", "not swallowed");
    assert_eq!(
        bob.asks(RESERVE).await,
        "reserved 1 held",
        "within the lease"
    );
    assert_eq!(ann.hears().await, "closed: Fenced");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_opens_a_new_origin_and_the_old_one_ends() {
    let mut cluster = Cluster::of(3).await;
    let follower = cluster.follower().await;
    let ann = cluster.client(follower);
    assert_eq!(ann.asks(put("held")).await, "inserted 1");
    assert_eq!(ann.asks(RESERVE).await, "reserved 1 held");
    let dead = cluster.kill(follower).await;
    cluster.revive(follower, dead).await;
    cluster.opens(follower).await;
    let bob = cluster.client(follower);
    assert_eq!(bob.asks(RESERVE).await, "reserved 1 held");
    cluster.agree().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_state_a_snapshot_replaced_gives_its_sessions_up() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let away = (1..=3).find(|id| *id != leader).expect("a follower");
    let (ann, bob) = (cluster.client(away), cluster.client(leader));
    assert_eq!(ann.asks(put("x")).await, "inserted 1");
    cluster.isolate(away);
    // Entries enough that not all of them are on their way to it already.
    for _ in 0..300 {
        assert!(bob.asks(put("y")).await.starts_with("inserted"));
    }
    let reached = *cluster.node(leader).consensus.applied().borrow();
    // What it has missed is only in snapshots from now on.
    for id in (1..=3).filter(|id| *id != away) {
        let consensus = &cluster.node(id).consensus;
        eventually("applied puts", || match *consensus.applied().borrow() {
            index if index >= reached => Ok(()),
            index => Err(format!("{index} of {reached}")),
        })
        .await;
        consensus.snapshot().await;
        eventually("snapshot", || {
            let metrics = consensus.metrics();
            match metrics.snapshot {
                Some(position) if position.index >= reached => Ok(()),
                _ => Err(format!("{metrics:?}")),
            }
        })
        .await;
        consensus.purge(reached).await;
        eventually("purged log", || match consensus.metrics().purged {
            Some(index) if index >= reached => Ok(()),
            other => Err(format!("{other:?} of {reached}")),
        })
        .await;
    }
    cluster.mend();
    assert_eq!(
        ann.hears().await,
        "closed: Fenced",
        "what became of hers is unknowable"
    );
    cluster.opens(away).await;
    let eve = cluster.client(away);
    assert_eq!(eve.asks(RESERVE).await, "reserved 1 x");
    cluster.agree().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_restart_and_time_goes_on() {
    let mut cluster = Cluster::of(3).await;
    let ann = cluster.client(1);
    assert_eq!(ann.asks(put("x")).await, "inserted 1");
    let before = cluster.look(1, |machine| machine.now());
    let mut dead = Vec::new();
    for id in 1..=3 {
        dead.push(cluster.kill(id).await);
    }
    for (id, dead) in (1..=3).zip(dead) {
        cluster.revive(id, dead).await;
    }
    for id in 1..=3 {
        cluster.opens(id).await;
    }
    let bob = cluster.client(2);
    assert_eq!(bob.asks(RESERVE).await, "reserved 1 x");
    let after = cluster.look(2, |machine| machine.now());
    assert!(after >= before, "{before:?} {after:?}");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_lets_its_clients_go_in_good_order() {
    let mut cluster = Cluster::of(3).await;
    let follower = cluster.follower().await;
    let (ann, bob) = (cluster.client(follower), cluster.client(follower));
    assert_eq!(ann.asks(put("held")).await, "inserted 1");
    assert_eq!(ann.asks(RESERVE).await, "reserved 1 held");
    bob.say([RESERVE]);
    waits(&cluster, follower).await;
    cluster
        .node(follower)
        .core
        .release_clients(Duration::from_secs(5))
        .await;
    assert_eq!(ann.hears().await, "closed: Drained");
    assert_eq!(bob.hears().await, "closed: Drained");
    cluster.closes(follower).await;
    let leader = cluster.leader().await;
    let eve = cluster.client(leader);
    assert_eq!(
        eve.asks(RESERVE).await,
        "reserved 1 held",
        "at once, not after a lease"
    );
    cluster.end().await;
}
