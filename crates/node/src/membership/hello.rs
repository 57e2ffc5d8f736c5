use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use trellis_consensus::Membership;
use trellis_rpc::ClusterId;
use trellis_types::{
    NodeId, Run,
    seeded::{Bug, planted},
};

/// What a node's own disk says of it, before it takes part in anything.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// The last run it used, not raised for this start.
    pub run: Run,
    /// The highest term that it has acknowledged.
    pub term: u64,
    /// The last index in its log.
    pub flushed: u64,
    /// The newest membership in its log; empty if it has no log entry.
    pub membership: Membership,
    /// The cluster that it is bound to.
    pub cluster: ClusterId,
    /// Who forms the cluster, while no membership is known to anybody.
    pub initial: BTreeSet<String>,
}

/// What others know of a node: what its disk must hold at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its highest run.
    pub run: Run,
    /// The highest term that it acknowledged.
    pub term: u64,
    /// The last committed index that it acknowledged in that term.
    pub flushed: u64,
}

/// One node's answer to a hello. It comes from disk and table and needs no vote.
#[derive(Clone, Debug)]
pub(crate) struct HelloAnswer {
    /// Who answered.
    pub from: NodeId,
    /// Its name.
    pub name: String,
    /// The cluster that it is bound to, if any.
    pub cluster: Option<ClusterId>,
    /// Whether it has a log entry, and so is part of a cluster that exists.
    pub formed: bool,
    /// Whether it leads and a majority acknowledges it.
    pub leads: bool,
    /// The leader that it hears, itself included; `None` if it hears none.
    pub leader: Option<NodeId>,
    /// Its newest membership.
    pub membership: Membership,
    /// What it knows of the asker.
    pub knows: Known,
    /// Whether the asker's id was removed from the cluster for ever.
    pub removed: bool,
}

/// What a started node may do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HelloVerdict {
    /// Ask again; the text says who is waited for and why.
    Wait(String),
    /// Take part in Raft.
    Go(Go),
    /// Never take part with this folder.
    Stop(HelloStop),
}

/// Why a node may take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Go {
    /// The leader answered.
    LeaderAnswered(NodeId),
    /// A majority answered, and none of it hears a leader.
    NobodyLeads,
}

impl fmt::Display for Go {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaderAnswered(leader) => write!(f, "the leader, {leader}, answered"),
            Self::NobodyLeads => f.write_str("a majority answered, and none of it hears a leader"),
        }
    }
}

/// Why a node must not take part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloStop {
    /// The id is out of the cluster.
    #[error(
        "node {id} was removed from the cluster (so says {by}) and its id is never used again; \
         to join as a new node, start with an empty data folder (docs/errors/removed-node.md)"
    )]
    Removed {
        /// This node.
        id: NodeId,
        /// Who says so.
        by: String,
    },
    /// The folder is older than what others have seen of this node.
    #[error(
        "this data folder is an older copy: it holds {what} {own}, but {by} has seen {known} of \
         node {id}; taking part with it could lose acknowledged jobs; start with an empty data \
         folder to join as a new node (docs/errors/stale-folder.md)"
    )]
    Stale {
        /// This node.
        id: NodeId,
        /// Which figure gives it away.
        what: &'static str,
        /// What the folder holds.
        own: u64,
        /// What others have seen.
        known: u64,
        /// Who has seen it.
        by: String,
    },
}

/// Whether a started node may take part in Raft.
///
/// It may once the leader has answered, or a majority including itself of whom none hears a
/// leader: among them is whoever has seen the newest of this node. A learner counts for no
/// majority. Answers of another cluster count for nothing.
///
/// Source: architecture, section 12, "Restored or stale volumes".
pub(crate) fn hello_verdict(own: &Own, answers: &BTreeMap<NodeId, HelloAnswer>) -> HelloVerdict {
    let ours = || {
        answers
            .values()
            .filter(|answer| answer.cluster == Some(own.cluster))
    };
    if let Some(stop) = ours().find_map(|answer| must_stop(own, answer)) {
        return HelloVerdict::Stop(stop);
    }
    if let Some(leader) = ours().find(|answer| answer.leads) {
        return match leader.membership.members.contains_key(&own.id) {
            true => HelloVerdict::Go(Go::LeaderAnswered(leader.from)),
            false => HelloVerdict::Wait(format!(
                "the leader {} does not count this node among its members",
                leader.name
            )),
        };
    }

    let newest = ours()
        .map(|answer| &answer.membership)
        .chain([&own.membership])
        .max_by_key(|membership| membership.position)
        .filter(|membership| !membership.voters.is_empty());
    let silent: BTreeSet<NodeId> = ours()
        .filter(|answer| answer.leader.is_none())
        .map(|answer| answer.from)
        .collect();
    let missing = match newest {
        Some(membership) => missing_of_members(own, membership, &silent),
        None => missing_of_initial(own, &silent, answers),
    };
    let Some(missing) = missing else {
        return HelloVerdict::Go(Go::NobodyLeads);
    };

    let hearers: Vec<&str> = ours()
        .filter(|answer| answer.leader.is_some())
        .map(|answer| answer.name.as_str())
        .collect();
    HelloVerdict::Wait(if hearers.is_empty() {
        format!(
            "no majority has answered: waiting for {}",
            missing.join(", ")
        )
    } else {
        format!(
            "a leader that has not answered yet is heard by {}",
            hearers.join(", ")
        )
    })
}

fn must_stop(own: &Own, answer: &HelloAnswer) -> Option<HelloStop> {
    let by = answer.name.clone();
    if answer.removed {
        return Some(HelloStop::Removed { id: own.id, by });
    }
    if planted(Bug::StaleDiskVotes) {
        return None;
    }
    let stale = |what, own_value, known| {
        Some(HelloStop::Stale {
            id: own.id,
            what,
            own: own_value,
            known,
            by: by.clone(),
        })
    };
    let knows = answer.knows;
    if knows.run > own.run {
        return stale("run", own.run.0, knows.run.0);
    }
    if knows.term > own.term {
        return stale("term", own.term, knows.term);
    }
    if knows.flushed > own.flushed {
        return stale("log index", own.flushed, knows.flushed);
    }
    None
}

/// The names that are missing to a majority of every voter set; `None` if there is one.
fn missing_of_members(
    own: &Own,
    membership: &Membership,
    silent: &BTreeSet<NodeId>,
) -> Option<Vec<String>> {
    let mut missing = BTreeSet::new();
    let mut short = false;
    for voters in &membership.voters {
        let (here, away): (Vec<NodeId>, Vec<NodeId>) = voters
            .iter()
            .partition(|id| **id == own.id || silent.contains(id));
        if here.len() <= voters.len() / 2 {
            short = true;
            missing.extend(away);
        }
    }
    short.then(|| {
        let name = |id: NodeId| match membership.members.get(&id) {
            Some(member) => format!("{} at {}", member.name, member.address),
            None => format!("node {id}"),
        };
        missing.into_iter().map(name).collect()
    })
}

/// The same over the initial members' names, while the cluster has no membership yet.
fn missing_of_initial(
    own: &Own,
    silent: &BTreeSet<NodeId>,
    answers: &BTreeMap<NodeId, HelloAnswer>,
) -> Option<Vec<String>> {
    let here: BTreeSet<&str> = silent
        .iter()
        .filter_map(|id| answers.get(id))
        .map(|answer| answer.name.as_str())
        .collect();
    // Its own voice counts, if it is one of them.
    let heard = |name: &&String| here.contains(name.as_str()) || **name == own.name;
    let voices = own.initial.iter().filter(heard).count();
    (voices <= own.initial.len() / 2).then(|| {
        own.initial
            .iter()
            .filter(|name| !heard(name))
            .cloned()
            .collect()
    })
}

#[cfg(test)]
mod tests;
