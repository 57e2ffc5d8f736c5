use std::sync::atomic::Ordering;

use serde::Serialize;
use trellis_consensus::Role;

use super::{DiskSpace, FEATURE_LEVEL, Stage, Standing, health::health};

/// How a node and its cluster are, as this node knows it. For people and programs; fields may be
/// added.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// This node's id, sixteen hexadecimal digits.
    pub node: String,
    /// Its stable name.
    pub name: String,
    /// The version of its binary.
    pub version: String,
    /// The cluster that it is bound to.
    pub cluster: Option<String>,
    /// `forming`, `hello`, `running` or `stopped`.
    pub stage: &'static str,
    /// Who is waited for and why, or why it stopped.
    pub waits_for: Option<String>,
    /// Whether clients should be sent here, as `/readyz` says.
    pub ready: bool,
    /// Why not: what was found by each check that failed.
    pub not_ready: Vec<String>,
    /// `leader`, `follower`, `candidate`, `learner` or `stopped`.
    pub role: &'static str,
    /// Whether it leads and a majority acknowledges it.
    pub leads: bool,
    /// The leader's name, if one is heard.
    pub leader: Option<String>,
    /// The newest term known.
    pub term: u64,
    /// The last index in the log, committed or not.
    pub last_log: u64,
    /// The last committed index known.
    pub committed: u64,
    /// The last applied index.
    pub applied: u64,
    /// The last index that is synced to the own disk.
    pub flushed: u64,
    /// The last index in the newest durable snapshot.
    pub snapshot: Option<u64>,
    /// The last index that is gone from the log.
    pub purged: Option<u64>,
    /// The state's digest and the applied index that it belongs to.
    pub digest: Option<Digest>,
    /// Differences found between replicas since the start.
    pub digest_mismatches: u64,
    /// Why this node's state is not relied upon: it is out until it is rebuilt.
    pub quarantined: Option<String>,
    /// From whose state this node's differs while no majority tells which is right.
    pub in_doubt: Option<String>,
    /// The open origin, `node/run`: client listeners are open.
    pub origin: Option<String>,
    /// Whether client listeners are open.
    pub doors_open: bool,
    /// Whether the node is on its way out.
    pub draining: bool,
    /// The replicated feature level.
    pub feature_level: u32,
    /// The highest that this binary understands.
    pub feature_level_max: u32,
    /// Jobs in the cluster.
    pub jobs: u64,
    /// Tubes in the cluster.
    pub tubes: u64,
    /// Body bytes in the cluster.
    pub job_bytes: u64,
    /// Cluster time, in milliseconds, of the last applied entry.
    pub time_ms: u64,
    /// Whether puts of this node's own clients are refused (SIGUSR1).
    pub puts_refused_here: bool,
    /// Whether puts are refused for want of disk.
    pub puts_refused: bool,
    /// Whose disks are below the mark, as the leader sees it.
    pub short_of_disk: Vec<String>,
    /// What learners wait for, as the leader sees it.
    pub changes: Vec<String>,
    /// Room on the own volume; `None` while it is not known, as of a node that takes no part yet.
    pub disk: Option<DiskSpace>,
    /// Every member.
    pub members: Vec<MemberStatus>,
}

/// A digest and where it was taken.
#[derive(Clone, Debug, Serialize)]
pub struct Digest {
    /// The applied index.
    pub index: u64,
    /// Sixteen hexadecimal digits.
    pub value: String,
}

/// One member, as this node knows it: from the leader's own view there, else from its table.
#[derive(Clone, Debug, Serialize)]
pub struct MemberStatus {
    /// Its id.
    pub node: String,
    /// Its name.
    pub name: String,
    /// Its peer address.
    pub address: String,
    /// Whether it votes.
    pub voter: bool,
    /// Whether it leads.
    pub leader: bool,
    /// Heard lately: by the leader, or as the leader's table tells.
    pub present: bool,
    /// Milliseconds since its last report; `None` if there was none.
    pub report_age_ms: Option<u64>,
    /// Entries that it lacks of the leader's log; only the leader knows.
    pub lag: Option<u64>,
    /// Its state is not relied upon: it serves no clients and does not lead. `None` of a member that
    /// has not been heard lately: one whose files are damaged takes part in nothing.
    pub quarantined: Option<bool>,
    /// Its last applied index.
    pub applied: Option<u64>,
    /// The version of its binary.
    pub version: Option<String>,
    /// Room on its volume; `None` if it has not told.
    pub disk: Option<DiskSpace>,
}

/// A member whose report is not older counts as present where only the table is known.
const REPORT_COUNTS_FOR_MS: u64 = 2_000;

pub(crate) fn status(standing: &Standing) -> Status {
    let (stage, waits_for) = match &*standing.stage.borrow() {
        Stage::Forming(why) => ("forming", Some(why.clone())),
        Stage::Hello(why) => ("hello", Some(why.clone())),
        Stage::Running => ("running", None),
        Stage::Stopped(why) => ("stopped", Some(why.to_string())),
    };
    let consensus = standing.consensus.get();
    let metrics = consensus.map(|consensus| consensus.metrics());
    let membership = standing.membership();
    let leader = standing.leader();
    let name_of = |id| {
        membership
            .members
            .get(&id)
            .map(|member| member.name.clone())
    };
    // Of one moment: whoever compares nodes relies on it.
    let (server, time, applied) = consensus
        .map(|consensus| {
            consensus.with_machine_at(|machine, applied| (machine.server(), machine.now(), applied))
        })
        .unwrap_or_default();
    let last_log = metrics
        .as_ref()
        .and_then(|metrics| metrics.last_log)
        .unwrap_or_default();
    let leads = standing.leads().is_some();
    let own = standing.id();

    let members = membership.members.values().map(|member| {
        let told = standing.table.get(member.id);
        let progress = metrics
            .iter()
            .flat_map(|metrics| &metrics.peers)
            .find(|peer| peer.node == member.id);
        let report_age_ms = told
            .as_ref()
            .map(|(_, age)| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let applied = told.as_ref().map(|(seen, _)| seen.applied);
        let reached = match progress {
            Some(peer) => peer.matched,
            None if member.id == own => Some(last_log),
            None => None,
        };
        let is_fresh = report_age_ms.is_some_and(|age| age <= REPORT_COUNTS_FOR_MS);
        MemberStatus {
            node: member.id.to_string(),
            name: member.name.clone(),
            address: member.address.clone(),
            voter: membership.is_voter(member.id),
            leader: leader == Some(member.id),
            present: if member.id == own {
                true
            } else if leads {
                standing
                    .core
                    .get()
                    .is_some_and(|core| core.is_present(member.id))
            } else {
                is_fresh
            },
            report_age_ms,
            lag: reached
                .filter(|_| leads)
                .map(|index| last_log.saturating_sub(index)),
            quarantined: match &told {
                _ if member.id == own => Some(standing.quarantined.get().is_some()),
                Some((seen, _)) => Some(seen.quarantined).filter(|out| *out || is_fresh),
                None => None,
            },
            applied,
            version: match &told {
                _ if member.id == own => Some(standing.version.clone()),
                Some((seen, _)) => Some(seen.version.clone()).filter(|version| !version.is_empty()),
                None => None,
            },
            disk: told.and_then(|(seen, _)| seen.disk.known()),
        }
    });
    let core = standing.core.get();
    let origin = core.and_then(|core| core.origin());
    let health = health(standing);
    Status {
        node: own.to_string(),
        name: standing.name().to_owned(),
        version: standing.version.clone(),
        cluster: standing.cluster().map(|cluster| cluster.to_string()),
        stage,
        waits_for,
        ready: health.ready,
        not_ready: health.reasons().map(str::to_owned).collect(),
        role: match standing.role() {
            Role::Leader { .. } => "leader",
            Role::Follower { .. } => "follower",
            Role::Candidate { .. } => "candidate",
            Role::Learner { .. } => "learner",
            Role::Stopped => "stopped",
        },
        leads,
        leader: leader.and_then(name_of),
        term: metrics.as_ref().map_or(0, |metrics| metrics.term),
        last_log,
        committed: consensus.map_or(0, |consensus| consensus.committed()),
        applied,
        flushed: consensus
            .and_then(|consensus| consensus.flushed())
            .map_or(0, |position| position.index),
        snapshot: metrics
            .as_ref()
            .and_then(|metrics| metrics.snapshot)
            .map(|position| position.index),
        purged: metrics.as_ref().and_then(|metrics| metrics.purged),
        digest: standing
            .witnessed
            .digests
            .newest(1)
            .pop()
            .map(|sample| Digest {
                index: sample.index,
                value: format!("{:016x}", sample.digest),
            }),
        digest_mismatches: standing.digest_mismatches.load(Ordering::Relaxed),
        quarantined: standing.quarantined.get().cloned(),
        in_doubt: standing.doubt.lock().clone().map(|(_, why)| why),
        origin: origin.map(|origin| origin.to_string()),
        doors_open: origin.is_some(),
        draining: *standing.draining.borrow(),
        feature_level: server.feature_level,
        feature_level_max: FEATURE_LEVEL,
        jobs: server.ready + server.reserved + server.delayed + server.buried,
        tubes: server.tubes,
        job_bytes: server.job_bytes,
        time_ms: time.0,
        puts_refused_here: core.is_some_and(|core| core.refuses_puts()),
        puts_refused: server.puts_refused,
        short_of_disk: standing.short_of_disk.lock().clone(),
        changes: standing.councils.lock().clone(),
        disk: standing
            .table
            .get(own)
            .and_then(|(seen, _)| seen.disk.known()),
        members: members.collect(),
    }
}
