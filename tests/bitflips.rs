//! Faults D33 to D38 on real processes: one bit of one file of one node is flipped, or its state is changed behind
//! its back. The cluster loses nothing; the node is as it was, or it is out and says so, and one command brings it
//! back. Never is it silently wrong.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use trellis_store::tamper::change_a_priority;
use trellis_testkit::process::{Cluster, trellis_binary};
use trellis_tests::{Client, Load, Roles, get, rounds, status};
use trellis_types::{JobId, TubeName};
use trellis_wire::beanstalk::{Reply, Request};

/// What a file is, and whether a path in a node's folder is that of such a file.
type Kind = (&'static str, fn(&str) -> bool);

const KINDS: [Kind; 9] = [
    ("log", |path| path.starts_with("log/")),
    ("state: table", |path| {
        path.starts_with("state/") && path.ends_with(".sst")
    }),
    ("state: bodies", |path| {
        path.starts_with("state/") && path.ends_with(".blob")
    }),
    ("state: manifest", |path| {
        path.starts_with("state/") && path.contains("/MANIFEST")
    }),
    ("state: pointer", |path| path == "state/CURRENT"),
    ("state: current", |path| {
        path.starts_with("state/") && path.ends_with("/CURRENT") && path != "state/CURRENT"
    }),
    ("snapshot: table", |path| {
        path.starts_with("snapshots/") && path.ends_with(".sst")
    }),
    ("snapshot: manifest", |path| {
        path.starts_with("snapshots/") && path.ends_with("/manifest")
    }),
    ("format", |path| path == "FORMAT"),
];

/// Longer than forming, a node lease, and catching up on a busy machine.
const PATIENCE: Duration = Duration::from_secs(150);

/// Looks until it finds.
fn patiently<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < until, "no {what}; last seen: {seen}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// A cluster with jobs that stay, in every kind of file.
struct Town {
    cluster: Cluster,
    binary: PathBuf,
    kept: BTreeMap<JobId, String>,
}

impl Town {
    fn new() -> Self {
        let binary = trellis_binary().expect("the binary was built");
        let cluster = Cluster::start_reviving(&binary, 3).expect("a cluster");
        let tube = TubeName::parse(b"kept").expect("a good name");
        let mut client = Client::at_tube(cluster.address(0), &tube).expect("a client");
        let mut kept = BTreeMap::new();
        for number in 0..40 {
            // Some go to blob files.
            let body = format!("{number} ").repeat(if number % 2 == 0 { 3 } else { 3_000 });
            kept.insert(client.put(&body, 0).expect("a put"), body);
        }
        let town = Self {
            cluster,
            binary,
            kept,
        };
        town.snapshots();
        town
    }

    fn folder(&self, node: u16) -> PathBuf {
        self.cluster.data_dir().join(format!("node-{node}"))
    }

    /// kill -9; returns when nobody answers any more. `trellis local` starts it again after three seconds.
    fn kill(&self, node: u16) {
        self.cluster.kill(node).expect("it lived");
        patiently("end of the process", || {
            match status(self.cluster.admin_address(node)) {
                Err(_) => Ok(()),
                Ok(seen) => Err(seen.to_string()),
            }
        });
    }

    fn url(&self, node: u16) -> String {
        format!("http://{}", self.cluster.admin_address(node))
    }

    fn trellis(&self, arguments: &[&str]) -> Output {
        Command::new(&self.binary)
            .args(arguments)
            .output()
            .expect("the binary runs")
    }

    /// One on every node, so that state and snapshots have files.
    fn snapshots(&self) {
        for node in 0..3 {
            patiently("snapshot", || {
                let before =
                    status(self.cluster.admin_address(node)).map_err(|it| it.to_string())?;
                self.trellis(&["snapshot", "--addr", &self.url(node)]);
                let seen = status(self.cluster.admin_address(node)).map_err(|it| it.to_string())?;
                match (seen["snapshot"].as_u64(), before["applied"].as_u64()) {
                    (Some(snapshot), Some(applied)) if snapshot >= applied => Ok(()),
                    _ => Err(seen.to_string()),
                }
            });
        }
    }

    /// Whether all jobs that stay are what they were, asked of `node`.
    fn shows_all(&self, node: u16) -> io::Result<()> {
        let mut client = Client::connect(self.cluster.address(node))?;
        for (job, body) in &self.kept {
            match client.ask(&Request::Peek(*job))? {
                Reply::Found {
                    job: id,
                    body: found,
                } if id == *job => {
                    assert!(
                        found == body.as_bytes(),
                        "node {node} shows another body of job {job:?}"
                    );
                }
                Reply::InternalError => return Err(io::Error::other("INTERNAL_ERROR")),
                other => panic!("node {node} says of job {job:?}: {other:?}"),
            }
        }
        Ok(())
    }

    /// The same, once no election is in the way.
    fn wait_for_all(&self, node: u16) {
        patiently("jobs that stay", || {
            self.shows_all(node).map_err(|error| error.to_string())
        });
    }

    /// Why the node is out, if it is. `said` is how much the nodes had said before.
    fn is_out(&self, node: u16, said: usize) -> Option<String> {
        let address = self.cluster.admin_address(node);
        if let Ok(seen) = status(address) {
            return seen["quarantined"].as_str().map(str::to_owned);
        }
        // It ends with one sentence, again and again.
        let log = self.cluster.log();
        let refused = |line: &&str| {
            let folder = line.contains(&format!("node-{node} "));
            folder && (line.contains("no valid FORMAT") || line.contains("has format"))
                || line.contains(&format!("trellis-{node}")) && line.contains("older copy")
        };
        let news = log.get(said..).unwrap_or_default();
        news.lines().rev().find(refused).map(str::to_owned)
    }

    fn is_ready(&self, node: u16) -> bool {
        get(self.cluster.admin_address(node), "/readyz").is_ok()
            && status(self.cluster.admin_address(node)).is_ok_and(|it| it["doors_open"] == true)
    }

    /// All three vote, serve, and have the same state.
    fn wait_for_peace(&self) {
        patiently("peace", || {
            let mut seen = Vec::new();
            for node in 0..3 {
                seen.push(
                    status(self.cluster.admin_address(node))
                        .map_err(|it| format!("{node}: {it}"))?,
                );
            }
            let serves = seen
                .iter()
                .all(|it| it["doors_open"] == true && it["quarantined"].is_null());
            let members = seen[0]["members"].as_array().cloned().unwrap_or_default();
            let votes = members.len() == 3
                && members
                    .iter()
                    .all(|it| it["voter"] == true && it["present"] == true);
            let equal = seen.iter().all(|it| it["digest"] == seen[0]["digest"]);
            match serves && votes && equal {
                true => Ok(()),
                false => Err(format!("{seen:#?}")),
            }
        });
    }

    /// The one command, whichever way: with the folder, or by asking the node.
    fn rebuild(&self, node: u16, online: bool) {
        let (folder, url) = (self.folder(node), self.url(node));
        patiently("rebuilding", || {
            let said = match online {
                true => self.trellis(&["rebuild", "--addr", &url]),
                false => self.trellis(&["rebuild", "--data-dir", &folder.to_string_lossy()]),
            };
            println!("  {}", String::from_utf8_lossy(&said.stdout).trim());
            match said.status.success() {
                true => Ok(()),
                false => Err(String::from_utf8_lossy(&said.stderr).into_owned()),
            }
        });
    }
}

/// Every file of a node's folder, by its path in it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for item in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = item.path();
            match item.metadata() {
                Ok(data) if data.is_dir() => folders.push(path),
                Ok(data) if data.len() > 0 => {
                    let inside = path.strip_prefix(folder).unwrap_or(&path);
                    found.push(inside.to_string_lossy().into_owned());
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// A bit that was flipped in place, as a disk does it: other names of the file see it, too.
struct Flip {
    file: fs::File,
    bit: usize,
    /// What the file held then.
    damaged: Vec<u8>,
}

impl Flip {
    fn of(path: &Path, chance: &mut StdRng) -> Self {
        let options = fs::OpenOptions::new().read(true).write(true).open(path);
        let file = options.expect("a file");
        let mut damaged = Self::content(&file);
        let bit = chance.random_range(0..damaged.len() * 8);
        damaged[bit / 8] ^= 1 << (bit % 8);
        let flip = Self { file, bit, damaged };
        flip.write(flip.damaged[bit / 8]);
        flip
    }

    /// Where nobody met the bit it waits for whoever reads that block next, perhaps when another node's data is gone as
    /// well: two nodes damaged at once are more than three can bear, and another story. The file may have been
    /// written anew meanwhile, and then the bit is gone.
    fn undo(&self) {
        if Self::content(&self.file) == self.damaged {
            self.write(self.damaged[self.bit / 8] ^ (1 << (self.bit % 8)));
        }
    }

    fn write(&self, byte: u8) {
        use std::os::unix::fs::FileExt as _;
        let place = (self.bit / 8) as u64;
        self.file
            .write_all_at(&[byte], place)
            .expect("it is written");
    }

    fn content(mut file: &fs::File) -> Vec<u8> {
        use io::{Read as _, Seek as _};
        let mut bytes = Vec::new();
        file.rewind().expect("its start");
        file.read_to_end(&mut bytes).expect("it is read");
        bytes
    }
}

impl fmt::Display for Flip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bit {} of {} bytes", self.bit, self.damaged.len())
    }
}

#[test]
fn one_flipped_bit_costs_nothing_and_is_never_silently_wrong() {
    let count = rounds(2);
    let asked = std::env::var("TRELLIS_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed: u64 = asked.unwrap_or_else(rand::random);
    println!(
        "TRELLIS_ROUNDS={count} TRELLIS_SEED={seed} sh tests/cargo.sh test -p trellis-tests --test bitflips -- --nocapture"
    );
    let mut chance = StdRng::seed_from_u64(seed);
    let begun = Instant::now();
    let town = Town::new();
    let (mut harmless, mut out) = (0, 0);
    let (mut acknowledged, mut unknown, mut faults) = (0, 0, Vec::new());
    for round in 0..count {
        let victim = chance.random_range(0..3_u16);
        let others: Vec<_> = (0..3)
            .filter(|node| *node != victim)
            .map(|node| town.cluster.address(node))
            .collect();
        let load = Load::start(&others, &format!("round-{round}"), 1, 1).expect("clients");
        load.wait_for_puts(50);

        town.kill(victim);
        let said = town.cluster.log().len();
        let folder = town.folder(victim);
        let files = files(&folder);
        let start = round % KINDS.len();
        let (kind, path) = (0..KINDS.len())
            .map(|step| KINDS[(start + step) % KINDS.len()])
            .find_map(|(kind, is)| {
                let of_kind: Vec<_> = files.iter().filter(|path| is(path)).collect();
                let path = of_kind.get(chance.random_range(0..of_kind.len().max(1)))?;
                Some((kind, folder.join(path)))
            })
            .expect("a file");
        let bit = Flip::of(&path, &mut chance);
        let flipped = Instant::now();
        println!(
            "round {round}: node {victim}, {kind}: {bit} of {}",
            path.display()
        );

        let found = patiently("verdict", || {
            if let Some(why) = town.is_out(victim, said) {
                return Ok(Some(why));
            }
            if !town.is_ready(victim) {
                return Err(format!("{:?}", status(town.cluster.admin_address(victim))));
            }
            // It serves: then everything it has must be right, or it notices when it is asked.
            match town.shows_all(victim) {
                Ok(()) => Ok(None),
                Err(error) => Err(error.to_string()),
            }
        });
        load.wait_for_puts(50);
        let ledger = load.finish();
        ledger.assert_no_error();
        ledger.assert_each_delivered_once();
        acknowledged += ledger.acknowledged.len();
        unknown += ledger.unknown.len();
        faults.push(json!({
            "fault": fault(kind), "kind": "bit-flips", "with": null, "seen": format!("{kind}: {bit}"),
            "nodes": [format!("node-{victim}")], "from": 0, "to": 0,
            "gap_ms": u64::try_from(ledger.gap_since(flipped).as_millis()).unwrap_or(u64::MAX),
        }));
        match found {
            None => {
                harmless += 1;
                println!("  harmless or repaired");
                bit.undo();
                town.wait_for_peace();
            }
            Some(why) => {
                out += 1;
                println!("  out: {why}");
                let online = status(town.cluster.admin_address(victim)).is_ok() && chance.random();
                town.rebuild(victim, online);
                town.wait_for_peace();
                let evidence = fs::read_dir(folder.join("evidence")).map(Iterator::count);
                assert!(evidence.is_ok_and(|count| count > 0), "no evidence is kept");
            }
        }
        for node in 0..3 {
            town.wait_for_all(node);
        }
        town.snapshots();
    }
    println!(
        "{count} bits flipped: {harmless} harmless or repaired, {out} out and rebuilt, none silently wrong"
    );
    let version = town.trellis(&["--version"]).stdout;
    note(&json!({
        "instrument": "disks", "story": "bit-flips", "seed": seed,
        "version": String::from_utf8_lossy(&version).trim(), "at": 0,
        "seconds": begun.elapsed().as_secs_f64(), "outage_seconds": 0.0,
        "acknowledged": acknowledged, "unknown": unknown, "invariants": ["I1", "I2", "I11", "I19"],
        "faults": faults, "verdict": "sound", "why": [], "kept": null,
        "figures": {"bits_flipped": count, "harmless_or_repaired": harmless, "out_and_rebuilt": out},
    }));
}

/// The number of a flipped bit in a file of that kind in the list of faults.
fn fault(kind: &str) -> u32 {
    match kind.split(':').next() {
        Some("log") => 33,
        Some("snapshot") => 35,
        _ => 34,
    }
}

/// A line for `make fault-report`, if `TRELLIS_RESULTS` names the folder of results.
fn note(line: &Value) {
    use io::Write as _;
    let Some(folder) = std::env::var_os("TRELLIS_RESULTS").map(PathBuf::from) else {
        return;
    };
    fs::create_dir_all(&folder).expect("the folder of results");
    let file = folder.join("bitflips.jsonl");
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .expect("a file of results");
    writeln!(file, "{line}").expect("a line");
}

#[test]
fn a_replica_whose_state_differs_takes_itself_out_until_it_is_rebuilt() {
    let town = Town::new();
    let victim = Roles::of(&town.cluster).followers[0];
    let before = id(&town, victim);
    town.cluster.kill(victim).expect("it lived");
    // The kernel lets go of the folder when the process is gone to its last thread.
    let job = patiently("folder that nobody has", || {
        change_a_priority(&town.folder(victim)).map_err(|error| error.to_string())
    });
    println!("node {victim}: job {job} is more urgent now, with good checksums");

    let why = |seen: &Value| seen["quarantined"].as_str().map(str::to_owned);
    let quarantined = || {
        let seen = status(town.cluster.admin_address(victim)).map_err(|it| it.to_string())?;
        why(&seen).ok_or_else(|| seen.to_string())
    };
    let found = patiently("quarantine", quarantined);
    println!("  out: {found}");
    assert!(found.contains("which a majority has"), "{found}");
    assert!(get(town.cluster.admin_address(victim), "/readyz").is_err());
    patiently("closed doors", || {
        match Client::connect(town.cluster.address(victim)) {
            Err(_) => Ok(()),
            Ok(_) => Err("a client is let in".to_owned()),
        }
    });
    let metrics = get(town.cluster.admin_address(victim), "/metrics").expect("metrics");
    assert!(metrics.contains("trellis_quarantined 1"), "{metrics}");
    assert!(
        !metrics.contains("trellis_digest_mismatches_total 0"),
        "{metrics}"
    );
    for node in (0..3).filter(|node| *node != victim) {
        town.wait_for_all(node);
        assert!(town.is_ready(node), "node {node}");
    }

    // It remembers, and neither asks for votes nor gets office.
    town.kill(victim);
    assert_eq!(patiently("quarantine", quarantined), found);
    let others: Vec<_> = (0..3).filter(|node| *node != victim).collect();
    let addresses: Vec<_> = others
        .iter()
        .map(|node| (*node, town.cluster.address(*node)))
        .collect();
    let leader = Roles::among(&addresses).leader;
    let refused = town.trellis(&[
        "member",
        "transfer-leader",
        &format!("trellis-{victim}"),
        "--addr",
        &town.url(leader),
    ]);
    assert!(
        !refused.status.success(),
        "a quarantined node must not lead"
    );

    town.rebuild(victim, true);
    town.wait_for_peace();
    assert_ne!(id(&town, victim), before, "it is a new member");
    town.wait_for_all(victim);
    assert!(town.folder(victim).join("evidence").exists());
}

/// Found under load: the process saw that its folder was being rebuilt, found it in use, and ended,
/// and the answer of `trellis rebuild` with it.
#[test]
fn a_node_that_is_out_waits_for_whoever_rebuilds_it() {
    let town = Town::new();
    let victim = Roles::of(&town.cluster).followers[0];
    let folder = town.folder(victim);
    town.kill(victim);
    fs::write(folder.join("state/CURRENT"), "nonsense").expect("it is written");
    let quarantined = || {
        let seen = status(town.cluster.admin_address(victim)).map_err(|it| it.to_string())?;
        let why = seen["quarantined"].as_str().map(str::to_owned);
        why.ok_or_else(|| seen.to_string())
    };
    println!("  out: {}", patiently("quarantine", quarantined));
    let process = town.cluster.pid(victim).expect("it lives");

    // Somebody rebuilds it, on a disk that takes its time.
    let lock = fs::File::options().write(true).open(folder.join("LOCK"));
    let lock = lock.expect("a lock");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("nobody has it");
    fs::write(folder.join("quarantine"), "rebuilding 7\nspoilt\n").expect("it is written");
    for look in 0..20 {
        thread::sleep(Duration::from_millis(100));
        assert!(quarantined().is_ok(), "look {look}: {:?}", quarantined());
    }
    drop(lock);
    town.wait_for_peace();
    assert_eq!(town.cluster.pid(victim).expect("it lives"), process);
    town.wait_for_all(victim);
    assert!(folder.join("evidence/7/log").exists());
}

fn id(town: &Town, node: u16) -> Value {
    status(town.cluster.admin_address(node)).expect("it lives")["node"].clone()
}
