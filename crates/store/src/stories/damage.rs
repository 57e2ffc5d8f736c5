use openraft::storage::RaftLogReader;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use trellis_consensus::StateStore;

use super::replica::*;
use super::*;
use crate::{Quarantine, QuarantineKind, rebuild};

/// A folder with something in every kind of file, as a kill leaves it behind: large bodies in blob
/// files, tables in both instances, and a log that goes on behind them.
fn full_folder() -> Folder {
    let folder = Folder::with(|options| {
        options.state.window = Duration::ZERO;
        // So that there are many files.
        options.log.segment_bytes = 64 * 1024;
    });
    let mut node = Replica::new(&folder);
    node.opened
        .meta
        .set_name("trellis-0")
        .and_then(|()| node.opened.meta.next_run().map(drop))
        .unwrap();
    let runtime = runtime();
    let vote = openraft::storage::RaftLogStorage::save_vote(
        &mut node.opened.log,
        &trellis_consensus::raft::VoteOf {
            leader_id: trellis_consensus::raft::LeaderId {
                term: 1,
                node_id: NodeId(7),
            },
            committed: true,
        },
    );
    runtime.block_on(vote).unwrap();
    for round in 0..60_u8 {
        let noise: Vec<u8> = std::iter::repeat_with(rand::random).take(6_000).collect();
        node.put(noise);
        node.put(vec![round; 50]);
        // So many lines that they fill several files.
        let lines = vec![super::entry(node.next, 4_000)];
        runtime
            .block_on(append(&mut node.opened.log, lines))
            .unwrap();
        node.tell(vec![]);
        if round == 30 {
            node.settle();
            node.snapshot();
        }
    }
    node.settle();
    node.opened.state.flush();
    for _ in 0..20 {
        node.put("only in the log");
    }
    eventually(
        || node.opened.log.flushed(),
        |flushed| *flushed == Some(node.next - 1),
    );
    folder.crash_image()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

/// All that a node relies upon when it starts and serves.
#[derive(Debug, PartialEq)]
struct Held {
    identity: crate::StoredIdentity,
    vote: u64,
    log: Vec<(u64, Vec<u8>)>,
    applied: Option<Position>,
    digest: u64,
    bodies: Vec<Bytes>,
}

/// What a node finds in the folder, or why it is out.
fn hold(folder: &Folder) -> Result<Held, String> {
    let mut opened = folder.try_open().map_err(|error| error.to_string())?;
    let loaded = opened.state.load().map_err(|error| error.to_string())?;
    let runtime = runtime();
    let mut reader = runtime.block_on(opened.log.get_log_reader());
    let entries = runtime
        .block_on(reader.try_get_log_entries(0..u64::MAX))
        .map_err(|error| error.to_string())?;
    let mut bodies = Vec::new();
    for row in loaded.machine.rows() {
        if let trellis_queue::Row::Job(job) = row {
            let owed = opened.state.bodies().owe(job.id, job.body_bytes);
            bodies.push(owed.read().map_err(|error| error.to_string())?);
        }
    }
    let held = Held {
        identity: opened.identity.clone(),
        vote: opened.log.vote_term(),
        log: entries
            .into_iter()
            .map(|entry| (entry.position().index, entry.to_bytes().to_vec()))
            .collect(),
        applied: loaded.applied,
        digest: loaded.machine.digest(),
        bodies,
    };
    match folder.failures().first() {
        None => Ok(held),
        Some(failure) => Err(failure.clone()),
    }
}

/// What kind of file it is, for the table at the end.
fn kind_of(path: &Path) -> String {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let folder = path.parent().unwrap().to_string_lossy().into_owned();
    let part = ["snapshots", "log", "state"]
        .into_iter()
        .find(|part| folder.contains(&format!("/{part}")))
        .unwrap_or("folder");
    let kind = match name.rsplit_once('.') {
        Some((_, extension)) => extension,
        None => name.split('-').next().unwrap_or(&name),
    };
    format!("{part}/{kind}")
}

/// Faults D33 to D35 and D38, on every kind of file of a node: it holds exactly what it held, or it
/// is out and stays out. Nothing between.
#[test]
fn one_flipped_bit_anywhere_is_harmless_or_found() {
    let rounds: u64 = std::env::var("TRELLIS_ROUNDS").map_or(3, |text| text.parse().unwrap());
    let seed: u64 =
        std::env::var("TRELLIS_SEED").map_or_else(|_| rand::random(), |text| text.parse().unwrap());
    println!(
        "TRELLIS_ROUNDS={rounds} TRELLIS_SEED={seed} sh tests/cargo.sh test -p trellis-store one_flipped_bit -- --nocapture"
    );
    let mut chance = StdRng::seed_from_u64(seed);
    let whole = full_folder();
    let before = hold(&whole.crash_image()).unwrap();
    assert!(before.log.len() > 100 && before.vote == 1 && before.bodies.len() > 100);

    let mut kinds: std::collections::BTreeMap<String, Vec<PathBuf>> = Default::default();
    for (path, len) in listing(&whole.path()) {
        let path = path.strip_prefix(whole.path()).unwrap().to_owned();
        if len > 0 {
            kinds
                .entry(kind_of(&whole.path().join(&path)))
                .or_default()
                .push(path);
        }
    }
    for needed in [
        "log/segment",
        "state/sst",
        "state/blob",
        "state/MANIFEST",
        "state/CURRENT",
        "folder/FORMAT",
        "snapshots/manifest",
    ] {
        assert!(
            kinds.contains_key(needed),
            "no {needed} in {:?}",
            kinds.keys()
        );
    }
    for (kind, paths) in kinds {
        let (mut harmless, mut found) = (0, 0);
        for round in 0..rounds {
            let image = whole.crash_image();
            let path = &paths[chance.random_range(0..paths.len())];
            let mut content = std::fs::read(image.path().join(path)).unwrap();
            let bit = chance.random_range(0..content.len() * 8);
            content[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(image.path().join(path), content).unwrap();
            match hold(&image) {
                Ok(held) => {
                    harmless += 1;
                    assert!(
                        held == before,
                        "round {round}: bit {bit} of {path:?} is not noticed"
                    );
                }
                Err(why) => {
                    found += 1;
                    let again = match image.try_open() {
                        Ok(_) => panic!(
                            "round {round}: bit {bit} of {path:?} ({why}), but it opens again"
                        ),
                        Err(error) => error,
                    };
                    let is_out = matches!(
                        again,
                        OpenError::Quarantined { .. }
                            | OpenError::NoFormat { .. }
                            | OpenError::NewerFormat { .. }
                            | OpenError::OlderFormat { .. }
                    );
                    assert!(
                        is_out,
                        "round {round}: bit {bit} of {path:?}: {why}, then {again}"
                    );
                }
            }
        }
        println!("{kind}: {harmless} harmless, {found} found");
    }
}

#[test]
fn a_damaged_folder_stays_closed_until_it_is_rebuilt_and_the_evidence_stays() {
    let image = full_folder();
    let path = listing(&image.path())
        .into_iter()
        .map(|(path, _)| path)
        .find(|path| kind_of(path) == "log/segment")
        .unwrap();
    let mut content = std::fs::read(&path).unwrap();
    let flipped = content.len() / 2;
    content[flipped] ^= 1;
    std::fs::write(&path, &content).unwrap();

    assert!(matches!(
        image.try_open(),
        Err(OpenError::LogDamaged { .. })
    ));
    let note = Quarantine::read(&image.path()).unwrap().unwrap();
    assert_eq!(note.kind, QuarantineKind::Damaged);
    assert!(
        note.why.starts_with("the raft log is damaged: "),
        "{}",
        note.why
    );
    // Even if the bit comes back.
    content[flipped] ^= 1;
    std::fs::write(&path, &content).unwrap();
    assert!(matches!(
        image.try_open(),
        Err(OpenError::Quarantined { .. })
    ));

    let evidence = rebuild(&image.path()).unwrap();
    assert!(evidence.join("log").exists() && evidence.join("state/CURRENT").exists());
    let opened = image.open();
    assert_eq!(opened.log.last_index(), None);
    assert_eq!(opened.quarantined, None);
    assert_eq!(image.failures(), [""; 0]);
    assert!(
        matches!(rebuild(&image.path()), Err(OpenError::InUse { .. })),
        "not under a running node"
    );
}

/// Its log and vote are good: it is opened, and whoever opens it is told.
#[test]
fn a_folder_whose_state_differs_is_opened_with_a_warning() {
    let folder = Folder::new();
    drop(folder.open());
    let why = "the state differs from those of a, b at index 7";
    Quarantine::differs(why).write(&folder.path()).unwrap();
    assert_eq!(folder.open().quarantined.as_deref(), Some(why));
}

/// Faults D36: every checksum is good, and yet it is not what was written.
#[test]
fn a_state_with_an_old_table_in_it_is_refused() {
    let folder = Folder::with(|options| options.state.window = Duration::ZERO);
    let mut node = Replica::new(&folder);
    node.put("x");
    node.settle();
    node.opened.state.flush();
    let generation = node.opened.state.generation_for_stories();
    let mut window = trellis_window(&node);
    window.rows.clear();
    window.digest ^= 1;
    generation.write(&window).unwrap();
    node.opened.state.flush();
    let image = folder.crash_image();
    let opened = image.open();
    assert!(opened.state.load().is_err());
    assert!(
        image.failures()[0].contains("its digest is"),
        "{:?}",
        image.failures()
    );
    drop(opened);
    assert!(matches!(
        image.try_open(),
        Err(OpenError::Quarantined { .. })
    ));
}

fn trellis_window(node: &Replica) -> crate::state::Window {
    crate::state::Window {
        applied: at(node.next - 1),
        membership: Default::default(),
        digest: node.machine.digest(),
        rows: Vec::new(),
        text: Vec::new(),
        bodies: Vec::new(),
        dropped: Vec::new(),
        orphaned: Vec::new(),
        settled: Vec::new(),
        bytes: 0,
    }
}
