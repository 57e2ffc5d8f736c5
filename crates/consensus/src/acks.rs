use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::time::Instant;
use trellis_types::NodeId;

/// When this leader sent the newest message that each member has accepted.
///
/// openraft keeps the same for itself, but takes an answer for all messages that it could be the
/// answer to: that of an older append counts for a newer one that carries no entries and so ends at
/// the same place. A leader that was stopped for a while and finds old answers in its sockets would
/// read them as support after its return, while another has been elected. Here every answer belongs
/// to its own request.
///
/// Source: architecture, section 6 (a read needs a majority that was asked after it began).
#[derive(Default)]
pub(crate) struct Acks(Mutex<BTreeMap<NodeId, (u64, Instant)>>);

impl Acks {
    /// `member` has accepted what was sent at `sent` in `term`.
    pub(crate) fn accepted(&self, member: NodeId, term: u64, sent: Instant) {
        let mut acks = self.0.lock();
        let newest = acks.entry(member).or_insert((term, sent));
        *newest = (*newest).max((term, sent));
    }

    /// Whether a majority of each set of `voters` has accepted something that was sent in `term` and
    /// not before `asked`. `me`, the leader, accepts itself.
    pub(crate) fn has_majority<'a>(
        &self,
        voters: impl IntoIterator<Item = &'a BTreeSet<NodeId>>,
        me: NodeId,
        term: u64,
        asked: Instant,
    ) -> bool {
        let acks = self.0.lock();
        let accepts = |member: &NodeId| {
            *member == me
                || acks
                    .get(member)
                    .is_some_and(|(of, sent)| *of == term && *sent >= asked)
        };
        voters
            .into_iter()
            .all(|set| set.iter().filter(|member| accepts(member)).count() > set.len() / 2)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ME: NodeId = NodeId(1);

    fn set(ids: &[u64]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    /// Found on paper: after a pause an answer to what was sent before it is no support for a read
    /// that began after it, whatever is under way by then.
    #[test]
    fn only_what_was_sent_after_the_question_counts() {
        let (acks, asked) = (Acks::default(), Instant::now());
        let (before, after) = (
            asked - Duration::from_secs(3),
            asked + Duration::from_millis(1),
        );
        let voters = [set(&[1, 2, 3])];
        acks.accepted(NodeId(2), 5, before);
        acks.accepted(NodeId(3), 5, before);
        assert!(!acks.has_majority(&voters, ME, 5, asked));
        acks.accepted(NodeId(3), 5, after);
        assert!(acks.has_majority(&voters, ME, 5, asked));
        assert!(
            !acks.has_majority(&voters, ME, 6, asked),
            "of a term before"
        );
        acks.accepted(NodeId(3), 5, before);
        assert!(
            acks.has_majority(&voters, ME, 5, asked),
            "an older answer that comes late takes nothing back"
        );
    }

    #[test]
    fn while_members_change_both_sets_are_asked() {
        let (acks, asked) = (Acks::default(), Instant::now());
        let voters = [set(&[1, 2, 3]), set(&[1, 4, 5])];
        acks.accepted(NodeId(2), 1, asked);
        assert!(!acks.has_majority(&voters, ME, 1, asked));
        acks.accepted(NodeId(5), 1, asked);
        assert!(acks.has_majority(&voters, ME, 1, asked));
    }

    #[test]
    fn the_only_voter_has_its_own_support() {
        let (acks, asked) = (Acks::default(), Instant::now());
        assert!(acks.has_majority(&[set(&[1])], ME, 1, asked));
        assert!(
            !acks.has_majority(&[set(&[2])], ME, 1, asked),
            "a leader that is removed is no voter"
        );
    }
}
