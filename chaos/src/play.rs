use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Error, Result};
use rand::{SeedableRng as _, rngs::StdRng};
use trellis_checker::{
    Invariant, Verdict, check,
    history::{self, Bounds, Demands, Header, Nanos, Recorder, SECOND, Stage, VERSION},
    workload::{Profile, Workload},
};
use trellis_testkit::recording::Recording;

use crate::{
    account::{Account, Acknowledged, Fault, Word},
    arena::{Arena, NODES, READY_MAX, name},
    nemesis::{Kind, Nemesis},
    story::{Act, Story},
};

/// Load before the first act.
const WARM_UP: Duration = Duration::from_secs(3);

/// Calm behind each act, so that what it left behind shows.
const CALM: Duration = Duration::from_secs(2);

/// How long everything may take to drain.
const DRAIN_MAX: Duration = Duration::from_secs(120);

/// How stories are told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program of the nodes.
    pub binary: PathBuf,
    /// The workload's profile.
    pub profile: String,
    /// Operations that must be acknowledged in each second in which there is somebody to do so.
    pub rate: f64,
    /// What of the source this is.
    pub commit: String,
    /// Where histories and logs of stories go that are not sound.
    pub keep: PathBuf,
}

/// Plays a story from its first node to the checker's word, with a line for each step.
///
/// # Errors
///
/// The place could not even be made. Whatever goes wrong after that is in the account.
pub fn tell(
    story: &Story,
    seed: u64,
    settings: &Settings,
    say: &mut dyn FnMut(&str),
) -> Result<Account> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut arena = Arena::raise(&settings.binary, story.setup())?;
    let version = arena.status(0)?["version"]
        .as_str()
        .unwrap_or("?")
        .to_owned();
    let history = arena.folder().join("history.jsonl");
    arena.bear(load(&arena, story, seed, settings, &history)?);
    let mut telling = Telling {
        arena,
        random: StdRng::seed_from_u64(seed),
        faults: Vec::new(),
        outage: Duration::ZERO,
        outage_answers: 0,
        say,
    };
    let begin = Instant::now();
    let mut trouble = Trouble::default();
    thread::sleep(WARM_UP);
    for act in &story.acts {
        if let Err(failed) = telling.act(act) {
            trouble.add(failed);
            break;
        }
    }
    let seconds = begin.elapsed();
    telling.finish(&mut trouble);
    let verdict = verdict(&history)?;
    let mut account = Account {
        instrument: "chaos".to_owned(),
        story: story.name.clone(),
        balanced: story.balanced,
        seed,
        version: format!("{version} ({})", settings.commit),
        at,
        seconds: seconds.as_secs_f64(),
        outage_seconds: telling.outage.as_secs_f64(),
        outage_answers: telling.outage_answers,
        acknowledged: verdict.coverage.acknowledged,
        unknown: verdict.coverage.unknown,
        invariants: Invariant::ALL.map(|it| it.to_string()).into(),
        faults: telling.faults,
        verdict: Word::Sound,
        why: Vec::new(),
        kept: None,
    };
    let acknowledged = Acknowledged::of(&history)?;
    for fault in &mut account.faults {
        let concerned: BTreeSet<String> = fault.nodes.iter().cloned().collect();
        fault.gap_ms = acknowledged.gap(&concerned, fault.from, fault.to) / 1_000_000;
    }
    judge(&mut account, &verdict, trouble, settings.rate);
    if account.verdict != Word::Sound {
        // A name may be as long as the story; a folder's may not.
        let name: String = story.name.chars().take(100).collect();
        let kept = settings.keep.join(format!("{name}-{seed}-{at}"));
        telling.arena.keep_logs(&kept)?;
        fs::copy(&history, kept.join("history.jsonl"))?;
        account.kept = Some(kept);
    }
    Ok(account)
}

/// What went wrong beside the checker.
#[derive(Debug, Default)]
struct Trouble {
    /// A promise was broken in sight.
    broken: Vec<String>,
    /// A nemesis did nothing, or something else than it should.
    rejected: Vec<String>,
}

impl Trouble {
    fn add(&mut self, failed: Failed) {
        match failed {
            Failed::Nemesis(error) => self.rejected.push(format!("{error:#}")),
            Failed::Cluster(error) => self.broken.push(format!("{error:#}")),
        }
    }
}

/// Whose fault it is that an act did not end well.
enum Failed {
    Nemesis(Error),
    Cluster(Error),
}

/// A story that is being told.
struct Telling<'a> {
    arena: Arena,
    random: StdRng,
    faults: Vec<Fault>,
    outage: Duration,
    outage_answers: u64,
    say: &'a mut dyn FnMut(&str),
}

impl Telling<'_> {
    /// Breaks, waits, mends, and waits until all is well.
    fn act(&mut self, act: &Act) -> Result<(), Failed> {
        let begin = Instant::now();
        let answered = self.answered();
        let mut outer = (act.outer.make)();
        self.arena.calm();
        let begun = self.begin(act.outer, outer.as_mut(), act.inner)?;
        let mut inner = None;
        let mut unserved = act.is_outage();
        if let Some(kind) = act.inner {
            let mut nemesis = (kind.make)();
            let begun = self.begin(kind, nemesis.as_mut(), Some(act.outer))?;
            // Each alone leaves a majority; which nodes the two have met is known only now.
            unserved |= !self.arena.majority_is_well();
            thread::sleep(nemesis.hold());
            let ended = nemesis.end(&mut self.arena, &mut self.random);
            ended
                .with_context(|| format!("{} ends", kind.name))
                .map_err(Failed::Nemesis)?;
            inner = Some(begun);
        } else {
            thread::sleep(outer.hold());
        }
        let ended = outer.end(&mut self.arena, &mut self.random);
        ended
            .with_context(|| format!("{} ends", act.outer.name))
            .map_err(Failed::Nemesis)?;
        let settled = self.arena.settle(READY_MAX).map_err(Failed::Cluster)?;
        let now = self.now();
        for at in [Some(begun), inner].into_iter().flatten() {
            self.faults[at].to = now;
            let fault = &self.faults[at];
            self.record(fault, fault.to, Stage::End);
        }
        let answers = self.answered() - answered;
        if unserved {
            self.outage += begin.elapsed();
            self.outage_answers += answers;
        }
        let rate = answers as f64 / begin.elapsed().as_secs_f64();
        let asked = if unserved { ", none demanded" } else { "" };
        (self.say)(&format!(
            "    all ready {:.1} s after the end; {rate:.0} answers a second meanwhile{asked}",
            settled.as_secs_f64()
        ));
        thread::sleep(CALM);
        Ok(())
    }

    fn begin(
        &mut self,
        kind: Kind,
        nemesis: &mut dyn Nemesis,
        with: Option<Kind>,
    ) -> Result<usize, Failed> {
        // Stamped before: nothing of it may look like calm.
        let from = self.now();
        let broken = nemesis
            .begin(&mut self.arena, &mut self.random)
            .with_context(|| format!("{} begins", kind.name))
            .map_err(Failed::Nemesis)?;
        self.arena.concern(&broken.nodes);
        (self.say)(&format!("  {}: {}", kind.name, broken.seen));
        let fault = Fault {
            fault: kind.fault,
            kind: kind.name.to_owned(),
            with: with.map(|kind| kind.name.to_owned()),
            seen: broken.seen,
            nodes: broken.nodes.into_iter().map(name).collect(),
            from,
            to: Nanos::MAX,
            gap_ms: 0,
        };
        self.record(&fault, from, Stage::Begin);
        self.faults.push(fault);
        Ok(self.faults.len() - 1)
    }

    fn record(&self, fault: &Fault, t: Nanos, stage: Stage) {
        if let Some(load) = self.arena.load() {
            let nodes: Vec<_> = fault.nodes.iter().map(String::as_str).collect();
            load.nemesis_at(t, fault.fault, &fault.kind, &nodes, stage, true);
        }
    }

    fn now(&self) -> Nanos {
        self.arena.load().map_or(SECOND, Recording::now)
    }

    fn answered(&self) -> u64 {
        self.arena.load().map_or(0, Recording::answered)
    }

    /// The load stops, everything drains, all nodes hold the same.
    fn finish(&mut self, trouble: &mut Trouble) {
        let well = trouble.broken.is_empty() && trouble.rejected.is_empty();
        if let Some(load) = self.arena.load_mut() {
            load.stop();
        }
        if well && let Err(error) = self.end_well() {
            trouble.broken.push(format!("{error:#}"));
        }
        if let Some(load) = self.arena.load()
            && let Err(error) = load.finish()
        {
            trouble.rejected.push(format!("the history: {error}"));
        }
    }

    /// Everything drains, and all nodes hold the same.
    fn end_well(&mut self) -> Result<()> {
        self.arena.settle(READY_MAX)?;
        let load = self.arena.load().context("no load")?;
        let drained = load.drain(DRAIN_MAX);
        (self.say)(&format!("  drained: {drained}"));
        // One with a damaged folder may find that only now.
        self.arena.settle(READY_MAX)?;
        let digest = self.arena.digests_agree(READY_MAX).context("I11")?;
        (self.say)(&format!("  all nodes hold {digest}"));
        let strangers: Vec<_> = self.arena.strangers().into_iter().map(name).collect();
        let gone: Vec<_> = strangers.iter().map(String::as_str).collect();
        let load = self.arena.load().context("no load")?;
        load.final_states_but(&gone, READY_MAX).map_err(Error::msg)
    }
}

/// Starts the recorded clients.
fn load(
    arena: &Arena,
    story: &Story,
    seed: u64,
    settings: &Settings,
    history: &Path,
) -> Result<Recording> {
    let profile = Profile::named(&settings.profile)?;
    let faults = story
        .acts
        .iter()
        .map(|act| 1 + u64::from(act.inner.is_some()));
    let header = Header {
        version: VERSION,
        instrument: "chaos".to_owned(),
        seed,
        commit: settings.commit.clone(),
        profile: settings.profile.clone(),
        bounds: Bounds {
            // When all start together they take the time from wall clocks, as old as the answers
            // that brought them were slow.
            early_ms: 1_000,
            ..Bounds::default()
        },
        demands: Demands {
            acknowledged: 100,
            faults: faults.sum(),
            finals: NODES as u64,
        },
        local_reads: false,
    };
    let file = fs::File::create(history)?;
    let recorder = Recorder::new(Box::new(file), header);
    let workload = Workload::new(seed, profile);
    Ok(Recording::start(recorder, workload, arena.addresses()))
}

fn verdict(history: &Path) -> Result<Verdict> {
    let input = io::BufReader::new(fs::File::open(history)?);
    let records: Result<Vec<_>, _> = history::read(input).collect();
    Ok(check(records?)?)
}

/// The last word, from everything that was seen.
fn judge(account: &mut Account, verdict: &Verdict, trouble: Trouble, rate: f64) {
    let findings = verdict.findings.iter().map(|finding| {
        let slice = finding.slice.join("\n    ");
        format!("{}: {}\n    {slice}", finding.invariant, finding.words)
    });
    let broken: Vec<_> = findings.chain(trouble.broken).collect();
    let mut rejected = trouble.rejected;
    // What ended early lacks what comes last; that is said already.
    if rejected.is_empty() {
        rejected.extend(verdict.rejected.iter().cloned());
        let found = account.rate();
        if found < rate {
            rejected.push(format!(
                "{found:.0} operations were acknowledged in a second; at least {rate:.0} are demanded"
            ));
        }
    }
    account.verdict = match (broken.is_empty(), rejected.is_empty()) {
        (false, _) => Word::Broken,
        (true, false) => Word::Rejected,
        (true, true) => Word::Sound,
    };
    account.why = broken.into_iter().chain(rejected).collect();
}

#[cfg(test)]
mod tests {
    use trellis_checker::Finding;

    use super::*;

    fn judged(verdict: &Verdict, trouble: Trouble, acknowledged: u64) -> Word {
        let mut account = Account {
            instrument: "chaos".to_owned(),
            story: "kills".to_owned(),
            balanced: false,
            seed: 1,
            version: String::new(),
            at: 0,
            seconds: 70.0,
            outage_seconds: 10.0,
            outage_answers: 0,
            acknowledged,
            unknown: 0,
            invariants: Vec::new(),
            faults: Vec::new(),
            verdict: Word::Sound,
            why: Vec::new(),
            kept: None,
        };
        judge(&mut account, verdict, trouble, 500.0);
        assert_eq!(account.why.is_empty(), account.verdict == Word::Sound);
        account.verdict
    }

    fn verdict(findings: Vec<Finding>) -> Verdict {
        Verdict {
            rejected: Vec::new(),
            findings,
            more: 0,
            coverage: Default::default(),
        }
    }

    #[test]
    fn only_what_is_whole_and_lively_is_sound() {
        let sound = verdict(Vec::new());
        let lost = Finding {
            invariant: Invariant::I1,
            at: 1,
            words: "lost".to_owned(),
            slice: Vec::new(),
        };
        assert_eq!(judged(&sound, Trouble::default(), 30_000), Word::Sound);
        assert_eq!(
            judged(&sound, Trouble::default(), 29_000),
            Word::Rejected,
            "500 in each of 60 seconds are demanded"
        );
        assert_eq!(
            judged(&verdict(vec![lost]), Trouble::default(), 30_000),
            Word::Broken
        );
    }

    #[test]
    fn a_nemesis_without_effect_is_rejected_and_a_cluster_that_does_not_heal_is_broken() {
        let sound = verdict(Vec::new());
        let mut trouble = Trouble::default();
        trouble.add(Failed::Nemesis(Error::msg("no packet was dropped")));
        assert_eq!(judged(&sound, trouble, 30_000), Word::Rejected);
        let mut trouble = Trouble::default();
        trouble.add(Failed::Cluster(Error::msg("node-1 is not ready")));
        assert_eq!(judged(&sound, trouble, 30_000), Word::Broken);
    }
}
