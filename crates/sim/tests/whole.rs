//! The lean part of the simulation of whole nodes, for every day. `make sim SEEDS=1..500` is the
//! whole. Each seed is a process of its own: chance is the same again only in a new one.

use std::{
    path::Path,
    process::{Command, Output},
    time::Instant,
};

const SIM: &str = env!("CARGO_BIN_EXE_trellis-sim");

fn whole(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(SIM)
        .args(["whole", "--commit", "test", "--histories"])
        .arg(folder)
        .args(arguments)
        .output()
        .expect("the simulation starts")
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn one_seed_is_one_history_byte_for_byte() {
    let once = tempfile::tempdir().expect("a folder");
    let twice = tempfile::tempdir().expect("a folder");
    // Snapshots, lost disks, kills: whatever it is, it is the same again.
    for seed in ["3", "12"] {
        let mut histories = Vec::new();
        for folder in [once.path(), twice.path()] {
            let output = whole(folder, &["--seed", seed, "--seconds", "12"]);
            let file = folder.join(format!("seed-{seed}.jsonl"));
            let history = std::fs::read(&file).unwrap_or_default();
            assert!(history.len() > 100_000, "{}", said(&output));
            histories.push(history);
        }
        let differs = histories[0]
            .split(|byte| *byte == b'\n')
            .zip(histories[1].split(|byte| *byte == b'\n'))
            .find(|(one, other)| one != other);
        if let Some((one, other)) = differs {
            let text = |line| String::from_utf8_lossy(line).into_owned();
            panic!(
                "seed {seed} first differs at\n{}\n{}",
                text(one),
                text(other)
            );
        }
        assert_eq!(histories[0].len(), histories[1].len(), "seed {seed}");
    }
}

/// As many as `SIM_SEEDS` says, 4 by default; `.ci/run` plays 50.
#[test]
fn some_seeds_keep_all_promises() {
    let folder = tempfile::tempdir().expect("a folder");
    let seeds = std::env::var("SIM_SEEDS").map_or(4, |count| {
        count.parse::<u64>().expect("SIM_SEEDS is a number")
    });
    let begun = Instant::now();
    // The first of them found a leader that proposed ticks as fast as it could when it had lost its
    // majority, and so would stand still in simulated time.
    let range = format!("1..{seeds}");
    let output = whole(folder.path(), &["--seeds", &range, "--seconds", "25"]);
    assert!(
        output.status.success(),
        "replay: make sim SEED=<of the broken one> SECONDS=25\n{}",
        said(&output)
    );
    println!("{seeds} seeds in {:.0} s", begun.elapsed().as_secs_f64());
}

#[test]
fn a_run_in_which_nothing_was_broken_proves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = whole(folder.path(), &["--seed", "1", "--seconds", "0"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("REJECTED"), "{}", said(&output));
}
