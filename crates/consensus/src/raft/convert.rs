//! Between openraft's words, this crate's words and protobuf.

use std::collections::BTreeMap;

use openraft::vote::RaftLeaderId;
use trellis_rpc::pb;
use trellis_types::NodeId;

use super::{Contact, LeaderId, LogId, StoredMembership, VoteOf};
use crate::{Member, Membership, Position};

impl From<LogId> for Position {
    fn from(id: LogId) -> Self {
        Self {
            term: id.leader_id.term,
            leader: id.leader_id.node_id,
            index: id.index,
        }
    }
}

impl From<Position> for LogId {
    fn from(position: Position) -> Self {
        Self::new(
            LeaderId::new(position.term, position.leader),
            position.index,
        )
    }
}

impl From<Position> for pb::LogId {
    fn from(position: Position) -> Self {
        Self {
            term: position.term,
            leader: position.leader.0,
            index: position.index,
        }
    }
}

impl From<pb::LogId> for Position {
    fn from(id: pb::LogId) -> Self {
        Self {
            term: id.term,
            leader: NodeId(id.leader),
            index: id.index,
        }
    }
}

pub(crate) fn log_id_to(id: Option<LogId>) -> Option<pb::LogId> {
    id.map(|id| Position::from(id).into())
}

pub(crate) fn log_id_from(id: Option<pb::LogId>) -> Option<LogId> {
    id.map(|id| Position::from(id).into())
}

pub(crate) fn vote_to(vote: VoteOf) -> pb::Vote {
    pb::Vote {
        term: vote.leader_id.term,
        node: vote.leader_id.node_id.0,
        committed: vote.committed,
    }
}

pub(crate) fn vote_from(vote: pb::Vote) -> VoteOf {
    VoteOf {
        leader_id: LeaderId::new(vote.term, NodeId(vote.node)),
        committed: vote.committed,
    }
}

impl From<&Member> for pb::Member {
    fn from(member: &Member) -> Self {
        let Member { id, name, address } = member.clone();
        Self {
            id: id.0,
            name,
            address,
        }
    }
}

impl From<Member> for Contact {
    fn from(member: Member) -> Self {
        let Member {
            id: _,
            name,
            address,
        } = member;
        Self { name, address }
    }
}

impl Contact {
    /// The member `id` whom this contact is of.
    pub(crate) fn member(&self, id: NodeId) -> Member {
        let Self { name, address } = self.clone();
        Member { id, name, address }
    }
}

impl From<pb::Member> for Member {
    fn from(member: pb::Member) -> Self {
        let pb::Member { id, name, address } = member;
        Self {
            id: NodeId(id),
            name,
            address,
        }
    }
}

impl From<&Membership> for pb::Membership {
    fn from(membership: &Membership) -> Self {
        let ids = |set: &std::collections::BTreeSet<NodeId>| set.iter().map(|id| id.0).collect();
        Self {
            position: membership.position.map(Into::into),
            voters: membership
                .voters
                .iter()
                .map(|set| pb::Voters { ids: ids(set) })
                .collect(),
            members: membership.members.values().map(Into::into).collect(),
        }
    }
}

impl From<pb::Membership> for Membership {
    fn from(membership: pb::Membership) -> Self {
        let voters = membership.voters.into_iter();
        let members = membership.members.into_iter().map(Member::from);
        Self {
            position: membership.position.map(Into::into),
            voters: voters
                .map(|set| set.ids.into_iter().map(NodeId).collect())
                .collect(),
            members: members.map(|member| (member.id, member)).collect(),
        }
    }
}

impl From<&StoredMembership> for Membership {
    fn from(stored: &StoredMembership) -> Self {
        Self {
            position: stored.log_id().map(Into::into),
            ..Self::from(stored.membership())
        }
    }
}

impl From<&openraft::Membership<NodeId, Contact>> for Membership {
    fn from(membership: &openraft::Membership<NodeId, Contact>) -> Self {
        let members: BTreeMap<_, _> = membership
            .nodes()
            .map(|(id, contact)| (*id, contact.member(*id)))
            .collect();
        Self {
            position: None,
            voters: membership.get_joint_config().clone(),
            members,
        }
    }
}

impl Membership {
    /// As openraft has it, without its position.
    ///
    /// # Errors
    ///
    /// A sentence, if a set of voters is empty or a voter is no member.
    pub(crate) fn to_raft(&self) -> Result<openraft::Membership<NodeId, Contact>, String> {
        let contacts = self.members.values().cloned();
        let contacts: BTreeMap<_, _> = contacts
            .map(|member| (member.id, Contact::from(member)))
            .collect();
        openraft::Membership::new(self.voters.clone(), contacts).map_err(|error| error.to_string())
    }

    pub(crate) fn to_stored(&self) -> Result<StoredMembership, String> {
        Ok(StoredMembership::new(
            self.position.map(Into::into),
            self.to_raft()?,
        ))
    }
}
