use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    BadHistory, Invariant, Run,
    checks::{self, searching},
    history::{Nanos, Record},
    partition::Plan,
    slice,
};

/// Findings that are told; a broken queue breaks everything.
const FINDINGS_MAX: usize = 20;

/// A broken invariant and what shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was promised.
    pub invariant: Invariant,
    /// When it shows, on the run's clock.
    pub at: Nanos,
    /// What happened instead.
    pub words: String,
    /// The smallest part of the history that was found to show it.
    pub slice: Vec<String>,
}

/// What was looked at, and how closely.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Questions.
    pub operations: u64,
    /// Answered, and not with a refusal.
    pub acknowledged: u64,
    /// Without an answer that tells what happened.
    pub unknown: u64,
    /// Faults that were seen to take effect.
    pub faults: u64,
    /// Nodes whose final state is known.
    pub finals: u64,
    /// Jobs whose whole life was searched exhaustively.
    pub jobs_searched: u64,
    /// Jobs whose search ran out of its budget.
    pub jobs_unfinished: u64,
    /// Tubes, with their operations, whose order was searched exhaustively.
    pub tubes_searched: BTreeMap<String, u64>,
    /// Tubes, with their operations, whose search ran out of its budget: for these only the
    /// necessary conditions are known to hold.
    pub tubes_unfinished: BTreeMap<String, u64>,
    /// What each necessary condition was held against, in numbers.
    pub conditions: BTreeMap<String, u64>,
}

/// What the checker says of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Why the run proves nothing, if it does not.
    pub rejected: Vec<String>,
    /// What was broken, the first first.
    pub findings: Vec<Finding>,
    /// Findings beyond those that are told.
    pub more: u64,
    /// What was looked at.
    pub coverage: Coverage,
}

impl Verdict {
    /// Whether the run proves something, and nothing was broken in it.
    pub fn is_sound(&self) -> bool {
        self.rejected.is_empty() && self.findings.is_empty()
    }

    /// The first broken invariant.
    pub fn first(&self) -> Option<Invariant> {
        self.findings.first().map(|finding| finding.invariant)
    }
}

/// Decides a history.
///
/// # Errors
///
/// [`BadHistory`] if the records make no history.
pub fn check(records: impl IntoIterator<Item = Record>) -> Result<Verdict, BadHistory> {
    let run = Run::assemble(records)?;
    Ok(check_run(&run))
}

fn check_run(run: &Run) -> Verdict {
    let plan = Plan::new(run);
    let mut coverage = Coverage {
        operations: run.ops.len() as u64,
        acknowledged: run.acknowledged(),
        unknown: run.ops.iter().filter(|op| op.answer().is_none()).count() as u64,
        faults: run.faults_in_effect,
        finals: run.finals.len() as u64,
        ..Coverage::default()
    };
    // Jobs first: of findings of one moment theirs says most.
    let mut lives = searching::jobs(run, &plan, &mut coverage);
    let mut findings = std::mem::take(&mut lives.findings);
    findings.extend(checks::conditions(run, &plan, &lives.broken, &mut coverage));
    // A tube with a broken job has no order for that reason alone.
    let sound = findings.is_empty();
    if sound {
        findings.extend(searching::tubes(run, &plan, &lives, &mut coverage));
    }
    findings.sort_by_key(|finding| finding.at);
    let more = findings.len().saturating_sub(FINDINGS_MAX) as u64;
    findings.truncate(FINDINGS_MAX);
    Verdict {
        rejected: rejections(run, &coverage),
        findings,
        more,
        coverage,
    }
}

/// A run that did nothing proves nothing.
fn rejections(run: &Run, coverage: &Coverage) -> Vec<String> {
    let demands = run.header.demands;
    let mut rejected = Vec::new();
    let mut demand = |what: &str, found: u64, least: u64| {
        if found < least {
            rejected.push(format!("{found} {what}; at least {least} are demanded"));
        }
    };
    demand(
        "operations were acknowledged",
        coverage.acknowledged,
        demands.acknowledged,
    );
    demand("faults took effect", coverage.faults, demands.faults);
    demand(
        "nodes told their final state",
        coverage.finals,
        demands.finals,
    );
    rejected
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for reason in &self.rejected {
            writeln!(f, "REJECTED: {reason}")?;
        }
        for finding in &self.findings {
            writeln!(
                f,
                "BROKEN {}: {}\n  {}",
                finding.invariant,
                finding.invariant.promise(),
                finding.words
            )?;
            for line in &finding.slice {
                writeln!(f, "    {line}")?;
            }
        }
        if self.more > 0 {
            writeln!(f, "… and {} more", self.more)?;
        }
        let c = &self.coverage;
        writeln!(
            f,
            "{} operations: {} acknowledged, {} unknown; {} faults in effect; {} final states",
            c.operations, c.acknowledged, c.unknown, c.faults, c.finals
        )?;
        writeln!(
            f,
            "searched exhaustively: {} jobs, {} tubes ({} operations)",
            c.jobs_searched,
            c.tubes_searched.len(),
            c.tubes_searched.values().sum::<u64>()
        )?;
        if c.jobs_unfinished > 0 || !c.tubes_unfinished.is_empty() {
            let tubes: Vec<_> = c.tubes_unfinished.keys().map(String::as_str).collect();
            writeln!(
                f,
                "only necessary conditions: {} jobs, tubes {}",
                c.jobs_unfinished,
                tubes.join(", ")
            )?;
        }
        let conditions: Vec<_> = c
            .conditions
            .iter()
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        writeln!(f, "necessary conditions: {}", conditions.join(", "))?;
        let verdict = if self.is_sound() {
            "SOUND"
        } else if self.findings.is_empty() {
            "REJECTED"
        } else {
            "BROKEN"
        };
        writeln!(f, "{verdict}")
    }
}

impl Finding {
    /// With the moment put before the words.
    pub(crate) fn new(
        run: &Run,
        invariant: Invariant,
        at: Nanos,
        words: impl fmt::Display,
        slice: Vec<String>,
    ) -> Self {
        Self {
            invariant,
            at,
            words: format!("at {}: {words}", slice::moment(run, at)),
            slice,
        }
    }
}
