//! An hour in which nothing is written, and then a leader that has just started: it must know how late it is.

#[path = "support/cluster.rs"]
mod cluster;

use std::time::Duration;

use cluster::{Client, Cluster, POLL, RESERVE, delete, eventually, put_for};
use tokio::time::{Instant, sleep};
use trellis_types::NodeId;

/// An hour, as it is told in release builds (`make soak`); a checked build would take a minute of real time for it.
const IDLE: Duration = match cfg!(debug_assertions) {
    true => Duration::from_secs(180),
    false => Duration::from_secs(3_600),
};
/// What becomes due comes so long after its moment at the latest. On tokio's clock only waiting takes time.
const LATE: Duration = Duration::from_millis(200);

/// A cluster that was idle for an hour, on tokio's clock: a job is held and one is delayed, both for half a
/// minute longer than that.
struct Idle {
    cluster: Cluster,
    /// At the leader: holds job 1.
    ann: Client,
    leader: u64,
    /// Neither the leader nor Ann's node.
    other: u64,
    /// Not before these moments, on the test's own clock, the jobs may come back.
    held_until: Instant,
    delayed_until: Instant,
}

const HELD: Duration = IDLE.saturating_add(Duration::from_secs(25));
const DELAYED: Duration = IDLE.saturating_add(Duration::from_secs(30));

async fn idle_for_an_hour() -> Idle {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let other = cluster.follower().await;
    let ann = cluster.client(leader);
    let seconds = |time: Duration| time.as_secs() as u32;
    assert_eq!(
        ann.asks(put_for("held", 0, seconds(HELD))).await,
        "inserted 1"
    );
    let held_until = Instant::now() + HELD;
    assert_eq!(ann.asks(RESERVE).await, "reserved 1 held");
    let delayed_until = Instant::now() + DELAYED;
    let delayed = put_for("delayed", seconds(DELAYED), 60);
    assert_eq!(ann.asks(delayed).await, "inserted 2");

    let before = cluster.node(leader).consensus.last_log();
    sleep(IDLE).await;
    let after = cluster.node(leader).consensus.last_log();
    assert_eq!(after, before, "an idle cluster writes nothing");
    Idle {
        cluster,
        ann,
        leader,
        other,
        held_until,
        delayed_until,
    }
}

impl Idle {
    async fn hand_over_to(&self, next: u64) {
        let until = Instant::now() + cluster::PATIENCE;
        let mut said = String::new();
        loop {
            let leader = self.cluster.leader().await;
            if leader == next {
                return;
            }
            assert!(Instant::now() < until, "{said}: {:?}", self.cluster.roles());
            // Refused while the other is behind; and whoever is asked may lead no more.
            let transfer = &self.cluster.node(leader).consensus;
            said = format!("{:?}", transfer.transfer_leader(NodeId(next)).await);
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Both jobs come back at their moments.
    async fn nothing_early_and_nothing_stretched(self) {
        let Self {
            mut cluster,
            ann,
            held_until,
            delayed_until,
            ..
        } = self;
        assert!(Instant::now() < held_until, "too late to tell anything");
        let third = cluster.follower().await;
        let bob = cluster.client(third);
        assert_eq!(bob.asks(POLL).await, "TimedOut", "not early");
        for (until, found) in [
            (held_until, "reserved 1 held"),
            (delayed_until, "reserved 2 delayed"),
        ] {
            assert_eq!(bob.asks(RESERVE).await, found);
            let now = Instant::now();
            // Cluster time counts whole milliseconds, and each handing over may round one away.
            let early = until.saturating_duration_since(now);
            assert!(
                early < Duration::from_millis(50),
                "{found}: {early:?} early"
            );
            let late = now.saturating_duration_since(until);
            assert!(late < LATE, "{found}: {late:?} late");
            let id = found.split(' ').nth(1).and_then(|id| id.parse().ok());
            assert_eq!(bob.asks(delete(id.expect("an id"))).await, "Deleted");
        }
        drop(ann);
        cluster.agree().await;
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_restarted_after_an_idle_hour_leads_without_stretching_anything() {
    let mut idle = idle_for_an_hour().await;
    let restarted = idle.other;
    let dead = idle.cluster.kill(restarted).await;
    idle.cluster.revive(restarted, dead).await;
    idle.cluster.opens(restarted).await;
    idle.hand_over_to(restarted).await;
    idle.nothing_early_and_nothing_stretched().await;
}

/// The hardest case: the new leader has heard no ping since it started, and the log's last word is an hour old.
#[tokio::test(start_paused = true)]
async fn a_leader_that_has_heard_no_ping_takes_the_clock_of_those_who_elected_it() {
    let mut idle = idle_for_an_hour().await;
    let restarted = idle.other;
    let dead = idle.cluster.kill(restarted).await;
    idle.cluster.wires.isolate(NodeId(restarted));
    let last = idle.cluster.node(idle.leader).consensus.last_log();
    idle.cluster.revive(restarted, dead).await;
    eventually("restarted node with the whole log", || {
        let reached = idle.cluster.node(restarted).consensus.last_log();
        let end = idle.cluster.node(idle.leader).consensus.last_log();
        assert_eq!(end, last, "nothing was written meanwhile");
        match reached == end {
            true => Ok(()),
            false => Err(format!("{reached:?} of {end:?}")),
        }
    })
    .await;
    // A slow disk between the votes, with the clocks in them, and taking office makes it no later.
    let slow = |time| {
        idle.cluster
            .nodes
            .values()
            .for_each(|node| node.log.delay_syncs(time))
    };
    slow(Duration::from_millis(250));
    idle.hand_over_to(restarted).await;
    slow(Duration::ZERO);
    idle.cluster.mend();
    idle.cluster.opens(restarted).await;
    idle.nothing_early_and_nothing_stretched().await;
}
