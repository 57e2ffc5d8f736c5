use std::{
    collections::{BTreeMap, VecDeque},
    fs::OpenOptions,
    io::{self, Write},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use super::Outcome;

/// How long one seed may take, in real time: one that takes longer hangs.
const SEED_MAX: Duration = Duration::from_secs(300);

/// After so many sound seeds a line says that it goes on.
const SAY_EVERY: u64 = 25;

/// Many seeds, each in a process of its own.
#[derive(Clone, Debug)]
pub struct Series {
    /// Which.
    pub seeds: RangeInclusive<u64>,
    /// How many at the same time.
    pub jobs: usize,
    /// Simulated seconds of faults in each.
    pub seconds: u64,
    /// Where histories of failures are kept.
    pub folder: PathBuf,
    /// What was built.
    pub commit: String,
    /// Where a line is added for each seed, as `make fault-report` reads it.
    pub results: Option<PathBuf>,
    /// A bug to plant.
    pub bug: Option<String>,
    /// Whether to go on after a failure.
    pub all: bool,
}

/// What came of them.
#[derive(Debug, Default)]
struct Sum {
    sound: u64,
    rejected: Vec<u64>,
    broken: Vec<u64>,
    acknowledged: u64,
    unknown: u64,
    simulated_ms: u64,
    node_ms: u64,
    faults: BTreeMap<u32, u64>,
}

/// Plays a series, says what comes of each seed, and whether all were sound.
pub fn play_all(series: &Series) -> bool {
    let begun = Instant::now();
    let open = Mutex::new(VecDeque::from_iter(series.seeds.clone()));
    let sum = Mutex::new(Sum::default());
    thread::scope(|scope| {
        for _ in 0..series.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let next = open.lock().ok().and_then(|mut open| open.pop_front());
                    let Some(seed) = next else { return };
                    let sound = play_one(series, seed, &sum, begun);
                    if !sound
                        && !series.all
                        && let Ok(mut open) = open.lock()
                    {
                        open.clear();
                    }
                }
            });
        }
    });
    let Ok(sum) = sum.into_inner() else {
        return false;
    };
    tell(&sum, begun.elapsed());
    sum.broken.is_empty() && sum.rejected.is_empty()
}

fn play_one(series: &Series, seed: u64, sum: &Mutex<Sum>, begun: Instant) -> bool {
    let line = format!("seed {seed} after {:.1} s", begun.elapsed().as_secs_f64());
    let (outcome, text) = match child(series, seed) {
        Ok(done) => done,
        Err(words) => {
            println!("{line}: {words}");
            if let Ok(mut sum) = sum.lock() {
                sum.broken.push(seed);
            }
            return false;
        }
    };
    let Ok(mut sum) = sum.lock() else {
        return false;
    };
    if let Some(verdict) = &outcome.verdict {
        sum.acknowledged += verdict.coverage.acknowledged;
        sum.unknown += verdict.coverage.unknown;
    }
    sum.simulated_ms += outcome.simulated_ms;
    sum.node_ms += outcome.simulated_ms * outcome.nodes as u64;
    for (fault, times) in &outcome.faults {
        *sum.faults.entry(*fault).or_default() += times;
    }
    if let Some(file) = &series.results
        && let Err(error) = add_result(series, file, &outcome)
    {
        println!("{}: {error}", file.display());
    }
    if outcome.is_sound() {
        sum.sound += 1;
        if sum.sound.is_multiple_of(SAY_EVERY) {
            println!("{} sound, {line}", sum.sound);
        }
        return true;
    }
    println!("{text}");
    if outcome.is_rejected() {
        println!("{line}: REJECTED");
        sum.rejected.push(seed);
    } else {
        println!("{line}: BROKEN");
        sum.broken.push(seed);
    }
    false
}

/// One line for the report.
fn add_result(series: &Series, file: &Path, outcome: &Outcome) -> io::Result<()> {
    let coverage = outcome.verdict.as_ref().map(|verdict| &verdict.coverage);
    let line = serde_json::json!({
        "instrument": "sim",
        "seed": outcome.seed,
        "commit": series.commit,
        "acknowledged": coverage.map_or(0, |coverage| coverage.acknowledged),
        "unknown": coverage.map_or(0, |coverage| coverage.unknown),
        "faults": outcome.faults,
        "sound": outcome.is_sound(),
        "rejected": outcome.is_rejected(),
        "why": if outcome.is_sound() { String::new() } else { outcome.to_string() },
    });
    let mut out = OpenOptions::new().create(true).append(true).open(file)?;
    writeln!(out, "{line}")
}

/// One seed in a process of its own: its outcome, and what it said.
fn child(series: &Series, seed: u64) -> Result<(Outcome, String), String> {
    let words = |error: std::io::Error| error.to_string();
    let program = std::env::current_exe().map_err(words)?;
    let outcome_file = series.folder.join(format!("seed-{seed}.json"));
    let mut child = Command::new(program)
        .args(["whole", "--seed", &seed.to_string()])
        .args(["--seconds", &series.seconds.to_string()])
        .args(["--commit", &series.commit])
        .arg("--histories")
        .arg(&series.folder)
        .arg("--outcome")
        .arg(&outcome_file)
        .envs(series.bug.iter().map(|bug| ("SEEDED_BUG", bug)))
        .env("TRELLIS_SIM_CHANCE", seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(words)?;
    let end = Instant::now() + SEED_MAX;
    let mut out = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        if let Some(out) = &mut out {
            // What is not text is not ours.
            let _ = std::io::Read::read_to_string(out, &mut text);
        }
        text
    });
    loop {
        match child.try_wait().map_err(words)? {
            Some(_) => break,
            None if Instant::now() > end => {
                child.kill().map_err(words)?;
                child.wait().map_err(words)?;
                return Err(format!("it hangs; {} s is the bound", SEED_MAX.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
    let text = reader.join().unwrap_or_default();
    let outcome = std::fs::read(&outcome_file)
        .map_err(words)
        .and_then(|outcome| serde_json::from_slice(&outcome).map_err(|error| error.to_string()));
    // It is in what is printed.
    let _ = std::fs::remove_file(&outcome_file);
    match outcome {
        Ok(outcome) => Ok((outcome, text)),
        Err(why) => Err(format!("it told no outcome ({why})\n{text}")),
    }
}

fn tell(sum: &Sum, took: Duration) {
    println!(
        "{} sound, {} rejected {:?}, {} broken {:?}; {} operations acknowledged, {} unknown",
        sum.sound,
        sum.rejected.len(),
        sum.rejected,
        sum.broken.len(),
        sum.broken,
        sum.acknowledged,
        sum.unknown,
    );
    let real = took.as_secs_f64();
    println!(
        "{:.0} simulated seconds in {real:.0} s: {:.1} cluster seconds, {:.1} node seconds a second",
        sum.simulated_ms as f64 / 1e3,
        sum.simulated_ms as f64 / 1e3 / real,
        sum.node_ms as f64 / 1e3 / real,
    );
    let faults: Vec<_> = sum
        .faults
        .iter()
        .map(|(fault, times)| format!("{fault}: {times}"))
        .collect();
    println!("faults by number: {}", faults.join(", "));
}
