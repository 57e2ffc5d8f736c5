//! The search of Wing and Gong, with Lowe's memory of configurations: is there an order?
//!
//! Operations are tried in the order of their questions. One may come next if no other that is
//! still to be placed was answered before it was asked. A configuration (which are placed, and the
//! state they lead to) that was tried once is not tried again. Operations without an answer are
//! tried only where one with an answer needs them: they may be left out.

use std::collections::HashSet;

use crate::{
    history::Nanos,
    model::{Act, Tube, Undo, Window},
};

/// An operation as the search sees it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Which operation of the run, or none of them (what was left at the end).
    pub(crate) op: Option<usize>,
    pub(crate) from: Nanos,
    /// `Nanos::MAX` if it may be left out.
    pub(crate) to: Nanos,
    pub(crate) act: Act,
    /// That it has no answer and must have happened all the same: placed as soon as it can be.
    pub(crate) needed: bool,
}

/// What the search found.
#[derive(Debug)]
pub(crate) enum Found {
    /// There is an order: this one.
    Order(Vec<usize>),
    /// There is none.
    None(Stuck),
    /// It gave up.
    OutOfBudget,
}

/// How far it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stuck {
    /// The step that fits nowhere.
    pub(crate) step: usize,
    /// The jobs that stand against it.
    pub(crate) blamed: Vec<usize>,
}

/// Calls and returns of the steps still to be placed, by time, as a linked list.
struct Remaining {
    next: Vec<usize>,
    back: Vec<usize>,
    /// The entry of each step's call and return.
    call: Vec<usize>,
    ret: Vec<usize>,
    entries: Vec<(usize, bool)>,
    left: usize,
}

const HEAD: usize = 0;

impl Remaining {
    fn new(steps: &[Step]) -> Self {
        let mut times = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            if step.to != Nanos::MAX {
                // A call stands before a return of the same moment: they may have overlapped.
                times.push((step.from, false, at));
                times.push((step.to, true, at));
            }
        }
        times.sort_unstable();
        let count = times.len() + 1;
        let mut remaining = Self {
            next: (1..=count).collect(),
            back: (0..=count).map(|at| at.saturating_sub(1)).collect(),
            call: vec![0; steps.len()],
            ret: vec![0; steps.len()],
            entries: vec![(usize::MAX, false)],
            left: times.len() / 2,
        };
        for (at, (_, returns, step)) in (1..).zip(times) {
            remaining.entries.push((step, returns));
            if returns {
                remaining.ret[step] = at;
            } else {
                remaining.call[step] = at;
            }
        }
        remaining
    }

    fn entry(&self, at: usize) -> Option<(usize, bool)> {
        self.entries.get(at).copied()
    }

    fn lift(&mut self, step: usize) {
        for at in [self.call[step], self.ret[step]] {
            let (back, next) = (self.back[at], self.next[at]);
            self.next[back] = next;
            if next < self.back.len() {
                self.back[next] = back;
            }
        }
        self.left -= 1;
    }

    fn lower(&mut self, step: usize) {
        for at in [self.ret[step], self.call[step]] {
            let (back, next) = (self.back[at], self.next[at]);
            self.next[back] = at;
            if next < self.back.len() {
                self.back[next] = at;
            }
        }
        self.left += 1;
    }

    /// The first step that must be placed before time goes on.
    fn most_urgent(&self) -> Option<usize> {
        let mut at = self.next[HEAD];
        loop {
            match self.entry(at)? {
                (step, true) => return Some(step),
                _ => at = self.next[at],
            }
        }
    }
}

/// Where the search stands before one more step is placed.
struct Frame {
    low: Nanos,
    horizon: Nanos,
    urgent: usize,
    /// Steps without an answer that are tried first.
    needed: Vec<usize>,
    first: usize,
    /// The entry whose options are being tried.
    cursor: usize,
    option: usize,
    /// Steps without an answer to be tried here; set when the others are exhausted.
    optional: Option<Vec<usize>>,
    at: usize,
    touched: Vec<usize>,
    /// Jobs that stand against what must be placed next, as far as that is known.
    against: Option<Vec<usize>>,
    /// Whether any job of the tube can matter.
    all: bool,
    /// Whether a job was to be buried: then it matters which others lie there already.
    buries: bool,
}

/// A step that was placed, and how to take it back.
struct Placed {
    step: usize,
    matured: Undo,
    done: Undo,
    set: u128,
    /// The jobs that it changed or looked at.
    jobs: Vec<usize>,
    frame: Frame,
}

struct Search<'s, 't> {
    tube: &'s mut Tube<'t>,
    steps: &'s [Step],
    remaining: Remaining,
    used: Vec<bool>,
    /// Steps without an answer, by the job that they concern; the last list is of those that
    /// concern the whole tube.
    optional: Vec<Vec<usize>>,
    /// Those of them that must have happened.
    needed: Vec<usize>,
    seen: HashSet<u128>,
    set: u128,
    budget: u64,
    leaps: bool,
}

/// Whether a step has to do with one of these jobs.
fn concerns(placed: &Placed, jobs: &[usize]) -> bool {
    placed.jobs.iter().any(|job| jobs.contains(job))
}

/// Looks for an order. `budget` bounds the configurations that it looks at. With `leaps` it goes back
/// to what concerns the jobs in question, at once: most orders are found sooner, but that it finds
/// none says nothing.
pub(crate) fn search(
    tube: &mut Tube<'_>,
    jobs: usize,
    steps: &[Step],
    budget: u64,
    leaps: bool,
) -> Found {
    let mut optional = vec![Vec::new(); jobs + 1];
    for (at, step) in steps.iter().enumerate() {
        if step.to == Nanos::MAX {
            optional[step.act.job().unwrap_or(jobs)].push(at);
        }
    }
    let mut search = Search {
        tube,
        steps,
        remaining: Remaining::new(steps),
        used: vec![false; steps.len()],
        optional,
        needed: (0..steps.len())
            .filter(|step| steps[*step].needed)
            .collect(),
        seen: HashSet::new(),
        set: 0,
        budget,
        leaps,
    };
    search.run()
}

impl Search<'_, '_> {
    fn run(&mut self) -> Found {
        let mut placed: Vec<Placed> = Vec::new();
        let mut stuck = Stuck::default();
        let mut deepest = 0;
        let Some(mut frame) = self.frame(0) else {
            return Found::Order(Vec::new());
        };
        loop {
            if self.budget == 0 {
                self.rewind(placed);
                return Found::OutOfBudget;
            }
            if let Some((step, matured, done, jobs)) = self.advance(&mut frame) {
                let low = match self.steps[step].to {
                    Nanos::MAX => frame.low,
                    _ => frame.low.max(self.steps[step].from),
                };
                placed.push(Placed {
                    step,
                    matured,
                    done,
                    set: self.set,
                    jobs,
                    frame,
                });
                self.set ^= mark(step);
                self.used[step] = true;
                if self.steps[step].to != Nanos::MAX {
                    self.remaining.lift(step);
                }
                match self.frame(low) {
                    Some(next) => frame = next,
                    None => {
                        let order = placed.iter().map(|placed| placed.step).collect();
                        self.rewind(placed);
                        return Found::Order(order);
                    }
                }
                continue;
            }
            let depth = self.steps.len() - self.remaining.left;
            if depth >= deepest {
                deepest = depth;
                stuck = Stuck {
                    step: frame.urgent,
                    blamed: frame.touched.clone(),
                };
            }
            let against = frame.against.take().filter(|_| self.leaps);
            let mut last = placed.pop();
            if let Some(against) = &against {
                // What has nothing to do with these jobs cannot help.
                while let Some(idle) = last.take_if(|last| !concerns(last, against)) {
                    self.take_back(idle);
                    last = placed.pop();
                }
            }
            match last {
                Some(last) => {
                    frame = self.take_back(last);
                    if let Some(against) = against {
                        frame.against.get_or_insert_default().extend(against);
                    }
                }
                None => return Found::None(stuck),
            }
        }
    }

    fn rewind(&mut self, mut placed: Vec<Placed>) {
        while let Some(last) = placed.pop() {
            self.take_back(last);
        }
    }

    fn take_back(&mut self, last: Placed) -> Frame {
        self.tube.take_back(last.done);
        self.tube.take_back(last.matured);
        self.used[last.step] = false;
        self.set = last.set;
        if self.steps[last.step].to != Nanos::MAX {
            self.remaining.lower(last.step);
        }
        last.frame
    }

    /// `None` if nothing is left to be placed.
    fn frame(&self, low: Nanos) -> Option<Frame> {
        let urgent = self.remaining.most_urgent()?;
        Some(Frame {
            low,
            horizon: self.steps[urgent].to,
            urgent,
            needed: self
                .needed
                .iter()
                .copied()
                .filter(|step| !self.used[*step] && self.steps[*step].from <= self.steps[urgent].to)
                .collect(),
            first: 0,
            cursor: self.remaining.next[HEAD],
            option: 0,
            optional: None,
            at: 0,
            touched: Vec::new(),
            against: None,
            all: false,
            buries: false,
        })
    }

    /// Places the next step that leads to something new.
    fn advance(&mut self, frame: &mut Frame) -> Option<(usize, Undo, Undo, Vec<usize>)> {
        loop {
            let first = frame.needed.get(frame.first).copied();
            let step = match &frame.optional {
                _ if first.is_some() => first.unwrap_or_default(),
                None => match self.remaining.entry(frame.cursor) {
                    Some((step, false)) => step,
                    _ => {
                        frame.optional = Some(self.optional_for(frame));
                        frame.option = 0;
                        continue;
                    }
                },
                Some(list) => *list.get(frame.at)?,
            };
            if let Some((matured, done, jobs)) = self.place(step, frame) {
                return Some((step, matured, done, jobs));
            }
            frame.option = 0;
            if first.is_some() {
                frame.first += 1;
            } else if frame.optional.is_none() {
                frame.cursor = self.remaining.next[frame.cursor];
            } else {
                frame.at += 1;
            }
        }
    }

    /// The next untried option of one step.
    fn place(&mut self, step: usize, frame: &mut Frame) -> Option<(Undo, Undo, Vec<usize>)> {
        self.budget = self.budget.saturating_sub(1);
        let Step { from, to, act, .. } = &self.steps[step];
        let now = frame.low.max(*from);
        let window = Window {
            // What has no answer is placed where it is needed; it may have happened long before.
            from: if *to == Nanos::MAX { *from } else { now },
            to: frame.horizon,
            alone: (*from, *to),
        };
        let matured = self.tube.matured(now);
        let matured = self.tube.apply(&matured);
        let options = self.tube.options(act, window);
        if frame.option == 0 && frame.optional.is_none() && *to != Nanos::MAX {
            frame.touched.extend(act.job());
            frame.all |= act.is_about_the_tube();
            frame.buries |= matches!(act, Act::Bury { .. });
            if let Err(blamed) = &options {
                frame.touched.extend(blamed);
            }
        }
        if step == frame.urgent
            && let Err(blamed) = &options
        {
            let own = act.job().into_iter();
            frame
                .against
                .get_or_insert_default()
                .extend(own.chain(blamed.iter().copied()));
        }
        let options = options.unwrap_or_default();
        while let Some(option) = options.get(frame.option) {
            frame.option += 1;
            let done = self.tube.apply(option);
            if self.seen.insert(self.set ^ mark(step) ^ self.tube.hash()) {
                let jobs = option.jobs().chain(act.job()).collect();
                return Some((matured, done, jobs));
            }
            self.tube.take_back(done);
        }
        self.tube.take_back(matured);
        None
    }

    /// Steps without an answer that can matter here.
    fn optional_for(&self, frame: &mut Frame) -> Vec<usize> {
        frame.touched.sort_unstable();
        frame.touched.dedup();
        let whole = self.optional.len() - 1;
        let lists: Vec<usize> = if frame.all {
            (0..=whole).collect()
        } else {
            frame.touched.iter().copied().chain([whole]).collect()
        };
        let mut steps: Vec<usize> = lists
            .into_iter()
            .flat_map(|job| &self.optional[job])
            .copied()
            .collect();
        if frame.buries && !frame.all {
            let all = self.optional.iter().flatten().copied();
            let others = all.filter(|step| {
                let Step { act, .. } = &self.steps[*step];
                let job = act.job();
                matches!(act, Act::Bury { .. })
                    && job.is_none_or(|job| !frame.touched.contains(&job))
            });
            steps.extend(others);
        }
        steps
            .into_iter()
            .filter(|step| !self.used[*step] && self.steps[*step].from <= frame.horizon)
            .collect()
    }
}

/// Marks a step in the hash of a set of steps.
fn mark(step: usize) -> u128 {
    // Two rounds of splitmix64.
    let round = |salt: u64| {
        let mut word = (step as u64)
            .wrapping_add(salt)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        u128::from(word ^ (word >> 31))
    };
    (round(0x51) << 64) | round(0xA7)
}
