use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::BufReader,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use trellis_checker::{
    Verdict, check,
    history::{self, Bounds, Demands, Header, Record, Recorder, VERSION},
    workload::{Profile, Workload},
};

use super::{
    client::{self, Shared},
    drain,
    nemesis::Nemesis,
    net::Net,
    repeating,
    world::World,
};

/// How long all nodes may take to form a cluster, in milliseconds.
const FORMING_MS: u64 = 30_000;

/// How long everything may take to be well again when the faults are over, in milliseconds: a lost
/// disk is replaced within it.
const RECOVERY_MS: u64 = 60_000;

/// How long a client may take to hear its last answer, in milliseconds.
const LAST_ANSWERS_MS: u64 = 20_000;

/// How long everything may take to be delivered and deleted.
const DRAIN: Duration = Duration::from_secs(60);

/// How long a silent node keeps its sessions: short, so that leases run out in every run.
const LEASE: Duration = Duration::from_secs(4);

/// So many times as long as planned faults may go on until enough was acknowledged.
const LONGER: u64 = 3;

/// What a run is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// How long faults are injected, in simulated seconds.
    pub seconds: u64,
    /// What was built.
    pub commit: String,
}

/// How a run ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// What replays it.
    pub seed: u64,
    /// What happened that never may, the checker's findings aside.
    pub wrong: Vec<String>,
    /// The checker's verdict, if the run came so far.
    pub verdict: Option<Verdict>,
    /// Simulated milliseconds.
    pub simulated_ms: u64,
    /// Nodes.
    pub nodes: usize,
    /// How often each fault, by its number, took effect.
    pub faults: BTreeMap<u32, u64>,
}

impl Outcome {
    /// Nothing was broken, and the run proves something.
    pub fn is_sound(&self) -> bool {
        self.wrong.is_empty() && self.verdict.as_ref().is_some_and(Verdict::is_sound)
    }

    /// Nothing was broken, but the run proves nothing either.
    pub fn is_rejected(&self) -> bool {
        let broken = |verdict: &Verdict| !verdict.findings.is_empty();
        self.wrong.is_empty() && !self.verdict.as_ref().is_some_and(broken) && !self.is_sound()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for wrong in &self.wrong {
            writeln!(f, "BROKEN {wrong}")?;
        }
        match &self.verdict {
            Some(verdict) => write!(f, "{verdict}"),
            None => writeln!(f, "the history was not completed"),
        }
    }
}

/// Plays one seed; the history goes to `file`.
///
/// Once for a process: what a failed disk does to a process is said once for it, and chance is the
/// same again only in a new one.
///
/// # Errors
///
/// The history can't be written or read, in words.
pub fn play(plan: &Plan, file: &Path) -> Result<Outcome, String> {
    let words = |error: std::io::Error| format!("{}: {error}", file.display());
    trellis_consensus::work_in_place();
    let seed = plan.seed;
    let size = if seed.is_multiple_of(6) { 5 } else { 3 };
    let profile = profile(seed)?;
    let header = Header {
        version: VERSION,
        instrument: "sim".to_owned(),
        seed,
        commit: plan.commit.clone(),
        profile: profile.name.clone(),
        bounds: Bounds {
            lease_ms: u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX),
            // Where all start together their wall clocks count, and those are told late.
            early_ms: 400,
            // Faults leave no majority for longer than an election, and what was proposed before is
            // carried out behind them with the time of then.
            late_ms: 30_000,
            ..Bounds::default()
        },
        demands: Demands {
            acknowledged: acknowledged_min(plan),
            faults: (plan.seconds / 10).max(1),
            finals: size as u64,
        },
        local_reads: false,
    };
    let out = File::create(file).map_err(words)?;
    let net = Net::new(seed);
    let shared = Arc::new(Shared {
        net: net.clone(),
        recorder: Recorder::new(Box::new(out), header),
        workload: Workload::new(seed, profile),
        nodes: (0..size).map(|n| format!("trellis-{n}")).collect(),
        over: AtomicBool::new(false),
        answered: AtomicU64::new(0),
        newest: AtomicU64::new(0),
        playing: AtomicU64::new(0),
    });
    let mut world = World::new(seed, net, shared.clone(), LEASE)?;
    let mut nemesis = None;
    let complete = live(plan, &mut world, &mut nemesis);
    shared.recorder.finish().map_err(words)?;
    let verdict = match complete {
        true => {
            let input = File::open(file).map_err(words)?;
            let records: Result<Vec<_>, _> = history::read(BufReader::new(input)).collect();
            let records = records.map_err(|error| error.to_string())?;
            Some(check(records).map_err(|error| error.to_string())?)
        }
        false => None,
    };
    Ok(Outcome {
        seed,
        wrong: std::mem::take(&mut world.wrong),
        verdict,
        simulated_ms: world.now,
        nodes: world.houses.len(),
        faults: nemesis.map(|nemesis| nemesis.done).unwrap_or_default(),
    })
}

/// Operations that must be acknowledged in a run.
fn acknowledged_min(plan: &Plan) -> u64 {
    (plan.seconds * 10).max(1)
}

fn profile(seed: u64) -> Result<Profile, String> {
    let name = match seed % 8 {
        0 => "timers",
        1 => "busy",
        2 => "bodies",
        _ => "mixed",
    };
    let named = Profile::named(name).map_err(|error| error.to_string())?;
    Ok(Profile {
        clients: named.clients.min(12),
        body_bytes: named.body_bytes.min(20_000),
        rest_ms: named.rest_ms.max(120),
        ..named
    })
}

/// Forming, faults, recovery, draining, reading. Whether it came to its end.
fn live(plan: &Plan, world: &mut World, nemesis: &mut Option<Nemesis>) -> bool {
    for place in 0..world.houses.len() {
        world.start(place);
    }
    if !world.run_until(FORMING_MS, all_ready) {
        return gave_up(world, "no cluster has formed");
    }

    let shared = world.shared.clone();
    for client in 0..shared.workload.clients() {
        shared.playing.fetch_add(1, Ordering::Relaxed);
        world.spawn_client(client::play(shared.clone(), client));
    }
    for node in 0..shared.nodes.len() {
        world.spawn_client(client::keep_tubes(shared.clone(), node));
    }
    repeating::repeat(plan.seed, if plan.seed.is_multiple_of(2) { 10 } else { 0 });
    let breaking = nemesis.insert(Nemesis::new(plan.seed, world.now));
    let begin = world.now;
    let end = begin + plan.seconds * 1_000;
    // Faults that leave no majority for most of the time prove nothing: then they go on for longer.
    let last = begin + plan.seconds * 1_000 * LONGER;
    let too_few = || shared.answered.load(Ordering::Relaxed) < 2 * acknowledged_min(plan);
    while (world.now < end || (world.now < last && too_few())) && world.wrong.is_empty() {
        breaking.act(world);
        world.tick();
    }
    breaking.rest(world);
    let guest = breaking.guest();
    repeating::repeat(plan.seed, 0);
    if !world.run_until(RECOVERY_MS, |world| {
        (0..world.shared.nodes.len()).all(|place| world.houses[place].is_ready())
            && all_vote(world, guest)
    }) {
        return gave_up(world, "not everybody is well again");
    }

    shared.over.store(true, Ordering::Relaxed);
    if !world.run_until(LAST_ANSWERS_MS, |world| {
        world.shared.playing.load(Ordering::Relaxed) == 0
    }) {
        return gave_up(world, "a client hears no last answer");
    }
    let drained = Arc::new(Mutex::new(None));
    let slot = drained.clone();
    let draining = shared.clone();
    world.spawn_client(async move {
        let left = drain::drain(draining, DRAIN).await;
        *slot.lock() = Some(left);
    });
    let bound = u64::try_from(DRAIN.as_millis()).unwrap_or(u64::MAX) * 2;
    world.run_until(bound, |_| drained.lock().is_some());
    if drained.lock().is_none() {
        return gave_up(world, "draining does not end");
    }
    if !world.run_until(10_000, all_alike) {
        return gave_up(world, "not all nodes come to the same state");
    }
    read_all(world)
}

/// What every node holds, over its own door.
fn read_all(world: &mut World) -> bool {
    let shared = world.shared.clone();
    for name in shared.nodes.clone() {
        let read = Arc::new(Mutex::new(None));
        let (slot, reading) = (read.clone(), shared.clone());
        world.spawn_client(async move {
            let bound = Duration::from_secs(20);
            let state = drain::final_state(&reading, &name, bound).await;
            *slot.lock() = Some(state);
        });
        world.run_until(120_000, |_| read.lock().is_some());
        let state = read.lock().take();
        match state {
            Some(Ok(state)) => shared.recorder.write(&Record::Final(state)),
            Some(Err(why)) => return gave_up(world, &why),
            None => return gave_up(world, "reading the final state does not end"),
        }
    }
    true
}

fn all_ready(world: &mut World) -> bool {
    (0..world.shared.nodes.len()).all(|place| world.houses[place].is_ready())
}

/// Every node votes, and nobody else but the guest is a member.
fn all_vote(world: &World, guest: Option<usize>) -> bool {
    let Some(status) = world
        .leader()
        .and_then(|leader| world.houses[leader].status())
    else {
        return false;
    };
    let is_guest = |name: &str| guest.is_some_and(|guest| world.houses[guest].name == name);
    let others = status
        .members
        .iter()
        .filter(|member| !is_guest(&member.name));
    let voters: Vec<&String> = others
        .filter(|member| member.voter)
        .map(|member| &member.name)
        .collect();
    let members = status
        .members
        .iter()
        .filter(|member| !is_guest(&member.name));
    voters.len() == world.shared.nodes.len()
        && members.count() == voters.len()
        && world.shared.nodes.iter().all(|name| voters.contains(&name))
}

/// All nodes have applied as much and hold equal states.
fn all_alike(world: &mut World) -> bool {
    let told: Vec<_> = (0..world.shared.nodes.len())
        .filter_map(|place| world.houses[place].status())
        .map(|status| (status.applied, status.digest.map(|digest| digest.value)))
        .collect();
    told.len() == world.shared.nodes.len()
        && told
            .iter()
            .all(|state| state.1.is_some() && *state == told[0])
}

fn gave_up(world: &mut World, what: &str) -> bool {
    let words = format!("{what}\n{}", world.picture());
    world.wrong.push(words);
    false
}
