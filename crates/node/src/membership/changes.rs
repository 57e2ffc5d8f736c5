//! Changes of members as people and newcomers ask for them, and the leader's steady work of
//! bringing the membership into order.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tonic::Status;
use tracing::{info, warn};
use trellis_consensus::{Consensus, Member};
use trellis_queue::{LeaderCommand, Setting};
use trellis_rpc::{Lane, pb};
use trellis_types::NodeId;

use super::{
    ChangeRefusal, Council, Duty, Sight, Standing, convert, next_duty, standing::LEADER_COUNTS_FOR,
};

/// How long one committed change, its forwarding included, may take.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a request is passed on towards the leader: once is enough unless it moves meanwhile.
pub(crate) const HOPS_MAX: u32 = 3;

/// A member whose report is older does not count as living.
pub(crate) const REPORT_COUNTS_FOR: Duration = Duration::from_millis(1_500);

/// How long the leader waits before it tries a step again that did not come about.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// How often the leader looks at its council.
const COUNCIL_PACE: Duration = Duration::from_millis(250);

/// A transfer of leadership that has not happened after this time did not work.
pub(crate) const TRANSFER_TIMEOUT: Duration = Duration::from_secs(2);

/// How a change ended.
pub(crate) type Outcome = Result<String, Refused>;

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refused {
    /// What to do about it.
    pub why: String,
    /// Whether asking again later may help.
    pub again: bool,
}

impl Refused {
    fn later(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            again: true,
        }
    }

    fn never(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            again: false,
        }
    }
}

impl From<ChangeRefusal> for Refused {
    fn from(refusal: ChangeRefusal) -> Self {
        let again = matches!(
            refusal,
            ChangeRefusal::Underway(_)
                | ChangeRefusal::NameTaken { .. }
                | ChangeRefusal::NoMajority { .. }
        );
        Self {
            why: refusal.to_string(),
            again,
        }
    }
}

pub(crate) fn reply(outcome: Outcome) -> pb::ChangeReply {
    match outcome {
        Ok(done) => pb::ChangeReply {
            done,
            refused: None,
            again: false,
        },
        Err(Refused { why, again }) => pb::ChangeReply {
            done: String::new(),
            refused: Some(why),
            again,
        },
    }
}

pub(crate) fn no_leader(standing: &Standing) -> pb::ChangeReply {
    let name = standing.name();
    reply(Err(Refused::later(format!(
        "{name} hears no leader; try again when there is one"
    ))))
}

/// The leader that this node hears, if it is another one and the request may still be passed on.
pub(crate) fn leader_address(standing: &Standing, hops: u32) -> Option<(NodeId, String)> {
    let leader = standing
        .leader()
        .filter(|leader| *leader != standing.id() && hops > 0)?;
    let member = standing.membership().members.remove(&leader)?;
    Some((leader, member.address))
}

/// Carries a change out if this node leads, else passes it on to who does.
pub(crate) async fn change(
    standing: &Arc<Standing>,
    request: pb::ChangeRequest,
) -> Result<pb::ChangeReply, Status> {
    use pb::change_request::Change;
    if standing.leads().is_some() {
        return Ok(reply(match request.change {
            Some(Change::Add(address)) => add(standing, &address).await,
            Some(Change::Remove(pb::change_request::Removal { member, force })) => {
                remove(standing, &member, force).await
            }
            Some(Change::TransferLeader(to)) => transfer(standing, &to).await,
            None => Err(Refused::never(
                "a change this version does not know; update the node",
            )),
        }));
    }
    let Some((leader, address)) = leader_address(standing, request.hops) else {
        return Ok(no_leader(standing));
    };
    let request = pb::ChangeRequest {
        hops: request.hops - 1,
        ..request
    };
    let asked = async {
        let mut peer = standing.peers.peer(leader, &address, Lane::Control)?;
        peer.change(request).await
    };
    match timeout(CHANGE_TIMEOUT, asked).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Ok(reply(Err(Refused::later(format!(
            "the leader at {address} does not answer"
        ))))),
    }
}

fn running(standing: &Standing) -> Result<&Consensus, Refused> {
    let consensus = standing.consensus.get();
    consensus.ok_or_else(|| Refused::later("this node is still starting"))
}

/// A newcomer becomes a learner; the council takes it from there.
pub(crate) async fn take_in(standing: &Arc<Standing>, newcomer: Member, level: u32) -> Outcome {
    let consensus = running(standing)?;
    let _one = standing.changing.lock().await;
    let council = council(standing, consensus);
    let retired = standing.witnessed.is_retired(newcomer.id);
    let Member { id, name, .. } = newcomer.clone();
    if council.may_join(&newcomer, level, retired)? {
        return Ok(format!("{name} ({id}) is a member already"));
    }
    if council.membership.voters.len() > 1 {
        return Err(Refused::later("another change is not complete"));
    }
    committed(consensus.add_learner(newcomer)).await?;
    info!(%id, name, "taken in as a learner");
    Ok(format!("{name} ({id}) is taken in as a learner"))
}

/// Invites the node at `address`; it joins by itself then.
async fn add(standing: &Arc<Standing>, address: &str) -> Outcome {
    let cluster = standing
        .cluster()
        .ok_or_else(|| Refused::later("this node is not bound"))?;
    // The newcomer asks any of them; who answers passes it on to the leader.
    let via: Vec<String> = standing
        .membership()
        .members
        .into_values()
        .map(|member| member.address)
        .collect();
    let request = pb::InviteRequest {
        cluster: convert::cluster_bytes(cluster),
        via,
    };
    let asked = async {
        let mut peer = standing
            .peers
            .peer(NodeId::default(), address, Lane::Control)?;
        peer.invite(request).await
    };
    let pb::InviteReply {
        node,
        name,
        refused,
    } = match timeout(TRANSFER_TIMEOUT, asked).await {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => {
            return Err(Refused::later(format!("{address}: {}", status.message())));
        }
        Err(_) => return Err(Refused::later(format!("{address} does not answer"))),
    };
    match refused {
        Some(why) => Err(Refused::never(why)),
        None => Ok(format!(
            "{name} ({}) is invited and will join",
            NodeId(node)
        )),
    }
}

async fn remove(standing: &Arc<Standing>, name_or_id: &str, force: bool) -> Outcome {
    let consensus = running(standing)?;
    let member = {
        let _one = standing.changing.lock().await;
        let council = council(standing, consensus);
        let member = council.find(name_or_id)?;
        council.may_remove(&member, force)?;
        if council.membership.voters.len() > 1 {
            return Err(Refused::later("another change is not complete"));
        }
        if member.id != standing.id() {
            committed(consensus.remove(member.id)).await?;
            info!(id = %member.id, name = member.name, "removed from the membership");
            let retired = vec![LeaderCommand::RetireNode(member.id)];
            // The council does it again if this is lost.
            if let Err(error) = propose(standing, retired).await {
                warn!(id = %member.id, error, "its id is not recorded as retired yet");
            }
            return Ok(format!("{} ({}) is removed", member.name, member.id));
        }
        member
    };
    // A leader does not remove itself: its successor does.
    transfer(standing, "").await?;
    Err(Refused::later(format!(
        "{} led the cluster and has handed that over; ask again to remove it",
        member.name
    )))
}

/// Hands leadership to the named voter, or to the most advanced one.
pub(crate) async fn transfer(standing: &Arc<Standing>, name_or_id: &str) -> Outcome {
    let consensus = running(standing)?;
    let council = council(standing, consensus);
    let wanted = match name_or_id {
        "" => None,
        named => Some(council.find(named)?),
    };
    if wanted
        .as_ref()
        .is_some_and(|member| member.id == standing.id())
    {
        return Ok(format!("{} leads already", standing.name()));
    }
    let to = council
        .successor(wanted.as_ref().map(|member| member.id))
        .ok_or_else(|| {
            Refused::later(match &wanted {
                Some(member) => format!("{} is no present voter", member.name),
                None => "no other voter is present".to_owned(),
            })
        })?;
    hand_over(standing, consensus, to).await
}

/// Waits until `to` is level, hands over, and waits until another one leads: `to`, or it did not
/// work.
pub(crate) async fn hand_over(standing: &Standing, consensus: &Consensus, to: NodeId) -> Outcome {
    let name = match standing.membership().members.remove(&to) {
        Some(member) => member.name,
        None => to.to_string(),
    };
    let mut role = consensus.role();
    let moved = async {
        consensus
            .transfer_leader(to)
            .await
            .map_err(|error| error.to_string())?;
        let succeeded = role
            .wait_for(|role| role.follows().is_some())
            .await
            .map_err(|_| "consensus has stopped".to_owned())?;
        match succeeded.follows() {
            Some(leader) if leader != to => Err(format!("node {leader} leads instead")),
            _ => Ok(()),
        }
    };
    match timeout(TRANSFER_TIMEOUT, moved).await {
        Ok(Ok(())) => {
            info!(to = name, "leadership handed over");
            Ok(format!("{name} leads now"))
        }
        Ok(Err(why)) => Err(Refused::later(format!("{name} could not take over: {why}"))),
        Err(_) => Err(Refused::later(format!("{name} did not take over in time"))),
    }
}

async fn committed<E: std::fmt::Display>(
    change: impl Future<Output = Result<(), E>>,
) -> Result<(), Refused> {
    match timeout(CHANGE_TIMEOUT, change).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Refused::later(error.to_string())),
        Err(_) => Err(Refused::later(
            "no majority has agreed in time; it may still happen",
        )),
    }
}

pub(crate) async fn propose(
    standing: &Standing,
    commands: Vec<LeaderCommand>,
) -> Result<(), String> {
    let core = standing.core.get().ok_or("this node is still starting")?;
    match timeout(CHANGE_TIMEOUT, core.propose(commands)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err("no majority has agreed in time".to_owned()),
    }
}

/// What this leader sees now.
pub(crate) fn council(standing: &Standing, consensus: &Consensus) -> Council {
    let membership = consensus.membership();
    let metrics = consensus.metrics();
    let last = metrics.last_log.unwrap_or_default();
    let (open, unretired, level) = consensus.with_machine(|machine| {
        let mut open = BTreeSet::new();
        let mut unretired = BTreeSet::new();
        for origin in machine.origins() {
            if !machine.is_retired(origin.node) {
                unretired.insert(origin.node);
            }
            if origin.open.is_some() {
                open.insert(origin.node);
            }
        }
        (open, unretired, machine.server().feature_level)
    });
    let core = standing.core.get();
    let see = |id: NodeId| {
        if id == standing.id() {
            return Sight {
                present: true,
                follows: true,
                open_origin: open.contains(&id),
                lag: Some(0),
                level: Some(super::FEATURE_LEVEL),
                address: Some(standing.address.clone()),
                quarantined: standing.quarantined.get().is_some(),
            };
        }
        let told = standing.table.get(id);
        let reports = told
            .as_ref()
            .is_some_and(|(_, age)| *age <= REPORT_COUNTS_FOR);
        let progress = metrics.peers.iter().find(|peer| peer.node == id);
        let matched = progress.and_then(|peer| peer.matched);
        Sight {
            // A learner need not have an origin yet.
            present: core.is_some_and(|core| core.is_present(id))
                || (reports && !membership.is_voter(id)),
            follows: progress
                .and_then(|peer| peer.acked_age)
                .is_some_and(|age| age <= LEADER_COUNTS_FOR),
            open_origin: open.contains(&id),
            quarantined: told.as_ref().is_some_and(|(seen, _)| seen.quarantined),
            lag: matched.map(|index| last.saturating_sub(index)),
            level: told
                .as_ref()
                .map(|(seen, _)| seen.level)
                .filter(|level| *level > 0),
            address: told
                .map(|(seen, _)| seen.address)
                .filter(|address| !address.is_empty()),
        }
    };
    let sights = membership
        .members
        .keys()
        .map(|id| (*id, see(*id)))
        .collect();
    Council {
        me: standing.id(),
        membership,
        sights,
        level,
        unretired,
    }
}

/// The leader's steady work: one step at a time towards an orderly membership. Never returns.
pub(crate) async fn preside(standing: Arc<Standing>, consensus: Consensus) {
    loop {
        sleep(COUNCIL_PACE).await;
        if standing.leads().is_none() {
            standing.councils.lock().clear();
            continue;
        }
        let one = standing.changing.lock().await;
        let duty = next_duty(&council(&standing, &consensus));
        if let Duty::Rest(waiting) = duty {
            let mut known = standing.councils.lock();
            for why in waiting.iter().filter(|why| !known.contains(why)) {
                info!(why, "a learner waits");
            }
            *known = waiting;
            continue;
        }
        info!("membership: {duty}");
        let done = match duty.clone() {
            Duty::FinishJoint => committed(consensus.finish_joint()).await,
            Duty::Readdress(member) => committed(consensus.update_member(member)).await,
            Duty::Replace { dead, new } => {
                let replaced = committed(consensus.replace_voter(Some(dead), new)).await;
                match replaced {
                    Ok(()) => retire(&standing, dead).await,
                    refused => refused,
                }
            }
            Duty::Promote(new) => committed(consensus.replace_voter(None, new)).await,
            Duty::Drop(learner) => match committed(consensus.remove(learner)).await {
                Ok(()) => retire(&standing, learner).await,
                refused => refused,
            },
            Duty::Retire(id) => retire(&standing, id).await,
            Duty::RaiseLevel(level) => {
                let raise = vec![LeaderCommand::Set(Setting::FeatureLevel(level))];
                propose(&standing, raise).await.map_err(Refused::later)
            }
            Duty::Rest(_) => Ok(()),
        };
        if let Err(refused) = done {
            warn!(%refused, "membership: not done yet, will be tried again: {duty}");
            drop(one);
            sleep(TRY_AGAIN).await;
        }
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FinishJoint => f.write_str("a change that stopped half-way is completed"),
            Self::Retire(id) => write!(f, "the id {id} is recorded as never to be used again"),
            Self::Readdress(member) => {
                write!(
                    f,
                    "{} ({}) is at {} now",
                    member.name, member.id, member.address
                )
            }
            Self::Replace { dead, new } => write!(f, "{new} takes the place of the dead {dead}"),
            Self::Promote(id) => write!(f, "{id} becomes a voter"),
            Self::Drop(id) => write!(f, "{id} goes: a newer node has its name"),
            Self::RaiseLevel(level) => write!(f, "the feature level becomes {level}"),
            Self::Rest(_) => f.write_str("nothing to do"),
        }
    }
}

async fn retire(standing: &Standing, id: NodeId) -> Result<(), Refused> {
    propose(standing, vec![LeaderCommand::RetireNode(id)])
        .await
        .map_err(Refused::later)?;
    standing.table.retain(|known| known != id);
    standing.peers.forget(id);
    Ok(())
}
