use std::collections::{BTreeMap, BTreeSet};

use trellis_consensus::{Member, Membership};
use trellis_types::NodeId;

/// Entries that a learner may still lack when it becomes a voter: about what a commit round of a
/// busy cluster holds, so that the change does not make the majority wait for it.
pub(super) const CAUGHT_UP_ENTRIES: u64 = 64;

/// What the leader sees of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Heard within the presence bound; always true for the leader itself.
    pub present: bool,
    /// It acknowledges what Raft sends it.
    pub follows: bool,
    /// Whether it has an open origin, as the machine says.
    pub open_origin: bool,
    /// Entries that it lacks of the leader's log; `None` if not known.
    pub lag: Option<u64>,
    /// The feature level that its binary understands; `None` if it has not told yet.
    pub level: Option<u32>,
    /// The peer address that its configuration names now; `None` if it has not told yet.
    pub address: Option<String>,
    /// Its state is not relied upon: it must not lead, and a learner must not become a voter.
    pub quarantined: bool,
}

/// What the leader decides membership from: a value, so that it can be tried out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Council {
    /// The leader itself.
    pub me: NodeId,
    /// The newest membership.
    pub membership: Membership,
    /// By member; missing means that nothing is known.
    pub sights: BTreeMap<NodeId, Sight>,
    /// The replicated feature level.
    pub level: u32,
    /// Ids with a row of origins in the machine that are not retired.
    pub unretired: BTreeSet<NodeId>,
}

/// The next single step towards an orderly membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// A change stopped half-way: complete it.
    FinishJoint,
    /// The node is no member any more: record its id as never to be used again.
    Retire(NodeId),
    /// The member's configuration names another peer address than the membership.
    Readdress(Member),
    /// The learner takes the place of the dead id that has its name.
    Replace {
        /// Who goes.
        dead: NodeId,
        /// Who comes.
        new: NodeId,
    },
    /// The learner becomes a voter.
    Promote(NodeId),
    /// An older learner of the same name will never catch up: a newer one took its name.
    Drop(NodeId),
    /// Every member understands this level: raise it.
    RaiseLevel(u32),
    /// Nothing to do now; the texts say which learner waits for what.
    Rest(Vec<String>),
}

/// The one thing to do next; the caller does it, looks again, and so never does two at a time.
///
/// Raising the feature level comes only when no member is on its way, so that it and membership
/// change exclude each other. Source: architecture, sections 12 and 13.
pub(crate) fn next_duty(council: &Council) -> Duty {
    let membership = &council.membership;
    if membership.voters.len() > 1 {
        return Duty::FinishJoint;
    }
    let voters = membership.voters.first().cloned().unwrap_or_default();
    let gone = |id: &&NodeId| !membership.members.contains_key(id);
    if let Some(id) = council.unretired.iter().find(gone) {
        return Duty::Retire(*id);
    }
    if let Some(moved) = membership
        .members
        .values()
        .find_map(|member| council.moved(member))
    {
        return Duty::Readdress(moved);
    }
    let learners: Vec<&Member> = membership
        .members
        .values()
        .filter(|member| !voters.contains(&member.id))
        .collect();
    let mut waiting = Vec::new();
    for learner in &learners {
        let twin = |other: &&&Member| {
            other.name == learner.name && other.id != learner.id && council.lives(other.id)
        };
        if !council.lives(learner.id) && learners.iter().any(|other| twin(&other)) {
            return Duty::Drop(learner.id);
        }
        match council.promotion(learner, &voters) {
            Ok(duty) => return duty,
            Err(why) => waiting.push(why),
        }
    }
    if learners.is_empty()
        && let Some(level) = council.common_level()
        && level > council.level
    {
        return Duty::RaiseLevel(level);
    }
    Duty::Rest(waiting)
}

/// Why a membership change is not made. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefusal {
    /// No such member.
    #[error("no member is called {0:?} or has this id; `trellis member list` shows them")]
    Unknown(String),
    /// One newcomer at a time.
    #[error("{0} is on its way into the cluster: wait for it, or remove it first")]
    Underway(String),
    /// The name is taken by a living node.
    #[error(
        "the name {name:?} belongs to node {owner}, which is alive, or was until less than the node \
         lease ago; wait, or give the new node a name of its own"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        owner: NodeId,
    },
    /// The id was removed.
    #[error(
        "node {0} was removed from the cluster and its id is never used again; start it with an \
         empty data folder"
    )]
    Retired(NodeId),
    /// Its binary is too old.
    #[error(
        "the cluster uses feature level {cluster}, node {node} understands {own} at most; install \
         a newer version on it"
    )]
    TooOld {
        /// Which.
        node: NodeId,
        /// What it understands.
        own: u32,
        /// What is in use.
        cluster: u32,
    },
    /// Nobody would be left.
    #[error("{0} is the only voter; a cluster without voters can't be")]
    LastVoter(String),
    /// Those who stay could not go on.
    #[error(
        "without {name} the cluster would need {needed} of its {left} voters, and only {present} \
         are present; bring the others back first"
    )]
    NoMajority {
        /// Who was to go.
        name: String,
        /// The majority of those who stay.
        needed: usize,
        /// Those who stay.
        left: usize,
        /// How many of them are present.
        present: usize,
    },
    /// It works, but the next fault would stop it.
    #[error(
        "without {0} two voters are left, and then both must always be there; add `--force` if that is \
         wanted on the way to one"
    )]
    NoTolerance(String),
}

impl Council {
    /// A newcomer asks to be taken in as a learner. `Ok(true)`: it is a member already.
    ///
    /// # Errors
    ///
    /// Why not, or why not yet.
    pub(crate) fn may_join(
        &self,
        newcomer: &Member,
        level: u32,
        retired: bool,
    ) -> Result<bool, ChangeRefusal> {
        if retired {
            return Err(ChangeRefusal::Retired(newcomer.id));
        }
        if self.membership.members.contains_key(&newcomer.id) {
            return Ok(true);
        }
        if level < self.level {
            let (node, cluster) = (newcomer.id, self.level);
            return Err(ChangeRefusal::TooOld {
                node,
                own: level,
                cluster,
            });
        }
        let namesakes = self.membership.members.values();
        let namesakes = namesakes.filter(|member| member.name == newcomer.name);
        let mut replaces = false;
        for member in namesakes {
            if self.lives(member.id) {
                let (name, owner) = (member.name.clone(), member.id);
                return Err(ChangeRefusal::NameTaken { name, owner });
            }
            replaces |= self.votes(member.id);
        }
        // A second newcomer has to wait, unless the first is its own former self. One that replaces
        // a voter does not: the first is waiting for that voter.
        let mut others = self.membership.members.values();
        let first = others.find(|member| !self.votes(member.id) && member.name != newcomer.name);
        match first {
            Some(first) if !replaces => Err(ChangeRefusal::Underway(first.name.clone())),
            _ => Ok(false),
        }
    }

    /// Finds a member by name or by its sixteen-digit id.
    ///
    /// # Errors
    ///
    /// [`ChangeRefusal::Unknown`].
    pub(crate) fn find(&self, name_or_id: &str) -> Result<Member, ChangeRefusal> {
        let members = self.membership.members.values();
        let mut found =
            members.filter(|one| one.name == name_or_id || one.id.to_string() == name_or_id);
        // Of two with one name the voter is meant: the other is on its way to replace it.
        let first = found.next();
        let voter = |member: &&Member| self.votes(member.id);
        first
            .filter(voter)
            .or_else(|| found.find(voter))
            .or(first)
            .cloned()
            .ok_or_else(|| ChangeRefusal::Unknown(name_or_id.to_owned()))
    }

    /// Whether a member may be removed by hand.
    ///
    /// # Errors
    ///
    /// Why not, and what to do first.
    pub(crate) fn may_remove(&self, member: &Member, force: bool) -> Result<(), ChangeRefusal> {
        let name = member.name.clone();
        for voters in &self.membership.voters {
            if !voters.contains(&member.id) {
                continue;
            }
            let left: Vec<&NodeId> = voters.iter().filter(|id| **id != member.id).collect();
            if left.is_empty() {
                return Err(ChangeRefusal::LastVoter(name));
            }
            let present = left.iter().filter(|id| self.present(***id)).count();
            let needed = left.len() / 2 + 1;
            if present < needed {
                let left = left.len();
                return Err(ChangeRefusal::NoMajority {
                    name,
                    needed,
                    left,
                    present,
                });
            }
            if left.len() == 2 && !force {
                return Err(ChangeRefusal::NoTolerance(name));
            }
        }
        Ok(())
    }

    /// The voter to lead next: the most advanced one that follows, or `wanted` alone.
    pub(crate) fn successor(&self, wanted: Option<NodeId>) -> Option<NodeId> {
        let voters = self.membership.voters.last()?;
        voters
            .iter()
            .filter(|id| **id != self.me && self.sight(**id).follows)
            .filter(|id| !self.sight(**id).quarantined)
            .filter(|id| wanted.is_none_or(|wanted| wanted == **id))
            .min_by_key(|id| self.sight(**id).lag.unwrap_or(u64::MAX))
            .copied()
    }

    fn sight(&self, id: NodeId) -> Sight {
        self.sights.get(&id).cloned().unwrap_or_default()
    }

    fn moved(&self, member: &Member) -> Option<Member> {
        let address = self.sights.get(&member.id)?.address.clone()?;
        // Of two that claim one address the later must be a mistake.
        let mut others = self.membership.members.values();
        let taken = others.any(|other| other.address == address);
        (!taken).then(|| Member {
            address,
            ..member.clone()
        })
    }

    fn present(&self, id: NodeId) -> bool {
        id == self.me || self.sight(id).present
    }

    fn votes(&self, id: NodeId) -> bool {
        self.membership.voters.iter().any(|set| set.contains(&id))
    }

    /// Whether the voter is dead and a learner of its name could take its place right now.
    fn has_successor(&self, voter: NodeId) -> bool {
        let Some(dead) = self.membership.members.get(&voter) else {
            return false;
        };
        let ready = |learner: &Member| {
            let sight = self.sight(learner.id);
            let level = sight.lag.is_some_and(|lag| lag <= CAUGHT_UP_ENTRIES);
            sight.present && !sight.quarantined && level
        };
        let mut others = self.membership.members.values();
        !self.lives(voter)
            && others.any(|other| other.name == dead.name && !self.votes(other.id) && ready(other))
    }

    /// Present, or its origin is not over yet: it may still be serving clients.
    fn lives(&self, id: NodeId) -> bool {
        self.present(id) || self.sight(id).open_origin
    }

    /// Whether the learner may become a voter now, and in whose place; or what it waits for.
    fn promotion(&self, learner: &Member, voters: &BTreeSet<NodeId>) -> Result<Duty, String> {
        let Member { id, name, .. } = learner;
        let sight = self.sight(*id);
        if !sight.present {
            return Err(format!(
                "{name} ({id}) is to become a voter, but is not present"
            ));
        }
        if sight.quarantined {
            return Err(format!("{name} ({id}) is quarantined: rebuild it"));
        }
        match sight.lag {
            Some(lag) if lag <= CAUGHT_UP_ENTRIES => {}
            Some(lag) => return Err(format!("{name} ({id}) is catching up: {lag} entries left")),
            None => return Err(format!("{name} ({id}) has not acknowledged anything yet")),
        }
        let namesake = self
            .membership
            .members
            .values()
            .find(|member| voters.contains(&member.id) && member.name == *name);
        let dead = namesake.map(|member| member.id);
        if let Some(dead) = dead
            && self.lives(dead)
        {
            return Err(format!(
                "{name} ({id}) waits for the origin of node {dead} to expire"
            ));
        }
        // Of several who replace dead voters none waits for the dead of another: it would never come.
        let excused = |voter| dead.is_some() && self.has_successor(voter);
        let away: Vec<String> = voters
            .iter()
            .filter(|voter| Some(**voter) != dead && !self.present(**voter))
            .filter(|voter| !excused(**voter))
            .map(|voter| match self.membership.members.get(voter) {
                Some(member) => member.name.clone(),
                None => voter.to_string(),
            })
            .collect();
        if !away.is_empty() {
            return Err(format!(
                "{name} ({id}) becomes a voter only while every other voter is present: waiting \
                 for {}",
                away.join(", ")
            ));
        }
        Ok(match dead {
            Some(dead) => Duty::Replace { dead, new: *id },
            None => Duty::Promote(*id),
        })
    }

    /// The highest level that every member understands; `None` while one has not told.
    fn common_level(&self) -> Option<u32> {
        let levels = self
            .membership
            .members
            .keys()
            .map(|id| self.sight(*id).level);
        levels.collect::<Option<Vec<u32>>>()?.into_iter().min()
    }
}

#[cfg(test)]
mod tests;
