//! Three nodes serve clients: what is said on one is heard on all.

#[path = "support/cluster.rs"]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, POLL, RESERVE, delete, eventually, put, put_for, tube};
use trellis_node::{Call, NodeSettings, Reads};
use trellis_types::{JobId, Seconds};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_put_on_one_node_is_reserved_on_another_and_deleted() {
    let mut cluster = Cluster::of(3).await;
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    assert_eq!(ann.asks(put("letter")).await, "inserted 1");
    assert_eq!(bob.asks(RESERVE).await, "reserved 1 letter");
    assert_eq!(bob.asks(delete(1)).await, "Deleted");
    cluster.agree().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_worker_on_any_node_gets_the_next_job() {
    let mut cluster = Cluster::of(3).await;
    for (worker, producer) in [(1, 2), (2, 3), (3, 1)] {
        let (ann, bob) = (cluster.client(worker), cluster.client(producer));
        ann.say([RESERVE]);
        eventually("wait", || {
            match cluster.look(worker, |machine| machine.server().waiting) {
                1 => Ok(()),
                count => Err(format!("{count} wait")),
            }
        })
        .await;
        bob.asks(put("letter")).await;
        let heard = ann.hears().await;
        assert!(heard.ends_with("letter"));
        // What she holds would return with her session. Node 1 may not know of the job yet.
        let job = heard.split(' ').nth(1).and_then(|id| id.parse().ok());
        assert_eq!(ann.asks(delete(job.expect(&heard))).await, "Deleted");
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_pipelined_puts_from_every_node_are_answered_in_order() {
    let mut cluster = Cluster::of(3).await;
    let clients: Vec<_> = (1..=3).map(|id| cluster.client(id)).collect();
    for client in &clients {
        client.say((0..1_000).map(|_| put("x")));
    }
    for client in &clients {
        let ids: Vec<u64> = client
            .hears_next(1_000)
            .await
            .iter()
            .map(|word| {
                let id = word.strip_prefix("inserted ").expect("inserted");
                id.parse().expect("an id")
            })
            .collect();
        assert!(ids.is_sorted());
    }
    cluster.agree().await;
    assert_eq!(
        cluster.look(1, |machine| machine.server().total_jobs),
        3_000
    );
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_has_acknowledged_every_node_shows() {
    let mut cluster = Cluster::of(3).await;
    let ann = cluster.client(1);
    for round in 1..=20 {
        ann.asks(put("x")).await;
        for id in 2..=3 {
            let bob = cluster.client(id);
            assert_eq!(
                bob.asks(Call::Peek(JobId(round))).await,
                format!("found {round} x")
            );
        }
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn delays_ttrs_and_waits_end_in_an_idle_cluster() {
    let mut cluster = Cluster::of(3).await;
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    ann.asks(put_for("late", 1, 1)).await;
    assert_eq!(bob.asks(RESERVE).await, "reserved 1 late");
    // Its TTR of one second is inside the margin at once, then over.
    assert_eq!(bob.asks(RESERVE).await, "DeadlineSoon");
    assert_eq!(ann.asks(RESERVE).await, "reserved 1 late");
    assert_eq!(ann.asks(delete(1)).await, "Deleted");
    let waits = Call::Reserve {
        timeout: Some(Seconds(1)),
    };
    assert_eq!(bob.asks(waits).await, "TimedOut");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn polls_leave_an_idle_log_alone() {
    let mut cluster = Cluster::of(3).await;
    cluster.agree().await;
    let follower = cluster.follower().await;
    let applied = *cluster.node(follower).consensus.applied().borrow();
    let ann = cluster.client(follower);
    for _ in 0..20 {
        assert_eq!(ann.asks(POLL).await, "TimedOut");
    }
    assert_eq!(
        *cluster.node(follower).consensus.applied().borrow(),
        applied
    );
    let bob = cluster.client(follower);
    bob.asks(put("x")).await;
    assert_eq!(ann.asks(POLL).await, "reserved 1 x");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_reads_show_what_the_own_clients_were_told() {
    let settings = NodeSettings {
        reads: Reads::Local,
        ..NodeSettings::default()
    };
    let mut cluster = Cluster::with(3, settings).await;
    let ann = cluster.client(2);
    ann.say([put("x"), Call::Peek(JobId(1))]);
    assert_eq!(ann.hears_next(2).await, ["inserted 1", "found 1 x"]);
    cluster.freeze();
    assert_eq!(ann.asks(Call::Peek(JobId(1))).await, "found 1 x");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stats_gather_all_nodes_and_name_the_silent() {
    let mut cluster = Cluster::of(3).await;
    let (ann, bob) = (cluster.client(1), cluster.client(2));
    ann.say([Call::Use(tube("mail")), put("x")]);
    bob.say([Call::Watch(tube("mail"))]);
    ann.hears_next(2).await;
    assert_eq!(bob.hears().await, "watching 2");
    let stats = bob.asks(Call::StatsTube(tube("mail"))).await;
    assert!(stats.contains("using: 1, watching: 1"), "{stats}");
    let stats = bob.asks(Call::Stats).await;
    assert!(
        stats.contains("connections: 2, producers: 1, workers: 0"),
        "{stats}"
    );
    assert!(stats.contains("silent: []"), "{stats}");
    let leader = cluster.leader().await;
    let dies = (1..=3)
        .find(|id| *id != leader && *id != 2)
        .expect("a third");
    cluster.kill(dies).await;
    let stats = bob.asks(Call::Stats).await;
    assert!(
        stats.contains(&format!("silent: [\"trellis-{dies}\"]")),
        "{stats}"
    );
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_node_serves() {
    let mut cluster = Cluster::of(1).await;
    let ann = cluster.client(1);
    ann.say([put("x"), RESERVE, delete(1), POLL, Call::Stats]);
    let heard = ann.hears_next(5).await;
    assert_eq!(
        heard[..4],
        ["inserted 1", "reserved 1 x", "Deleted", "TimedOut"]
    );
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_writes_nothing() {
    let mut cluster = Cluster::of(3).await;
    cluster.agree().await;
    let before = *cluster.node(1).consensus.applied().borrow();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(*cluster.node(1).consensus.applied().borrow(), before);
    cluster.end().await;
}
