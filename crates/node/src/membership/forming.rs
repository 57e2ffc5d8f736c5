use std::collections::BTreeMap;

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
mod tests {
    use trellis_consensus::{Member, Membership, Position};

    use super::*;
    use crate::membership::Known;

    const X: ClusterId = ClusterId(1);
    const Y: ClusterId = ClusterId(2);

    fn seed(name: &str) -> Seed {
        Seed {
            name: name.into(),
            address: format!("{name}:1"),
        }
    }

    fn node(name: &str) -> Forming {
        let id = NodeId(name.bytes().last().map_or(0, u64::from));
        let initial = ["n0", "n1", "n2"].map(seed).into();
        Forming {
            id,
            name: name.into(),
            initial,
            join: Vec::new(),
        }
    }

    fn blank(name: &str, cluster: Option<ClusterId>) -> HelloAnswer {
        HelloAnswer {
            from: node(name).id,
            name: name.into(),
            cluster,
            formed: false,
            leads: false,
            leader: None,
            membership: Membership::default(),
            knows: Known::default(),
            removed: false,
        }
    }

    fn member(name: &str, members: &[&str]) -> HelloAnswer {
        let members: BTreeMap<NodeId, Member> = members
            .iter()
            .map(|name| {
                let Seed { name, address } = seed(name);
                let id = node(&name).id;
                (id, Member { id, name, address })
            })
            .collect();
        let membership = Membership {
            position: Some(Position {
                term: 1,
                leader: NodeId(1),
                index: 1,
            }),
            voters: vec![members.keys().copied().collect()],
            members,
        };
        HelloAnswer {
            formed: true,
            membership,
            ..blank(name, Some(X))
        }
    }

    fn round(bound: Option<ClusterId>, answers: Vec<HelloAnswer>) -> Round {
        let mut heard: BTreeMap<String, Result<HelloAnswer, String>> = ["n0", "n1", "n2"]
            .into_iter()
            .map(|name| (seed(name).address, Err("connection refused".to_owned())))
            .collect();
        for answer in answers {
            heard.insert(seed(&answer.name).address, Ok(answer));
        }
        Round { bound, heard }
    }

    fn waits(step: FormingStep) -> String {
        match step {
            FormingStep::Wait(why) => why,
            other => panic!("expected to wait, got {other:?}"),
        }
    }

    #[test]
    fn with_no_members_configured_a_node_forms_a_cluster_of_its_own() {
        let alone = Forming {
            initial: Vec::new(),
            ..node("n0")
        };
        assert_eq!(alone.step(&Round::default()), FormingStep::Initialise(None));
        let again = Round {
            bound: Some(X),
            ..Round::default()
        };
        assert_eq!(
            alone.step(&again),
            FormingStep::Initialise(Some(X)),
            "killed in between"
        );
    }

    #[test]
    fn the_smallest_name_waits_for_all_others_then_initialises() {
        let first = node("n0");
        let why = waits(first.step(&round(None, vec![blank("n1", None)])));
        assert!(
            why.contains("n2:1: connection refused"),
            "it names who is missing: {why}"
        );
        let all = vec![blank("n1", None), blank("n2", None)];
        assert_eq!(first.step(&round(None, all)), FormingStep::Initialise(None));
    }

    #[test]
    fn killed_between_binding_and_initialising_it_goes_on_with_the_same_cluster() {
        let all = vec![blank("n1", Some(X)), blank("n2", None)];
        assert_eq!(
            node("n0").step(&round(Some(X), all)),
            FormingStep::Initialise(Some(X))
        );
    }

    #[test]
    fn it_never_initialises_over_others_bound_elsewhere() {
        let all = vec![blank("n1", Some(X)), blank("n2", None)];
        let why = waits(node("n0").step(&round(None, all.clone())));
        assert!(
            why.contains("n1 is bound") && why.contains("`trellis member unbind`"),
            "{why}"
        );
        waits(node("n0").step(&round(Some(Y), all)));
    }

    #[test]
    fn nobody_but_the_smallest_initialises() {
        let all = vec![blank("n0", None), blank("n2", None)];
        let why = waits(node("n1").step(&round(None, all.clone())));
        assert!(why.contains("waiting for n0"), "{why}");
        assert_eq!(node("n1").step(&round(Some(X), all)), FormingStep::Await(X));
    }

    #[test]
    fn one_that_finds_others_bound_to_an_id_nobody_serves_says_so() {
        let why = waits(node("n1").step(&round(None, vec![blank("n2", Some(X))])));
        assert!(
            why.contains("n2 is bound to cluster") && why.contains("nobody serves"),
            "{why}"
        );
    }

    #[test]
    fn an_empty_node_never_initialises_beside_a_cluster_that_exists() {
        let formed = member("n1", &["n0", "n1", "n2"]);
        // Its id is among the members: it had bound itself, and its first entry is on the way.
        assert_eq!(
            node("n2").step(&round(Some(X), vec![formed.clone()])),
            FormingStep::Enter(X)
        );
        // The same name with a new id: its disk was lost.
        let reborn = Forming {
            id: NodeId(77),
            ..node("n0")
        };
        assert_eq!(
            reborn.step(&round(None, vec![formed])),
            FormingStep::Join {
                cluster: X,
                via: vec!["n1:1".into()]
            }
        );
    }

    #[test]
    fn a_stranger_joins_only_if_told_to() {
        let formed = member("n1", &["n0", "n1"]);
        let why = waits(node("n2").step(&round(None, vec![formed.clone()])));
        assert!(why.contains("`trellis member add`"), "{why}");
        let joining = Forming {
            initial: Vec::new(),
            join: vec!["n1:1".into()],
            ..node("n2")
        };
        assert_eq!(
            joining.step(&round(None, vec![formed])),
            FormingStep::Join {
                cluster: X,
                via: vec!["n1:1".into()]
            }
        );
    }

    #[test]
    fn a_joining_node_never_initialises() {
        let joining = Forming {
            join: vec!["n1:1".into()],
            ..node("n0")
        };
        let all = vec![blank("n1", None), blank("n2", None)];
        assert!(waits(joining.step(&round(None, all))).contains("no node of an existing cluster"));
        let only = Forming {
            initial: Vec::new(),
            ..joining
        };
        waits(only.step(&Round::default()));
    }

    #[test]
    fn a_node_bound_to_one_cluster_does_not_drift_into_another() {
        let formed = member("n1", &["n0", "n1", "n2"]);
        let why = waits(node("n2").step(&round(Some(Y), vec![formed])));
        assert!(
            why.contains(&X.to_string()) && why.contains(&Y.to_string()),
            "{why}"
        );
    }

    #[test]
    fn a_node_binds_once() {
        let ask = |cluster| BindRequest {
            cluster,
            from: "n0".into(),
            initial: node("n0").initial,
        };
        let one = node("n1");
        assert_eq!(one.may_bind(false, None, &ask(X)), Ok(()));
        assert_eq!(one.may_bind(false, Some(X), &ask(X)), Ok(()), "asked twice");
        let refusal = one
            .may_bind(false, Some(Y), &ask(X))
            .map_err(|refusal| refusal.to_string());
        assert!(refusal.is_err_and(|text| text.contains("unbind")));
        let formed = one.may_bind(true, Some(X), &ask(X));
        assert!(matches!(formed, Err(BindRefusal::Formed { .. })));
    }

    #[test]
    fn configurations_that_differ_form_nothing() {
        let mut ask = BindRequest {
            cluster: X,
            from: "n0".into(),
            initial: node("n0").initial,
        };
        ask.initial.reverse();
        assert_eq!(
            node("n1").may_bind(false, None, &ask),
            Ok(()),
            "order means nothing"
        );
        ask.initial.pop();
        let refusal = node("n1").may_bind(false, None, &ask);
        assert!(matches!(refusal, Err(BindRefusal::Differs { .. })));
        let usurper = BindRequest {
            from: "n2".into(),
            initial: node("n0").initial,
            ..ask
        };
        assert!(
            node("n1").may_bind(false, None, &usurper).is_err(),
            "not the smallest"
        );
    }
}
