//! Orders: of each job's operations, and of each tube's.

use std::collections::BTreeSet;

use trellis_types::TubeName;

use crate::{
    Coverage, Finding, Run,
    history::Nanos,
    model::{Act, Facts, Rule, Rules, Tube, World},
    partition::{Plan, TubeFile},
    search::{Found, Step, Stuck, search},
    slice,
};

/// Configurations that one job's search may look at.
const JOB_BUDGET: u64 = 300_000;

/// Configurations that one tube's search may look at: so many, and so many for each operation.
const TUBE_BUDGET: u64 = 1_000_000;
const TUBE_BUDGET_PER_STEP: u64 = 60;

/// The same for a look that may miss an order.
const QUICK_BUDGET: u64 = 100_000;

/// Jobs that are told of; the others of a broken run look the same.
const TOLD_MAX: usize = 30;

/// Jobs of a tube that are told of together.
const TOLD_TOGETHER_MAX: usize = 5;

/// What the lives of the jobs, each by itself, say.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// Those that have no order.
    pub(crate) findings: Vec<Finding>,
    /// The tubes of these.
    pub(crate) broken: BTreeSet<TubeName>,
    /// Operations without an answer that the others' orders contain.
    happened: BTreeSet<usize>,
}

/// Searches the life of each job.
pub(crate) fn jobs(run: &Run, plan: &Plan, coverage: &mut Coverage) -> Lives {
    let mut lives = Lives::default();
    for job in 0..plan.jobs.len() {
        if lives.findings.len() >= TOLD_MAX {
            break;
        }
        let steps = plan.steps_of_job(run, job);
        let part = Part::of_job(run, plan, job);
        match part.search(&steps, Rules::ALL) {
            Found::Order(order) => {
                coverage.jobs_searched += 1;
                let unanswered = order.iter().filter(|step| steps[**step].to == Nanos::MAX);
                lives
                    .happened
                    .extend(unanswered.filter_map(|step| steps[*step].op));
            }
            Found::OutOfBudget => coverage.jobs_unfinished += 1,
            Found::None(stuck) => {
                coverage.jobs_searched += 1;
                let finding = part.explain(run, plan, steps, &stuck, &Rule::OF_A_JOB);
                lives.findings.push(finding);
                lives.broken.insert(plan.jobs[job].tube.clone());
            }
        }
    }
    lives
}

/// Searches each tube as a whole.
pub(crate) fn tubes(
    run: &Run,
    plan: &Plan,
    lives: &Lives,
    coverage: &mut Coverage,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, tube) in &plan.tubes {
        let mut steps = plan.steps_of_tube(run, tube, &tube.jobs);
        let part = Part::of_tube(run, plan, tube, tube.jobs.clone());
        let count = steps.len() as u64;
        let happened = |step: &Step| step.op.is_some_and(|op| lives.happened.contains(&op));
        for step in &mut steps {
            step.needed = step.to == Nanos::MAX && step.act.leaves_a_mark() && happened(step);
        }
        // First as the jobs' own orders suggest, without what else may have happened.
        let likely = steps
            .iter()
            .filter(|step| step.to != Nanos::MAX || happened(step));
        let few: Vec<Step> = likely.cloned().collect();
        let quick = TUBE_BUDGET_PER_STEP
            .saturating_mul(count)
            .saturating_add(QUICK_BUDGET);
        let found = [(&few, true), (&few, false), (&steps, true)]
            .into_iter()
            .any(|(steps, leaps)| {
                matches!(
                    part.search_within(steps, Rules::ALL, quick, leaps),
                    Found::Order(_)
                )
            });
        if found {
            coverage.tubes_searched.insert(name.to_string(), count);
            continue;
        }
        match part.search(&steps, Rules::ALL) {
            Found::Order(_) => {
                coverage.tubes_searched.insert(name.to_string(), count);
            }
            Found::OutOfBudget => {
                coverage.tubes_unfinished.insert(name.to_string(), count);
            }
            Found::None(stuck) => {
                coverage.tubes_searched.insert(name.to_string(), count);
                findings.push(explain_tube(run, plan, tube, &steps, &stuck));
            }
        }
    }
    findings
}

/// A part of the history that can be searched by itself.
struct Part<'a> {
    run: &'a Run,
    plan: &'a Plan,
    jobs: Vec<usize>,
    facts: Vec<Facts>,
    ghosts: &'a [Nanos],
    strangers: &'a [Nanos],
    single: bool,
    among: usize,
    budget: u64,
}

impl<'a> Part<'a> {
    fn of_job(run: &'a Run, plan: &'a Plan, job: usize) -> Self {
        let file = &plan.jobs[job];
        Self {
            run,
            plan,
            jobs: vec![job],
            facts: vec![file.facts.clone()],
            ghosts: plan.tubes.get(&file.tube).map_or(&[], |tube| &tube.ghosts),
            strangers: &[],
            single: true,
            among: 1,
            budget: JOB_BUDGET,
        }
    }

    fn of_tube(run: &'a Run, plan: &'a Plan, tube: &'a TubeFile, jobs: Vec<usize>) -> Self {
        Self {
            run,
            plan,
            facts: jobs
                .iter()
                .map(|job| plan.jobs[*job].facts.clone())
                .collect(),
            jobs,
            ghosts: &tube.ghosts,
            strangers: &tube.strangers,
            single: false,
            among: tube.jobs.len(),
            budget: TUBE_BUDGET,
        }
    }

    fn search(&self, steps: &[Step], rules: Rules) -> Found {
        let steps_budget = TUBE_BUDGET_PER_STEP.saturating_mul(steps.len() as u64);
        self.search_within(
            steps,
            rules,
            self.budget.saturating_add(steps_budget),
            false,
        )
    }

    fn search_within(&self, steps: &[Step], rules: Rules, budget: u64, leaps: bool) -> Found {
        // What a job counts was looked at in its own life.
        let rules = if self.single {
            rules
        } else {
            rules.without(Rule::Counters)
        };
        let bounds = self.run.header.bounds;
        let world = World::new(
            rules,
            bounds,
            self.run.standstill(),
            &self.plan.ends,
            self.single,
        );
        let mut tube = Tube::new(
            world,
            &self.facts,
            self.ghosts,
            self.strangers,
            self.single,
            self.among,
        );
        search(&mut tube, self.facts.len(), steps, budget, leaps)
    }

    fn is_broken(&self, steps: &[Step], rules: Rules) -> bool {
        matches!(self.search(steps, rules), Found::None(_))
    }

    /// The rule whose dropping gives an order.
    fn culprit(&self, steps: &[Step], rules: &[Rule]) -> Option<Rule> {
        let orders = |rule: &&Rule| {
            matches!(
                self.search(steps, Rules::ALL.without(**rule)),
                Found::Order(_)
            )
        };
        rules.iter().find(orders).copied()
    }

    /// Names what was broken, with as little of the history as shows it.
    fn explain(
        &self,
        run: &Run,
        plan: &Plan,
        steps: Vec<Step>,
        stuck: &Stuck,
        rules: &[Rule],
    ) -> Finding {
        let at = steps[stuck.step].to;
        // What came later tells a lost job from an old look; but a queue that breaks one promise
        // often breaks another later.
        let mut few = steps.clone();
        few.retain(|step| step.from <= at);
        let culprit = self
            .culprit(&steps, rules)
            .or_else(|| self.culprit(&few, rules));
        // What only looks can be left out without making a sound history unsound.
        let mut kept = 0;
        while kept < few.len() {
            let quiet = few[kept].act.is_read() || few[kept].act.is_refusal();
            let left_out = quiet.then(|| few.remove(kept));
            let still = left_out.is_some()
                && self.is_broken(&few, Rules::ALL)
                && culprit.is_none_or(|rule| !self.is_broken(&few, Rules::ALL.without(rule)));
            if still {
                continue;
            }
            if let Some(step) = left_out {
                few.insert(kept, step);
            }
            kept += 1;
        }
        let name = match self.jobs.as_slice() {
            [job] => plan.name(run, *job),
            jobs => {
                let tube = jobs.first().map(|job| plan.jobs[*job].tube.to_string());
                format!("tube {}", tube.unwrap_or_default())
            }
        };
        let (invariant, breach) = culprit.map_or(
            (
                crate::Invariant::I17,
                "no order of its operations explains the answers",
            ),
            |rule| (rule.invariant(), rule.breach()),
        );
        let mut lines = slice::lines(run, few.iter().filter_map(|step| step.op));
        for step in few.iter().filter(|step| step.op.is_none()) {
            lines.push(format!(
                "{} at the end: {}",
                slice::moment(run, step.from),
                last_words(step)
            ));
        }
        Finding::new(run, invariant, at, format!("{name}: {breach}"), lines)
    }
}

fn last_words(step: &Step) -> String {
    match &step.act {
        Act::Stats {
            seen: Some(seen), ..
        } => crate::history::Reply::JobStats(seen.clone()).to_string(),
        _ => "it does not exist".to_owned(),
    }
}

/// A tube has no order: with which of its jobs alone has it none?
fn explain_tube(run: &Run, plan: &Plan, tube: &TubeFile, steps: &[Step], stuck: &Stuck) -> Finding {
    let urgent = &steps[stuck.step];
    let mut jobs: Vec<usize> = stuck
        .blamed
        .iter()
        .copied()
        .chain(urgent.act.job())
        .collect();
    jobs.sort_unstable();
    jobs.dedup();
    let mut jobs: Vec<usize> = jobs.into_iter().map(|place| tube.jobs[place]).collect();
    let part = |jobs: &[usize]| {
        let part = Part::of_tube(run, plan, tube, jobs.to_vec());
        let mut steps = plan.steps_of_tube(run, tube, jobs);
        steps.retain(|step| step.from <= urgent.to);
        // Of what concerns the tube as a whole: pauses, and what could not be placed.
        steps.retain(|step| {
            step.act.job().is_some()
                || matches!(step.act, Act::Pause { .. } | Act::Kick { .. })
                || step.op == urgent.op
        });
        (part, steps)
    };
    // More would have too many ways to be kicked.
    jobs.truncate(TOLD_TOGETHER_MAX);
    let (few, few_steps) = part(&jobs);
    // Without the other jobs a count is wrong anyhow.
    let counted = matches!(urgent.act, Act::Counts { .. });
    if counted || !few.is_broken(&few_steps, Rules::ALL) {
        let whole = Part::of_tube(run, plan, tube, tube.jobs.clone());
        let mut finding = whole.explain(run, plan, steps.to_vec(), stuck, &Rule::OF_A_TUBE);
        let tail = finding.slice.len().saturating_sub(40);
        finding.slice.drain(..tail);
        return finding;
    }
    let mut at = 0;
    while at < jobs.len() {
        let mut fewer = jobs.clone();
        fewer.remove(at);
        let (part, steps) = part(&fewer);
        if part.is_broken(&steps, Rules::ALL) {
            jobs = fewer;
        } else {
            at += 1;
        }
    }
    let (few, few_steps) = part(&jobs);
    match few.search(&few_steps, Rules::ALL) {
        Found::None(stuck) => few.explain(run, plan, few_steps, &stuck, &Rule::OF_A_TUBE),
        _ => few.explain(run, plan, few_steps, &Stuck::default(), &Rule::OF_A_TUBE),
    }
}
