use std::time::Duration;

use serde::Serialize;

use super::{Stage, Standing};

/// A runtime that has not turned for so long is dead.
const HEARTBEAT_COUNTS_FOR: Duration = Duration::from_secs(30);

/// A node whose state is further behind the leader's is not ready, in entries: about ten seconds
/// of a busy cluster.
const LAG_FOR_READY: u64 = 5_000;

/// The names of all checks, in the order in which they are told.
pub const CHECKS: [&str; 9] = [
    "runtime",
    "cluster",
    "member",
    "leader",
    "listeners",
    "lag",
    "quarantine",
    "digest",
    "drain",
];

/// How a node is, for probes. Source: architecture, section 9.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// The process works; if not, it should be killed. Says nothing of leader, peers or room.
    pub live: bool,
    /// It serves clients: listeners open, and a counting leader heard within 5 s, or within
    /// `commit_timeout` where that is less.
    pub ready: bool,
    /// Storage is open and the log replayed. Says nothing of joining or of a leader.
    pub started: bool,
    /// It is on its way out: no new clients, please.
    pub draining: bool,
    /// Every check, in a fixed order.
    pub checks: Vec<Check>,
}

/// One line of a probe's answer.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Its fixed name.
    pub name: &'static str,
    /// Whether it passed.
    pub ok: bool,
    /// What was found.
    pub found: String,
}

impl Health {
    /// What was found by the checks that failed.
    pub fn reasons(&self) -> impl Iterator<Item = &str> {
        self.checks
            .iter()
            .filter(|check| !check.ok)
            .map(|check| check.found.as_str())
    }
}

pub(crate) fn health(standing: &Standing) -> Health {
    let stage = standing.stage.borrow().clone();
    let draining = *standing.draining.borrow();
    let heartbeat = crate::since(*standing.heartbeat.lock());
    let live = heartbeat < HEARTBEAT_COUNTS_FOR && !matches!(stage, Stage::Stopped(_));
    let mut checks = vec![Check {
        name: "runtime",
        ok: heartbeat < HEARTBEAT_COUNTS_FOR,
        found: format!("turned {} ms ago", heartbeat.as_millis()),
    }];
    let (running, found) = match &stage {
        Stage::Forming(why) => (false, format!("not part of a cluster: {why}")),
        Stage::Hello(why) => (false, format!("not taking part: {why}")),
        Stage::Running if !standing.formed() => (
            false,
            "takes part, and waits for the cluster's first entry".to_owned(),
        ),
        Stage::Running => (true, "takes part".to_owned()),
        Stage::Stopped(why) => (false, why.to_string()),
    };
    checks.push(Check {
        name: "cluster",
        ok: running,
        found,
    });

    let voter = standing.membership().is_voter(standing.id());
    let found = if voter {
        "a voter"
    } else {
        "not a voter (yet)"
    };
    checks.push(Check {
        name: "member",
        ok: voter,
        found: found.to_owned(),
    });

    let core = standing.core.get();
    checks.push(leader(standing));

    let open = core.is_some_and(|core| core.origin().is_some());
    checks.push(Check {
        name: "listeners",
        ok: open,
        found: match core {
            Some(_) if open => "open".to_owned(),
            Some(core) => core.why_closed(),
            None => "closed: the node is starting".to_owned(),
        },
    });

    let lag = lag(standing);
    checks.push(Check {
        name: "lag",
        ok: lag <= LAG_FOR_READY,
        found: format!("{lag} entries behind the leader"),
    });

    let quarantined = standing.quarantined.get();
    checks.push(Check {
        name: "quarantine",
        ok: quarantined.is_none(),
        found: match quarantined {
            Some(why) => format!("quarantined: {why}; `trellis rebuild` gets the state anew"),
            None => "not quarantined".to_owned(),
        },
    });
    // The leader's word stands while nobody can tell; it is said that it is in doubt.
    let doubt = standing.doubt.lock().clone();
    checks.push(Check {
        name: "digest",
        ok: doubt.is_none() || standing.role().leads().is_some(),
        found: match doubt {
            Some((_, why)) => why,
            None => "equal to every replica compared".to_owned(),
        },
    });
    checks.push(Check {
        name: "drain",
        ok: !draining,
        found: if draining { "draining" } else { "not draining" }.to_owned(),
    });
    Health {
        live,
        ready: checks.iter().all(|check| check.ok),
        started: standing.consensus.get().is_some(),
        draining,
        checks,
    }
}

/// Whether a leader that counts was heard lately enough. A leader hears itself for a while after it
/// has lost its majority; what counts is when that last acknowledged it.
fn leader(standing: &Standing) -> Check {
    let core = standing.core.get();
    let heard = core.and_then(|core| core.leader_heard());
    let acknowledged = standing
        .consensus
        .get()
        .and_then(|consensus| consensus.quorum_ack_age());
    let heard = heard.map(|age| age.max(acknowledged.unwrap_or_default()));
    let within = core.map_or(Duration::ZERO, |core| core.ready_within());
    Check {
        name: "leader",
        ok: heard.is_some_and(|age| age <= within),
        found: match heard {
            Some(age) => format!(
                "a leader that a majority follows was heard {} ms ago",
                age.as_millis()
            ),
            None => "no leader was heard since the start".to_owned(),
        },
    }
}

/// Entries that the leader has applied, as far as it has told, and this node has not.
fn lag(standing: &Standing) -> u64 {
    let Some(consensus) = standing.consensus.get() else {
        return 0;
    };
    let applied = consensus.metrics().applied.unwrap_or_default();
    let leader = standing
        .leader()
        .and_then(|leader| standing.table.get(leader));
    let there = leader
        .map_or(0, |(seen, _)| seen.applied)
        .max(consensus.committed());
    there.saturating_sub(applied)
}
