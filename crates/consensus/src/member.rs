use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use trellis_types::NodeId;

/// A node of the cluster as the replicated membership knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Never used again once removed.
    pub id: NodeId,
    /// Stable, like `trellis-0`; a replacement has the name of what it replaces.
    pub name: String,
    /// host:port of the peer port. A DNS name stays a name and is resolved at each connect.
    pub address: String,
}

/// Names one entry of the log. Greater is newer; equal is the same entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The term of the leader that proposed it.
    pub term: u64,
    /// That leader.
    pub leader: NodeId,
    /// Its place: 0, 1, 2 … without holes.
    pub index: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}.{}", self.term, self.leader, self.index)
    }
}

/// Who takes part, as one entry of the log says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Which entry says so; `None` before there is one.
    pub position: Option<Position>,
    /// One set of voters, or two while it changes (joint): then a majority of each is needed.
    pub voters: Vec<BTreeSet<NodeId>>,
    /// Voters and learners.
    pub members: BTreeMap<NodeId, Member>,
}

impl Membership {
    /// Whether `node` votes, in any of the sets.
    pub fn is_voter(&self, node: NodeId) -> bool {
        self.voters.iter().any(|set| set.contains(&node))
    }

    /// Whether a change is under way.
    pub fn is_joint(&self) -> bool {
        self.voters.len() > 1
    }

    /// Everybody who votes, in any of the sets.
    pub fn all_voters(&self) -> BTreeSet<NodeId> {
        self.voters.iter().flatten().copied().collect()
    }

    /// Whether `nodes` are a majority of every set. No set at all has no majority.
    pub fn is_majority(&self, nodes: &BTreeSet<NodeId>) -> bool {
        !self.voters.is_empty()
            && self
                .voters
                .iter()
                .all(|set| set.intersection(nodes).count() > set.len() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[u64]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn a_joint_membership_needs_a_majority_of_both_sets() {
        let membership = Membership {
            voters: vec![set(&[1, 2, 3]), set(&[2, 3, 4])],
            ..Membership::default()
        };
        assert!(membership.is_majority(&set(&[2, 3])));
        assert!(!membership.is_majority(&set(&[1, 2])));
        assert!(!Membership::default().is_majority(&set(&[1])));
        assert_eq!(membership.all_voters(), set(&[1, 2, 3, 4]));
    }

    #[test]
    fn positions_are_ordered_by_term_then_leader_then_index() {
        let at = |term, leader, index| Position {
            term,
            leader: NodeId(leader),
            index,
        };
        assert!(at(2, 1, 1) > at(1, 9, 9));
        assert!(at(2, 2, 1) > at(2, 1, 9));
        assert!(at(2, 2, 2) > at(2, 2, 1));
    }
}
