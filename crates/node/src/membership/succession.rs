use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use trellis_consensus::{Consensus, Member, Membership, Position, Role};
use trellis_rpc::{Lane, pb};
use trellis_types::NodeId;

use super::Standing;

/// How long the others may take to look at the leader themselves.
const WITNESS_TIMEOUT: Duration = Duration::from_millis(300);

/// Rounds of questions for one leader: the one who should stand may itself be gone.
const ROUNDS: u32 = 10;

/// Between two rounds, and between two attempts to hold on to the leader.
const PAUSE: Duration = Duration::from_millis(100);

/// What a voter says of a leader whose process may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Testimony {
    /// It finds it gone, too.
    pub(crate) gone: bool,
    /// It would lead.
    pub(crate) willing: bool,
    /// The end of its log.
    pub(crate) last_log: Option<Position>,
}

/// Who stands in for a leader whose process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Succession {
    /// This node, at once.
    Stand,
    /// That one, which has more of the log or, of equals, the greater id.
    Defer(NodeId),
    /// Too few find it gone, or nobody would lead: the usual election will tell.
    Doubtful,
}

/// Who stands: of a majority, this node included, that finds the leader gone, the willing one with
/// the greatest (last log id, node id). Source: architecture, section 14.
pub(crate) fn succession(
    me: NodeId,
    own: Testimony,
    membership: &Membership,
    testimonies: &BTreeMap<NodeId, Testimony>,
) -> Succession {
    if !membership.is_voter(me) {
        return Succession::Doubtful;
    }
    let agreeing = testimonies.iter().filter(|(_, testimony)| testimony.gone);
    let mut agreeing: BTreeMap<NodeId, Testimony> =
        agreeing.map(|(id, testimony)| (*id, *testimony)).collect();
    agreeing.insert(me, own);
    let ids: BTreeSet<NodeId> = agreeing.keys().copied().collect();
    if !membership.is_majority(&ids) {
        return Succession::Doubtful;
    }
    let willing = agreeing
        .into_iter()
        .filter(|(id, testimony)| testimony.willing && membership.is_voter(*id));
    match willing.max_by_key(|(id, testimony)| (testimony.last_log, *id)) {
        Some((id, _)) if id == me => Succession::Stand,
        Some((id, _)) => Succession::Defer(id),
        None => Succession::Doubtful,
    }
}

/// Holds on to each leader; when the hold breaks and a new connection is refused, sees to it that
/// somebody stands at once instead of waiting for the lease to run out. Never returns.
///
/// Wrong suspicion does no harm: reads never rest on leases.
pub(crate) async fn watch_leader(standing: Arc<Standing>, consensus: Consensus) {
    let mut role = consensus.role();
    let mut stood_in = 0;
    loop {
        let now = *role.borrow_and_update();
        if let Role::Follower {
            term,
            leader: Some(leader),
        } = now
            && let Some(member) = standing.membership().members.remove(&leader)
        {
            tokio::select! {
                () = hold_on(&standing, &member) => {
                    if standing.peers.connect_refused(&member.address).await
                        && *role.borrow() == now
                        && stood_in < term
                        && succeed(&standing, &consensus, &member, term, &mut stood_in).await
                    {
                        continue;
                    }
                    sleep(PAUSE).await;
                }
                changed = role.changed() => if changed.is_err() { return },
            }
        } else if role.changed().await.is_err() {
            return;
        }
    }
}

/// Returns when the connection to the member is broken or can't be made.
async fn hold_on(standing: &Standing, member: &Member) {
    let held = async {
        let mut peer = standing
            .peers
            .peer(member.id, &member.address, Lane::Control)?;
        peer.lifeline(pb::LifelineRequest {}).await
    };
    if let Ok(Ok(line)) = timeout(Duration::from_secs(1), held).await {
        let mut line = line.into_inner();
        while let Ok(Some(_)) = line.message().await {}
    }
}

/// Asks around until somebody leads, this node has stood, or it stays doubtful. `true` if there is
/// nothing left to do in this term.
async fn succeed(
    standing: &Standing,
    consensus: &Consensus,
    gone: &Member,
    term: u64,
    stood_in: &mut u64,
) -> bool {
    info!(leader = gone.name, term, "the leader's process is gone");
    for _ in 0..ROUNDS {
        if !matches!(*consensus.role().borrow(), Role::Follower { term: now, .. } if now == term) {
            return true;
        }
        let membership = consensus.membership();
        let voters = membership.all_voters();
        let others = voters
            .iter()
            .filter(|id| **id != standing.id() && **id != gone.id);
        let asked = others
            .filter_map(|id| membership.members.get(id))
            .map(async |member| {
                let asked = async {
                    let mut peer =
                        standing
                            .peers
                            .peer(member.id, &member.address, Lane::Control)?;
                    peer.gone(pb::GoneRequest {
                        leader: gone.id.0,
                        term,
                    })
                    .await
                };
                let reply = timeout(WITNESS_TIMEOUT, asked)
                    .await
                    .ok()?
                    .ok()?
                    .into_inner();
                let testimony = Testimony {
                    gone: reply.gone && reply.term == term,
                    willing: !reply.unwilling,
                    last_log: reply.last_log.map(Position::from),
                };
                Some((member.id, testimony))
            });
        let testimonies = join_all(asked).await.into_iter().flatten().collect();
        let own = Testimony {
            gone: true,
            willing: standing.is_willing(),
            last_log: consensus.last_log(),
        };
        match succession(standing.id(), own, &membership, &testimonies) {
            Succession::Stand => {
                // Once per term, whatever becomes of it.
                *stood_in = term;
                info!(term, "standing for election in its place");
                if let Err(error) = consensus.stand_with_transfer_flag().await {
                    warn!(%error, "can't stand");
                }
                return true;
            }
            Succession::Defer(_) | Succession::Doubtful => sleep(PAUSE).await,
        }
    }
    false
}

/// What this node says when it is asked.
pub(crate) async fn testify(standing: &Standing, leader: NodeId, term: u64) -> pb::GoneReply {
    let Some(consensus) = standing.consensus.get() else {
        return pb::GoneReply::default();
    };
    let role = *consensus.role().borrow();
    let known = consensus.metrics().term;
    let last_log = consensus.last_log().map(Into::into);
    let follows = matches!(role, Role::Follower { leader: Some(now), .. } if now == leader);
    let gone = known == term
        && follows
        && match consensus.membership().members.get(&leader) {
            Some(member) => {
                standing.peers.connect_refused(&member.address).await || standing.unheard()
            }
            None => false,
        };
    pb::GoneReply {
        gone,
        term: known,
        last_log,
        unwilling: !standing.is_willing(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64) -> Testimony {
        let last_log = Some(Position {
            term: 4,
            leader: NodeId(1),
            index,
        });
        Testimony {
            gone: true,
            willing: true,
            last_log,
        }
    }

    fn hears(index: u64) -> Testimony {
        Testimony {
            gone: false,
            ..at(index)
        }
    }

    fn drains(index: u64) -> Testimony {
        Testimony {
            willing: false,
            ..at(index)
        }
    }

    /// Node 1 of five led; `me` asks the others.
    fn verdict(me: u64, own: Testimony, others: &[(u64, Testimony)]) -> Succession {
        let voters = [1, 2, 3, 4, 5].map(NodeId).into();
        let membership = Membership {
            voters: vec![voters],
            ..Membership::default()
        };
        let testimonies = others
            .iter()
            .map(|(id, said)| (NodeId(*id), *said))
            .collect();
        succession(NodeId(me), own, &membership, &testimonies)
    }

    #[test]
    fn the_one_with_the_longest_log_stands_and_of_equals_the_greatest_id() {
        let (two, three, five) = ((2, at(10)), (3, at(12)), (5, at(10)));
        assert_eq!(
            verdict(2, at(10), &[three, five]),
            Succession::Defer(NodeId(3))
        );
        assert_eq!(verdict(3, at(12), &[two, five]), Succession::Stand);
        assert_eq!(
            verdict(2, at(10), &[(3, at(10)), five]),
            Succession::Defer(NodeId(5))
        );
        assert_eq!(verdict(5, at(10), &[two, (3, at(10))]), Succession::Stand);
    }

    #[test]
    fn a_minority_that_finds_it_gone_is_cut_off_itself() {
        assert_eq!(verdict(2, at(10), &[]), Succession::Doubtful);
        assert_eq!(verdict(2, at(10), &[(3, at(1))]), Succession::Doubtful);
        let doubters = [(3, at(1)), (4, hears(1)), (5, hears(1))];
        assert_eq!(verdict(2, at(10), &doubters), Succession::Doubtful);
    }

    #[test]
    fn only_voters_stand() {
        let everybody = [(1, at(1)), (2, at(1)), (3, at(1))];
        assert_eq!(verdict(9, at(99), &everybody), Succession::Doubtful);
        let with_learner = [(3, at(10)), (4, at(10)), (9, at(99))];
        let why = "a learner's log is no matter";
        assert_eq!(
            verdict(5, at(10), &with_learner),
            Succession::Stand,
            "{why}"
        );
    }

    #[test]
    fn one_that_drains_or_hangs_counts_but_does_not_stand() {
        let others = [(2, at(10)), (5, drains(12))];
        assert_eq!(verdict(3, at(10), &others), Succession::Stand);
        assert_eq!(
            verdict(3, drains(12), &others),
            Succession::Defer(NodeId(2))
        );
        let all = [(2, drains(10)), (5, drains(10))];
        assert_eq!(verdict(3, drains(10), &all), Succession::Doubtful);
    }
}
