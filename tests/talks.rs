//! Plays every talk of `talks/` on every stage, and holds the talks against the specification.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use trellis_testkit::{
    process::{Cluster, Server, ServerCommand, trellis_binary},
    stage::{BareHouse, House, TcpHouse, Troupe},
    talk::{Difference, DifferenceKind, Talk, parse, show},
};

/// Sharp edges of the protocol specification, section 9.
const EDGES: u32 = 147;

/// Debian's beanstalkd, the fourth stage.
const BEANSTALKD: &str = "/usr/bin/beanstalkd";

fn here() -> &'static Path {
    Path::new(".")
}

/// All talks, or those whose title or file holds `TRELLIS_TALK`.
fn talks() -> Vec<Talk> {
    let folder = here().join("talks");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the folder of talks")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "talk"))
        .collect();
    files.sort();
    let wanted = env::var("TRELLIS_TALK").unwrap_or_default();
    let mut talks = Vec::new();
    for file in files {
        let source = fs::read_to_string(&file).expect("a readable talk");
        let name = file.file_name().expect("a file has a name");
        talks.extend(parse(Path::new(name), &source).unwrap_or_else(|bad| panic!("{bad}")));
    }
    talks.retain(|talk| {
        talk.title.contains(&wanted) || talk.file.to_string_lossy().contains(&wanted)
    });
    assert!(
        !talks.is_empty(),
        "no talk's title or file holds TRELLIS_TALK={wanted:?}"
    );
    talks
}

/// How late an answer may be. Timers are exact to milliseconds on an idle machine; a busy one
/// gets three seconds unless `TRELLIS_TALK_LATE_MS` says otherwise.
fn late() -> Duration {
    let ms = env::var("TRELLIS_TALK_LATE_MS")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_millis(ms.unwrap_or(3_000))
}

/// Houses take turns, so that they do not make each other late.
static TURN: Mutex<()> = Mutex::new(());

fn all_as_written(house: &dyn House) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let report = show(house, &talks());
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
}

fn beanstalkd(flags: &[String]) -> io::Result<Server> {
    Server::start(ServerCommand {
        program: BEANSTALKD.into(),
        first: Vec::new(),
        flags: flags.to_vec(),
        always_stores: false,
        more: |_| Vec::new(),
    })
}

fn one_node(binary: &Path, flags: &[String]) -> io::Result<Server> {
    Server::start(ServerCommand {
        program: binary.to_owned(),
        first: vec!["serve".into()],
        flags: flags.to_vec(),
        always_stores: true,
        more: |port| {
            let listen = |offset: u16| format!("127.0.0.1:{}", port + offset).into();
            vec![
                "--peer-listen".into(),
                listen(1),
                "--admin-listen".into(),
                listen(2),
            ]
        },
    })
}

#[test]
fn the_bare_machine_speaks_as_written() {
    all_as_written(&BareHouse);
}

#[test]
fn debians_beanstalkd_speaks_as_written() {
    if !Path::new(BEANSTALKD).exists() {
        let why = format!("{BEANSTALKD} is not installed");
        assert!(env::var_os("CI").is_none(), "{why}");
        println!("{why}: this stage is left out");
        return;
    }
    all_as_written(&TcpHouse {
        name: "Debian's beanstalkd".into(),
        troupe: Troupe::Beanstalkd,
        // One for each talk: busy clients disturb the timers of others in a 1.12.
        addresses: Vec::new(),
        starter: Some(Box::new(beanstalkd)),
        late: late(),
    });
}

#[test]
fn one_node_speaks_as_written() {
    let binary = trellis_binary().expect("a binary to test");
    let server = one_node(&binary, &[]).expect("the node starts");
    all_as_written(&TcpHouse {
        name: "one node".into(),
        troupe: Troupe::Trellis,
        addresses: vec![server.address()],
        starter: Some(Box::new(move |flags| one_node(&binary, flags))),
        late: late(),
    });
}

#[test]
fn three_nodes_speak_as_written_through_a_follower() {
    let binary = trellis_binary().expect("a binary to test");
    let cluster = Cluster::start(&binary, 3).expect("the cluster gets ready");
    all_as_written(&TcpHouse {
        name: "three nodes through a follower".into(),
        troupe: Troupe::Trellis,
        addresses: vec![cluster.address(1)],
        starter: None,
        late: late(),
    });
}

#[test]
fn three_nodes_speak_as_written_when_everybody_sits_elsewhere() {
    let binary = trellis_binary().expect("a binary to test");
    let cluster = Cluster::start(&binary, 3).expect("the cluster gets ready");
    all_as_written(&TcpHouse {
        name: "three nodes, each person at another".into(),
        troupe: Troupe::Trellis,
        addresses: (0..3).map(|node| cluster.address(node)).collect(),
        starter: None,
        late: late(),
    });
}

/// Each sharp edge is told by a talk, or `talks/exempt.txt` says why not and where it is tested.
#[test]
fn every_sharp_edge_is_told() {
    let told: BTreeSet<u32> = talks().iter().flat_map(|talk| talk.edges.clone()).collect();
    let exempt = fs::read_to_string(here().join("talks/exempt.txt")).expect("the exemptions");
    let exempt: BTreeMap<u32, &str> = exempt
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (edge, reason) = line.split_once(": ").expect("`number: reason`");
            (edge.parse().expect("a number"), reason)
        })
        .collect();
    let untold: Vec<u32> = (1..=EDGES)
        .filter(|n| !told.contains(n) && !exempt.contains_key(n))
        .collect();
    assert!(untold.is_empty(), "nobody tells {untold:?}");
    let both: Vec<_> = exempt.keys().filter(|edge| told.contains(edge)).collect();
    assert!(both.is_empty(), "told and exempt at once: {both:?}");
}

/// Prints every difference that the talks mark, and checks that `docs/COMPAT.md` gives each with
/// the same reason.
#[test]
fn compat_lists_every_difference_with_its_reason() {
    let talks = talks();
    let all: BTreeSet<&Difference> = talks.iter().flat_map(|talk| &talk.differences).collect();
    let mut reasons: BTreeMap<&str, &Difference> = BTreeMap::new();
    for difference in &all {
        if difference.reason.is_empty() {
            continue;
        }
        let before = reasons.insert(&difference.name, difference);
        assert!(before.is_none(), "{} has two reasons", difference.name);
    }
    for difference in &all {
        assert!(
            reasons.contains_key(&*difference.name),
            "{} has no reason",
            difference.name
        );
    }
    let compat = fs::read_to_string(here().join("../docs/COMPAT.md")).expect("docs/COMPAT.md");
    let mut missing = Vec::new();
    for difference in reasons.values() {
        let kind = match difference.kind {
            DifferenceKind::Deliberate => "on purpose",
            DifferenceKind::Age => "its age",
        };
        let row = format!("| {} | {} |", difference.name, difference.reason);
        println!("{kind}: {row}");
        if !compat.contains(&row) {
            missing.push(row);
        }
    }
    assert!(
        missing.is_empty(),
        "docs/COMPAT.md lacks:\n{}",
        missing.join("\n")
    );
}
