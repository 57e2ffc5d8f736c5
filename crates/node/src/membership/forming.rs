use std::collections::{BTreeMap, BTreeSet};

use trellis_rpc::ClusterId;
use trellis_types::NodeId;

use super::HelloAnswer;

/// A node as configuration names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed {
    /// Its stable name, such as `trellis-0`.
    pub name: String,
    /// Host and port of its peer port. A DNS name stays a name.
    pub address: String,
}

/// How a node without a log entry comes into a cluster, as its configuration says.
#[derive(Clone, Debug)]
pub(crate) struct Forming {
    /// This node's id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Everybody who forms the cluster, this node included; empty if it is to be alone.
    pub initial: Vec<Seed>,
    /// Peer addresses of a cluster that exists. A node that has some never initialises.
    pub join: Vec<String>,
}

/// What the forming node has found out in one round of questions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    /// What it is bound to itself.
    pub bound: Option<ClusterId>,
    /// By address: an answer, or why there is none.
    pub heard: BTreeMap<String, Result<HelloAnswer, String>>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormingStep {
    /// Bind to this cluster (to a new one if `None`), have every other initial member bind
    /// itself to it, and only then initialise with all of them.
    Initialise(Option<ClusterId>),
    /// This node is bound, and the smallest name initialises: take part and wait for its entry.
    Await(ClusterId),
    /// The cluster exists and counts this node among its members.
    Enter(ClusterId),
    /// Ask the cluster behind these addresses to take this node in.
    Join {
        /// Which.
        cluster: ClusterId,
        /// Of those of its nodes that answered.
        via: Vec<String>,
    },
    /// Ask again; the text says who is waited for, why, and what would help.
    Wait(String),
}

impl Forming {
    /// The smallest name among the initial members: the only one that may initialise.
    pub(crate) fn first(&self) -> Option<&str> {
        self.initial.iter().map(|seed| seed.name.as_str()).min()
    }

    /// Those who form the cluster, by name: the electorate while there is no membership. Nobody
    /// for a node that is to join.
    pub(crate) fn electorate(&self) -> BTreeSet<String> {
        if self.initial.is_empty() && self.join.is_empty() {
            return BTreeSet::from([self.name.clone()]);
        }
        self.initial.iter().map(|seed| seed.name.clone()).collect()
    }

    /// The addresses to ask: all other initial members, and those to join.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let others = self.initial.iter().filter(|seed| seed.name != self.name);
        others
            .map(|seed| seed.address.clone())
            .chain(self.join.iter().cloned())
            .collect()
    }

    /// Decides from one round of answers. The node has no log entry.
    ///
    /// Source: architecture, section 12, "First boot".
    pub(crate) fn step(&self, round: &Round) -> FormingStep {
        let existing: Vec<(&String, &HelloAnswer)> = round
            .heard
            .iter()
            .filter_map(|(address, heard)| Some((address, heard.as_ref().ok()?)))
            .filter(|(_, answer)| answer.formed)
            .collect();
        if let Some((_, one)) = existing.first()
            && let Some(cluster) = one.cluster
        {
            return self.towards(cluster, &existing, round);
        }
        if !self.join.is_empty() {
            return FormingStep::Wait(format!(
                "no node of an existing cluster answers at {}{}",
                self.join.join(", "),
                reasons(round)
            ));
        }
        if self.initial.is_empty() {
            return FormingStep::Initialise(round.bound);
        }
        if self.first() != Some(self.name.as_str()) {
            return match round.bound {
                Some(cluster) => FormingStep::Await(cluster),
                None => FormingStep::Wait(self.waiting_to_be_bound(round)),
            };
        }
        self.first_step(round)
    }

    /// A cluster exists already.
    fn towards(
        &self,
        cluster: ClusterId,
        existing: &[(&String, &HelloAnswer)],
        round: &Round,
    ) -> FormingStep {
        if let Some((_, other)) = existing
            .iter()
            .find(|(_, one)| one.cluster != Some(cluster))
        {
            return FormingStep::Wait(format!(
                "the configured nodes belong to different clusters: {} to {}, {} to {}; correct \
                 initial_members or join",
                existing[0].1.name,
                cluster,
                other.name,
                other
                    .cluster
                    .map_or_else(|| "none".to_owned(), |id| id.to_string()),
            ));
        }
        if let Some(bound) = round.bound
            && bound != cluster
        {
            return FormingStep::Wait(format!(
                "this node is bound to cluster {bound}, but {} serves cluster {cluster}; if {bound} \
                 never came to be, run `trellis member unbind` on this node",
                existing[0].1.name,
            ));
        }
        let newest = existing
            .iter()
            .map(|(_, answer)| &answer.membership)
            .max_by_key(|membership| membership.position);
        let members = newest.map(|newest| &newest.members);
        if members.is_some_and(|members| members.contains_key(&self.id)) {
            return FormingStep::Enter(cluster);
        }
        let replaces =
            members.is_some_and(|members| members.values().any(|member| member.name == self.name));
        if replaces || !self.join.is_empty() {
            let via = existing
                .iter()
                .map(|(address, _)| (*address).clone())
                .collect();
            return FormingStep::Join { cluster, via };
        }
        FormingStep::Wait(format!(
            "cluster {cluster} exists and does not know the name {:?}; to take this node in, run \
             `trellis member add` there, or start this node with `join`",
            self.name,
        ))
    }

    /// What the smallest name does while no cluster exists.
    fn first_step(&self, round: &Round) -> FormingStep {
        let others = self.initial.iter().filter(|seed| seed.name != self.name);
        for seed in others {
            match round.heard.get(&seed.address) {
                Some(Ok(answer)) => {
                    if answer.name != seed.name {
                        return FormingStep::Wait(format!(
                            "{} calls itself {:?}, but initial_members calls it {:?}",
                            seed.address, answer.name, seed.name,
                        ));
                    }
                    if let Some(other) = answer.cluster
                        && round.bound != Some(other)
                    {
                        return FormingStep::Wait(format!(
                            "{} is bound to cluster {other}, which nobody serves; if it never came \
                             to be, run `trellis member unbind` on {}",
                            seed.name, seed.name,
                        ));
                    }
                }
                _ => {
                    return FormingStep::Wait(format!(
                        "every initial member must answer before the cluster is formed{}",
                        reasons(round)
                    ));
                }
            }
        }
        FormingStep::Initialise(round.bound)
    }

    fn waiting_to_be_bound(&self, round: &Round) -> String {
        let stranded = round
            .heard
            .values()
            .filter_map(|heard| heard.as_ref().ok())
            .find_map(|answer| answer.cluster.map(|cluster| (answer.name.clone(), cluster)));
        let first = self.first().unwrap_or_default();
        match stranded {
            Some((name, cluster)) if name != first => format!(
                "waiting for {first} to form the cluster; {name} is bound to cluster {cluster}, \
                 which nobody serves{}",
                reasons(round)
            ),
            _ => format!("waiting for {first} to form the cluster{}", reasons(round)),
        }
    }
}

/// Why each of those that did not answer did not, as the tail of a sentence.
fn reasons(round: &Round) -> String {
    let silent: Vec<String> = round
        .heard
        .iter()
        .filter_map(|(address, heard)| Some(format!("{address}: {}", heard.as_ref().err()?)))
        .collect();
    if silent.is_empty() {
        String::new()
    } else {
        format!(" ({})", silent.join("; "))
    }
}

/// A smallest node's wish that this node bind itself to a cluster.
#[derive(Clone, Debug)]
pub(crate) struct BindRequest {
    /// To which.
    pub cluster: ClusterId,
    /// The name of who asks.
    pub from: String,
    /// The initial members as the asker's configuration names them.
    pub initial: Vec<Seed>,
}

/// Why a node does not bind itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BindRefusal {
    /// It is part of a cluster already.
    #[error("{name} is a member of cluster {own} already; cluster {asked} can't have it")]
    Formed {
        /// Who refuses.
        name: String,
        /// Where it belongs.
        own: ClusterId,
        /// What was asked.
        asked: ClusterId,
    },
    /// It is bound to another cluster id.
    #[error(
        "{name} is bound to cluster {own}, not to {asked}; if {own} never came to be, run \
         `trellis member unbind` on {name}"
    )]
    Bound {
        /// Who refuses.
        name: String,
        /// Where it is bound.
        own: ClusterId,
        /// What was asked.
        asked: ClusterId,
    },
    /// Two configurations differ.
    #[error("initial_members differ: {from} has {theirs}, {name} has {ours}; make them the same")]
    Differs {
        /// Who refuses.
        name: String,
        /// Who asked.
        from: String,
        /// The asker's list.
        theirs: String,
        /// The refuser's list.
        ours: String,
    },
}

impl Forming {
    /// Whether this node may bind itself as asked.
    ///
    /// # Errors
    ///
    /// Why not, and what to do about it.
    pub(crate) fn may_bind(
        &self,
        formed: bool,
        bound: Option<ClusterId>,
        request: &BindRequest,
    ) -> Result<(), BindRefusal> {
        let name = self.name.clone();
        match bound {
            Some(own) if formed => {
                return Err(BindRefusal::Formed {
                    name,
                    own,
                    asked: request.cluster,
                });
            }
            Some(own) if own != request.cluster => {
                return Err(BindRefusal::Bound {
                    name,
                    own,
                    asked: request.cluster,
                });
            }
            _ => {}
        }
        let list = |seeds: &[Seed]| {
            let mut list: Vec<String> = seeds
                .iter()
                .map(|seed| format!("{}={}", seed.name, seed.address))
                .collect();
            list.sort();
            format!("[{}]", list.join(", "))
        };
        let (theirs, ours) = (list(&request.initial), list(&self.initial));
        if theirs != ours || self.first() != Some(request.from.as_str()) {
            return Err(BindRefusal::Differs {
                name,
                from: request.from.clone(),
                theirs,
                ours,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
