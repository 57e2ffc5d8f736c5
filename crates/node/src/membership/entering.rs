//! The way of a started node into its cluster: forming or joining, hello, then Raft.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use trellis_consensus::{Consensus, Member};
use trellis_rpc::{ClusterId, Lane, is_removed, pb};
use trellis_types::NodeId;

use super::{
    FEATURE_LEVEL, FormingStep, HelloAnswer, HelloStop, HelloVerdict, NodeStop, Own, Round, Seed,
    Stage, Standing, convert, hello_verdict,
};

/// How long one question to another node may take.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// Pauses between two rounds of questions: short at first, so that nodes started together form
/// quickly, then gentle.
const ROUND_PAUSE_MIN: Duration = Duration::from_millis(50);
const ROUND_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How often a member that hears no leader asks whether it was removed.
const REMOVAL_ASK: Duration = Duration::from_secs(3);

/// Times between rounds, doubling up to a bound.
struct Pause(Duration);

impl Pause {
    fn new() -> Self {
        Self(ROUND_PAUSE_MIN)
    }

    async fn wait(&mut self, standing: &Standing) {
        // Being bound or invited is worth a look at once.
        tokio::select! {
            () = sleep(self.0) => self.0 = (self.0 * 2).min(ROUND_PAUSE_MAX),
            () = standing.bell.notified() => {}
        }
    }
}

/// Takes the node as far as it may go. Returns when it takes part in Raft.
///
/// # Errors
///
/// Why it never will.
pub(crate) async fn enter(standing: Arc<Standing>, consensus: Consensus) -> Result<(), NodeStop> {
    if let Some(stop) = too_high(*standing.witnessed.level().borrow()) {
        return Err(stop);
    }
    if standing.formed() && !standing.forming.join.is_empty() {
        info!(cluster = %standing.shown_cluster(), "a member already: `join` is not looked at");
    }
    // Where else to ask, beside the members: who formed or invited this node.
    let mut known: Vec<String> = Vec::new();
    let initialise = loop {
        let initialise = if standing.formed() {
            None
        } else {
            form_or_join(&standing, &mut known).await
        };
        if hello(&standing, &consensus, &known).await? {
            break initialise;
        }
    };
    consensus.run();
    standing.wait_in(Stage::Running);
    if let Some(members) = initialise {
        let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
        consensus
            .initialize(members)
            .await
            .map_err(|error| NodeStop::Failed(format!("the cluster can't be formed: {error}")))?;
        let cluster = standing.shown_cluster();
        if names.len() > 1 {
            info!(%cluster, members = names.join(", "), "formed a new cluster");
        } else {
            // Right for a first node, and a trap for one that was to come to others.
            warn!(
                %cluster,
                "formed a NEW cluster of one, because initial_members and join name no other node; \
                 a node that belongs to a cluster needs the others' addresses in one of them"
            );
        }
    }
    Ok(())
}

/// Binds the node to a cluster. `Some(members)` if it is to initialise with them.
async fn form_or_join(standing: &Arc<Standing>, known: &mut Vec<String>) -> Option<Vec<Member>> {
    let mut pause = Pause::new();
    loop {
        let mut forming = standing.forming.clone();
        forming.join.extend(standing.invited.lock().iter().cloned());
        let addresses = forming.addresses();
        let asked = addresses.into_iter().map(async |address| {
            let heard = ask_hello(standing, NodeId::default(), &address).await;
            (address, heard)
        });
        let heard: BTreeMap<_, _> = join_all(asked).await.into_iter().collect();
        let step = forming.step(&Round {
            bound: standing.cluster(),
            heard,
        });
        let outcome = match step {
            FormingStep::Initialise(bound) => gather(standing, bound).await.map(Some),
            FormingStep::Await(cluster) | FormingStep::Enter(cluster) => {
                bind(standing, cluster).await.map(|()| None)
            }
            FormingStep::Join { cluster, via } => {
                known.clone_from(&via);
                join(standing, cluster, &via).await.map(|()| None)
            }
            FormingStep::Wait(why) => Err(why),
        };
        match outcome {
            Ok(initialise) => return initialise,
            Err(why) => standing.wait_in(Stage::Forming(why)),
        }
        pause.wait(standing).await;
    }
}

async fn bind(standing: &Arc<Standing>, cluster: ClusterId) -> Result<(), String> {
    let _one = standing.binding.lock().await;
    match standing.cluster() {
        // The round that led here is out of date.
        Some(other) if other != cluster => Err(format!("bound to cluster {other} meanwhile")),
        _ => standing
            .bind(cluster)
            .await
            .map_err(|error| format!("can't bind: {error}")),
    }
}

/// The smallest name binds itself, then has all others bind themselves; only then may it
/// initialise.
async fn gather(standing: &Arc<Standing>, bound: Option<ClusterId>) -> Result<Vec<Member>, String> {
    let cluster = bound.unwrap_or_else(|| ClusterId(rand::random::<u128>().max(1)));
    bind(standing, cluster).await?;
    let forming = &standing.forming;
    let others = forming
        .initial
        .iter()
        .filter(|seed| seed.name != forming.name);
    let bound = others.map(|seed| ask_bind(standing, cluster, seed));
    let mut members = vec![standing.me()];
    for other in join_all(bound).await {
        members.push(other?);
    }
    let ids: BTreeSet<NodeId> = members.iter().map(|member| member.id).collect();
    if ids.len() < members.len() {
        return Err("two initial members have one node id: was a data folder copied?".to_owned());
    }
    Ok(members)
}

async fn ask_bind(standing: &Standing, cluster: ClusterId, seed: &Seed) -> Result<Member, String> {
    let Seed { name, address } = seed;
    let initial = standing.forming.initial.iter();
    let request = pb::BindRequest {
        cluster: convert::cluster_bytes(cluster),
        from_name: standing.name().to_owned(),
        initial: initial
            .map(|seed| pb::Seed {
                name: seed.name.clone(),
                address: seed.address.clone(),
            })
            .collect(),
    };
    let asked = async {
        let mut peer = standing
            .peers
            .peer(NodeId::default(), address, Lane::Control)?;
        peer.bind(request).await
    };
    let reply = match timeout(ASK_TIMEOUT, asked).await {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => return Err(format!("{name} at {address}: {}", status.message())),
        Err(_) => return Err(format!("{name} at {address} does not answer")),
    };
    if let Some(refused) = reply.refused {
        return Err(refused);
    }
    if reply.name != *name {
        return Err(format!(
            "{address} calls itself {:?}, not {name:?}",
            reply.name
        ));
    }
    Ok(Member {
        id: NodeId(reply.node),
        name: name.clone(),
        address: address.clone(),
    })
}

/// Binds, then asks the cluster to take this node in. `Ok` once it is a learner.
async fn join(standing: &Arc<Standing>, cluster: ClusterId, via: &[String]) -> Result<(), String> {
    bind(standing, cluster).await?;
    let mut why = "nobody answers".to_owned();
    for address in via {
        let request = pb::JoinRequest {
            cluster: convert::cluster_bytes(cluster),
            member: Some((&standing.me()).into()),
            level: FEATURE_LEVEL,
            hops: super::HOPS_MAX,
        };
        let asked = async {
            let mut peer = standing
                .peers
                .peer(NodeId::default(), address, Lane::Control)?;
            peer.join(request).await
        };
        // The answer waits for a committed change.
        why = match timeout(super::CHANGE_TIMEOUT, asked).await {
            Ok(Ok(reply)) => match reply.into_inner() {
                pb::ChangeReply {
                    refused: None,
                    done,
                    ..
                } => {
                    info!(%cluster, via = address, done, "joining");
                    return Ok(());
                }
                pb::ChangeReply {
                    refused: Some(refused),
                    ..
                } => refused,
            },
            Ok(Err(status)) if is_removed(&status) => {
                let by = address.clone();
                let stop = HelloStop::Removed {
                    id: standing.id(),
                    by,
                };
                standing.stop(stop.clone().into());
                stop.to_string()
            }
            Ok(Err(status)) => format!("{address}: {}", status.message()),
            Err(_) => format!("{address} does not answer"),
        };
    }
    Err(why)
}

/// Asks until the answers allow taking part. `false` if this node, which has no log entry, turns out
/// to be bound to a cluster that exists without it: one that was to join had bound itself before it
/// was taken in, and then heard nobody for a moment, as if the cluster were still to be formed.
async fn hello(
    standing: &Arc<Standing>,
    consensus: &Consensus,
    known: &[String],
) -> Result<bool, NodeStop> {
    let mut pause = Pause::new();
    let mut answers: BTreeMap<NodeId, HelloAnswer> = BTreeMap::new();
    loop {
        let Some(own) = own(standing, consensus) else {
            return Err(NodeStop::Unbound);
        };
        // Only answers of one round decide: who heard no leader a while ago may hear one now.
        let members: Vec<Member> = own
            .membership
            .members
            .values()
            .chain(
                answers
                    .values()
                    .flat_map(|answer| answer.membership.members.values()),
            )
            .cloned()
            .collect();
        let (heard, silent) = round(standing, &own, &members, known).await;
        answers = heard;
        let outside = !standing.formed() && is_outside(&own, &answers);
        match hello_verdict(&own, &answers) {
            HelloVerdict::Go(_) if outside => return Ok(false),
            HelloVerdict::Go(why) => {
                info!(%why, "hello answered");
                return Ok(true);
            }
            HelloVerdict::Stop(stop) => return Err(stop.into()),
            HelloVerdict::Wait(why) if silent.is_empty() => standing.wait_in(Stage::Hello(why)),
            HelloVerdict::Wait(why) => {
                standing.wait_in(Stage::Hello(format!("{why} ({})", silent.join("; "))));
            }
        }
        pause.wait(standing).await;
        if outside {
            return Ok(false);
        }
    }
}

/// Whether there is a cluster and the newest of its memberships does not have this node.
fn is_outside(own: &Own, answers: &BTreeMap<NodeId, HelloAnswer>) -> bool {
    let existing = answers.values().filter(|answer| answer.formed);
    existing
        .map(|answer| &answer.membership)
        .max_by_key(|membership| membership.position)
        .is_some_and(|newest| !newest.members.contains_key(&own.id))
}

/// What the own disk says; `None` if the node is bound to no cluster (any more).
fn own(standing: &Standing, consensus: &Consensus) -> Option<Own> {
    let metrics = consensus.metrics();
    Some(Own {
        id: standing.id(),
        name: standing.name().to_owned(),
        run: standing.run_at_start,
        term: metrics.term,
        flushed: metrics.last_log.unwrap_or_default(),
        membership: consensus.membership(),
        cluster: standing.cluster()?,
        initial: standing.forming.electorate(),
    })
}

/// One hello to everybody who is known by id, by configuration or by having formed this node:
/// who answered, and why the others did not.
async fn round(
    standing: &Standing,
    own: &Own,
    members: &[Member],
    known: &[String],
) -> (BTreeMap<NodeId, HelloAnswer>, Vec<String>) {
    let mut targets: BTreeMap<String, NodeId> = BTreeMap::new();
    let configured = standing.forming.addresses();
    for address in known.iter().chain(&configured) {
        targets.insert(address.clone(), NodeId::default());
    }
    for member in members.iter().filter(|member| member.id != own.id) {
        targets.insert(member.address.clone(), member.id);
    }
    let asked = targets.iter().map(async |(address, id)| {
        let heard = ask_hello(standing, *id, address).await;
        heard.map_err(|why| format!("{address}: {why}"))
    });
    let mut answers = BTreeMap::new();
    let mut silent = Vec::new();
    for heard in join_all(asked).await {
        match heard {
            Ok(answer) => drop(answers.insert(answer.from, answer)),
            Err(why) => silent.push(why),
        }
    }
    (answers, silent)
}

/// Asks who stands at `address`; `id` only says which connection to use.
async fn ask_hello(standing: &Standing, id: NodeId, address: &str) -> Result<HelloAnswer, String> {
    let cluster = standing.cluster();
    let request = pb::HelloRequest {
        from: standing.id().0,
        name: standing.name().to_owned(),
        cluster: cluster.map(convert::cluster_bytes),
        membership_index: standing
            .membership()
            .position
            .map(|position| position.index),
        address: standing.me().address,
    };
    let asked = async {
        let mut peer = standing.peers.peer(id, address, Lane::Control)?;
        peer.hello(request).await
    };
    match timeout(ASK_TIMEOUT, asked).await {
        Ok(Ok(reply)) => {
            let reply = reply.into_inner();
            if let (Some(clock), Some(core)) = (reply.clock, standing.core.get()) {
                core.learn_clock(NodeId(reply.from), clock);
            }
            let answer = convert::hello_answer(reply);
            if let (Some(ours), Some(theirs)) = (cluster, answer.cluster)
                && ours != theirs
            {
                warn!(%ours, %theirs, node = answer.name, address, "a node of another cluster");
                return Err(format!("belongs to cluster {theirs}, this node to {ours}"));
            }
            if answer.from == standing.id() {
                return Err("is this node itself, or a copy of its data folder".to_owned());
            }
            Ok(answer)
        }
        Ok(Err(status)) if is_removed(&status) => {
            // The guard of a node of the same cluster: ids are random, so it is this one.
            standing.stop(
                HelloStop::Removed {
                    id: standing.id(),
                    by: address.to_owned(),
                }
                .into(),
            );
            Err(status.message().to_owned())
        }
        Ok(Err(status)) => Err(reason(&status)),
        Err(_) => Err("does not answer".to_owned()),
    }
}

/// The innermost cause that a transport's error has: "connection refused" helps, "transport
/// error" does not.
fn reason(status: &tonic::Status) -> String {
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(status);
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text.to_lowercase()
}

/// A level above the own means entries that this binary would misread.
fn too_high(cluster: u32) -> Option<NodeStop> {
    (cluster > FEATURE_LEVEL).then_some(NodeStop::Level {
        cluster,
        own: FEATURE_LEVEL,
    })
}

/// While the node takes part: stops it when the cluster goes beyond what it understands. The level
/// is raised only while every member can follow; so this is a binary that was replaced by an older
/// one. Never returns.
pub(crate) async fn watch_level(standing: Arc<Standing>) {
    let mut level = standing.witnessed.level();
    while level.changed().await.is_ok() {
        if let Some(stop) = too_high(*level.borrow_and_update()) {
            standing.stop(stop);
        }
    }
}

/// While the node takes part: whoever hears no leader asks whether it was removed. Never returns.
pub(crate) async fn watch_for_removal(standing: Arc<Standing>, consensus: Consensus) {
    loop {
        sleep(REMOVAL_ASK).await;
        if standing.leader().is_some() || !standing.formed() {
            continue;
        }
        let Some(own) = own(&standing, &consensus) else {
            continue;
        };
        let members: Vec<Member> = own.membership.members.values().cloned().collect();
        let (answers, _) = round(&standing, &own, &members, &[]).await;
        if let Some(by) = answers.values().find(|answer| answer.removed) {
            let by = by.name.clone();
            standing.stop(HelloStop::Removed { id: own.id, by }.into());
            return;
        }
    }
}
