use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use trellis_types::NodeId;

use super::{Contact, LogId, StoredMembership};
use crate::Member;

/// Where the members are: as the newest membership in the log says, or as a member says that has
/// moved since.
///
/// openraft hands out an address when it makes a connection, and keeps that connection for as long
/// as the member stays one. A member that comes back at another address is still the same one, so
/// whoever connects asks here.
///
/// Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Addresses(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// Which entry says so.
    position: Option<LogId>,
    contacts: BTreeMap<NodeId, Contact>,
    /// Where members say they are. Without a majority at its recorded addresses no leader could
    /// record new ones.
    moved: BTreeMap<NodeId, String>,
}

impl Addresses {
    /// What counts from now on: also an older one, if the newer one was cut off the log.
    pub(crate) fn learn(&self, membership: &StoredMembership) {
        let mut known = self.0.lock();
        let known = &mut *known;
        if known.position == *membership.log_id() {
            return;
        }
        known.position = *membership.log_id();
        let contacts: BTreeMap<_, _> = membership
            .nodes()
            .map(|(id, contact)| (*id, contact.clone()))
            .collect();
        // What is recorded anew is newer than what was said.
        known
            .moved
            .retain(|id, _| contacts.get(id) == known.contacts.get(id));
        known.contacts = contacts;
    }

    /// The member `id` says that it is at `address`. True if that is news. It is not believed if
    /// another member is recorded there: of two with one address the later must be a mistake.
    pub(crate) fn moved(&self, id: NodeId, address: &str) -> bool {
        let mut known = self.0.lock();
        let Some(recorded) = known.contacts.get(&id) else {
            return false;
        };
        if recorded.address == address {
            return known.moved.remove(&id).is_some();
        }
        let taken = known.contacts.values().any(|it| it.address == address);
        let said = known.moved.get(&id).is_some_and(|said| said == address);
        if address.is_empty() || taken || said {
            return false;
        }
        known.moved.insert(id, address.to_owned());
        true
    }

    /// The member `id`; `else_at` if the membership has no such member (yet).
    pub(crate) fn of(&self, id: NodeId, else_at: &Contact) -> Member {
        let known = self.0.lock();
        let mut member = known.contacts.get(&id).unwrap_or(else_at).member(id);
        if let Some(address) = known.moved.get(&id) {
            member.address.clone_from(address);
        }
        member
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::raft::LeaderId;

    fn contact(address: &str) -> Contact {
        Contact {
            name: "b".into(),
            address: address.into(),
        }
    }

    fn membership(index: u64, address: &str) -> StoredMembership {
        let two = NodeId(2);
        let nodes = BTreeMap::from([(two, contact(address))]);
        let membership = openraft::Membership::new(vec![BTreeSet::from([two])], nodes);
        let leader = LeaderId {
            term: 1,
            node_id: NodeId(1),
        };
        StoredMembership::new(
            Some(LogId::new(leader, index)),
            membership.expect("a sound membership"),
        )
    }

    #[test]
    fn the_newest_membership_says_where_a_member_is() {
        let addresses = Addresses::default();
        let at = |id| addresses.of(NodeId(id), &contact("b:1")).address;
        assert_eq!(at(2), "b:1", "no membership is known yet");
        addresses.learn(&membership(5, "b:2"));
        assert_eq!(at(2), "b:2");
        assert_eq!(at(3), "b:1", "nobody of that id is a member");
        addresses.learn(&membership(9, "b:3"));
        assert_eq!(at(2), "b:3");
        addresses.learn(&membership(5, "b:2"));
        assert_eq!(at(2), "b:2", "entry 9 was cut off the log");
    }

    #[test]
    fn a_member_that_moved_is_believed_until_a_membership_says_where_it_is() {
        let addresses = Addresses::default();
        let at = || addresses.of(NodeId(2), &contact("b:1")).address;
        assert!(!addresses.moved(NodeId(2), "b:2"), "nobody is a member yet");
        addresses.learn(&membership(5, "b:1"));
        assert!(addresses.moved(NodeId(2), "b:2"));
        assert!(!addresses.moved(NodeId(2), "b:2"), "no news");
        assert_eq!(at(), "b:2");
        addresses.learn(&membership(6, "b:1"));
        assert_eq!(at(), "b:2", "that entry is about something else");
        addresses.learn(&membership(7, "b:3"));
        assert_eq!(at(), "b:3");
        assert!(addresses.moved(NodeId(2), "b:4"));
        assert!(addresses.moved(NodeId(2), "b:3"), "it is back");
        assert_eq!(at(), "b:3");
    }

    #[test]
    fn nobody_takes_the_address_of_another_member() {
        let addresses = Addresses::default();
        let mut both = membership(5, "b:1");
        let mut nodes: BTreeMap<_, _> = both.nodes().map(|(id, it)| (*id, it.clone())).collect();
        nodes.insert(NodeId(3), contact("c:1"));
        let voters = vec![BTreeSet::from([NodeId(2), NodeId(3)])];
        let log_id = *both.log_id();
        both = StoredMembership::new(
            log_id,
            openraft::Membership::new(voters, nodes).expect("a sound membership"),
        );
        addresses.learn(&both);
        assert!(!addresses.moved(NodeId(2), "c:1"));
        assert!(
            !addresses.moved(NodeId(2), ""),
            "an older node does not say"
        );
        assert_eq!(addresses.of(NodeId(2), &contact("b:0")).address, "b:1");
    }
}
