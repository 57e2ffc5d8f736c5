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
