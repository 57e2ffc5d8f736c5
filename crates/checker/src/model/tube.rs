use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Bound,
};

use super::{
    Act, Facts, Job, Phase, Rule, Window,
    job::{Stand, World},
};
use crate::history::{Nanos, SECOND};

/// One way in which an operation can have gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(super) jobs: Vec<(usize, Job)>,
    pub(super) ghosts: u32,
    pub(super) pause: Option<Pause>,
    pub(super) places: u64,
    pub(super) kicked: Kicked,
}

/// Jobs of the kick that was placed last, and when that was at the latest. Each is offered to those
/// who wait before the next is kicked, so that a wait may get the first of them and not the best.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Kicked {
    pub(super) jobs: Vec<usize>,
    pub(super) until: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Pause {
    /// Surely paused before.
    from: Nanos,
    /// Perhaps paused until.
    until: Nanos,
}

impl Change {
    /// The jobs that it changes.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = usize> + '_ {
        self.jobs.iter().map(|(job, _)| *job)
    }
}

/// How to take a change back.
#[derive(Debug)]
pub(crate) struct Undo(Change);

/// A tube, or a part of it that holds a single job.
#[derive(Clone, Debug)]
pub(crate) struct Tube<'a> {
    pub(super) world: World<'a>,
    pub(super) facts: &'a [Facts],
    /// Moments of unanswered reserves that may have taken something here, ascending.
    pub(super) ghosts: &'a [Nanos],
    /// Moments of puts whose jobs nobody ever saw, ascending.
    pub(super) strangers: &'a [Nanos],
    /// Whether order among jobs is of no interest.
    pub(super) partial: bool,
    /// How many jobs the tube has, those that are not in here included.
    pub(super) among: usize,
    pub(super) jobs: Vec<Job>,
    pub(super) ready: BTreeSet<(u32, u64, usize)>,
    pub(super) due: BTreeSet<(Nanos, usize)>,
    pub(super) buried: BTreeSet<(u64, usize)>,
    pub(super) delayed: BTreeSet<usize>,
    pub(super) held: BTreeSet<usize>,
    pub(super) ghosts_used: u32,
    pub(super) pause: Pause,
    pub(super) places: u64,
    pub(super) kicked: Kicked,
    pub(super) hash: u128,
}

pub(super) type Options = Result<Vec<Change>, Vec<usize>>;

impl<'a> Tube<'a> {
    pub(crate) fn new(
        world: World<'a>,
        facts: &'a [Facts],
        ghosts: &'a [Nanos],
        strangers: &'a [Nanos],
        partial: bool,
        among: usize,
    ) -> Self {
        Self {
            world,
            facts,
            ghosts,
            strangers,
            partial,
            among,
            jobs: vec![Job::ABSENT; facts.len()],
            ready: BTreeSet::new(),
            due: BTreeSet::new(),
            buried: BTreeSet::new(),
            delayed: BTreeSet::new(),
            held: BTreeSet::new(),
            ghosts_used: 0,
            pause: Pause::default(),
            places: 0,
            kicked: Kicked::default(),
            hash: 0,
        }
    }

    /// Tells this state from any other.
    pub(crate) fn hash(&self) -> u128 {
        let rest = hash_of(&(self.ghosts_used, self.pause, &self.kicked));
        self.hash ^ rest
    }

    /// What time alone has done by `now`, whatever else happened.
    pub(crate) fn matured(&self, now: Nanos) -> Change {
        let mut change = self.unchanged();
        change.kicked.clone_from(&self.kicked);
        for (due, job) in &self.due {
            if *due >= now {
                break;
            }
            let before = &self.jobs[*job];
            if before.is_surely_ready(now, &self.world) {
                change.jobs.push((*job, before.matured(&self.world)));
            }
        }
        change
    }

    pub(crate) fn apply(&mut self, change: &Change) -> Undo {
        let mut undo = Change {
            jobs: Vec::with_capacity(change.jobs.len()),
            ghosts: self.ghosts_used,
            pause: Some(self.pause),
            places: self.places,
            kicked: std::mem::replace(&mut self.kicked, change.kicked.clone()),
        };
        for (job, after) in &change.jobs {
            undo.jobs.push((*job, self.set(*job, after.clone())));
        }
        self.ghosts_used = change.ghosts;
        self.places = change.places;
        if let Some(pause) = change.pause {
            self.pause = pause;
        }
        Undo(undo)
    }

    pub(crate) fn take_back(&mut self, undo: Undo) {
        for (job, before) in undo.0.jobs.into_iter().rev() {
            self.set(job, before);
        }
        self.ghosts_used = undo.0.ghosts;
        self.places = undo.0.places;
        self.kicked = undo.0.kicked;
        if let Some(pause) = undo.0.pause {
            self.pause = pause;
        }
    }

    fn set(&mut self, at: usize, after: Job) -> Job {
        let before = std::mem::replace(&mut self.jobs[at], after);
        for (job, entering) in [(&before, false), (&self.jobs[at], true)] {
            if let Some(due) = job.due() {
                turn(&mut self.due, (due, at), entering);
            }
            match job.phase {
                Phase::Ready => turn(
                    &mut self.ready,
                    (job.priority, self.facts[at].id, at),
                    entering,
                ),
                Phase::Buried { place } => {
                    // Who lies beside whom says in which order they lie.
                    let key = (place, at);
                    let before = self.buried.range(..key).next_back().map(|(_, at)| *at);
                    let after = (Bound::Excluded(key), Bound::Unbounded);
                    let after = self.buried.range(after).next().map(|(_, at)| *at);
                    for pair in [(before, after), (before, Some(at)), (Some(at), after)] {
                        self.hash ^= hash_of(&pair);
                    }
                    turn(&mut self.buried, key, entering);
                }
                Phase::Delayed { .. } => turn(&mut self.delayed, at, entering),
                Phase::Held { .. } => turn(&mut self.held, at, entering),
                Phase::Absent | Phase::Gone => {}
            }
            if *job != Job::ABSENT {
                self.hash ^= hash_of(&(at, job.without_place()));
            }
        }
        before
    }

    /// All ways in which `act` can happen within `window`; else the jobs that stand against it.
    pub(crate) fn options(&self, act: &Act, window: Window) -> Options {
        if (!self.world.rules.have(Rule::Reads) && act.is_read())
            || (!self.world.rules.have(Rule::Refusals) && act.is_refusal())
        {
            return Ok(vec![self.unchanged()]);
        }
        match act {
            Act::Put {
                job,
                priority,
                delay,
            } => {
                if self.jobs[*job].phase != Phase::Absent {
                    return Err(vec![*job]);
                }
                let put = Job::put(*priority, *delay, window, &self.world);
                Ok(vec![self.one(*job, put, 0)])
            }
            Act::Take { job, by, in_turn } => self.take(*job, *by, *in_turn, window),
            Act::NotTaken { job } => self.each(*job, window, |job| {
                matches!(job.phase, Phase::Held { .. } | Phase::Absent | Phase::Gone).then_some(0)
            }),
            Act::Delete {
                job,
                by,
                done: true,
            } => self.each_from(*job, Some(*by), window, |job, _| {
                let free = !matches!(job.phase, Phase::Held { .. } | Phase::Absent | Phase::Gone);
                let may = free || job.is_held_by(*by, self.world.rules);
                job.phase = Phase::Gone;
                may.then_some(0)
            }),
            Act::Delete {
                job,
                by,
                done: false,
            } => self.each_from(*job, Some(*by), window, |job, _| {
                let gone = matches!(job.phase, Phase::Absent | Phase::Gone);
                (gone || Self::is_anothers(job, *by)).then_some(0)
            }),
            Act::Release {
                job,
                by,
                priority,
                delay,
            } => self.settle(*job, *by, window, |job, window| {
                job.release(*priority, *delay, window, &self.world);
            }),
            Act::Bury { job, by, priority } => self.settle(*job, *by, window, |job, _| {
                job.bury(*priority, self.places);
            }),
            Act::Touch { job, by } => {
                let facts = &self.facts[*job];
                self.settle(*job, *by, window, |job, window| {
                    job.touch(*by, facts, window, &self.world);
                })
            }
            Act::NotHeld { job, by } => self.each_from(*job, Some(*by), window, |job, _| {
                (!matches!(job.phase, Phase::Held { .. }) || Self::is_anothers(job, *by))
                    .then_some(0)
            }),
            Act::KickJob { job, done: true } => self.each(*job, window, |job| {
                let may = matches!(job.phase, Phase::Buried { .. } | Phase::Delayed { .. });
                job.kick();
                may.then_some(0)
            }),
            Act::KickJob { job, done: false } => self.each(*job, window, |job| {
                (!matches!(job.phase, Phase::Buried { .. } | Phase::Delayed { .. })).then_some(0)
            }),
            Act::Kick { bound, count } => self.kick(*bound, *count, window),
            Act::See { job, there } => self.each(*job, window, |job| {
                (matches!(job.phase, Phase::Absent | Phase::Gone) != *there).then_some(0)
            }),
            Act::SeeHead { head, job } => self.see_head(*head, *job, window),
            Act::Stats {
                job, seen: None, ..
            } => self.each(*job, window, |job| {
                matches!(job.phase, Phase::Absent | Phase::Gone).then_some(0)
            }),
            Act::Stats {
                job,
                seen: Some(seen),
                ..
            } => {
                let spare = self.spare_ghosts(window);
                self.each(*job, window, |job| {
                    job.shows(seen, window, spare, self.world.rules)
                })
            }
            Act::Counts { seen } => self.counts(seen, window),
            Act::Empty => {
                if self.may_be_paused(window) || !self.world.rules.have(Rule::Emptiness) {
                    return Ok(vec![self.unchanged()]);
                }
                self.none_better(None, &[], window)
            }
            Act::Pause { delay, firm } => {
                let pause = Nanos::from(*delay) * SECOND;
                let (asked, heard) = window.alone;
                let from = asked.saturating_add(pause).saturating_sub(self.world.early);
                let until = self.world.over(heard.saturating_add(pause));
                let mut change = self.unchanged();
                change.pause = Some(match (*delay, *firm) {
                    (0, _) => Pause::default(),
                    (_, true) => Pause { from, until },
                    (_, false) => Pause { from: 0, until },
                });
                Ok(vec![change])
            }
        }
    }

    fn is_anothers(job: &Job, session: u64) -> bool {
        matches!(job.phase, Phase::Held { by, .. } if by != session)
    }

    pub(super) fn unchanged(&self) -> Change {
        Change {
            ghosts: self.ghosts_used,
            places: self.places + 1,
            ..Change::default()
        }
    }

    pub(super) fn one(&self, at: usize, job: Job, ghosts: u32) -> Change {
        let mut change = self.unchanged();
        if self.jobs[at] != job {
            change.jobs.push((at, job));
        }
        change.ghosts += ghosts;
        change
    }

    /// Unanswered reserves that may have happened by then and explain nothing yet.
    pub(super) fn spare_ghosts(&self, window: Window) -> u32 {
        let asked = self.ghosts.partition_point(|from| *from <= window.to);
        u32::try_from(asked)
            .unwrap_or(u32::MAX)
            .saturating_sub(self.ghosts_used)
    }

    pub(super) fn stands(&self, at: usize, window: Window, asks: Option<u64>) -> Vec<Stand> {
        let ghosts = self.spare_ghosts(window) > 0;
        self.jobs[at].stands(&self.facts[at], window, ghosts, asks, &self.world)
    }

    /// For every state that the job may be in: what `act` makes of it and how many unanswered
    /// reserves that needs, or `None` if it cannot be.
    pub(super) fn each(
        &self,
        at: usize,
        window: Window,
        act: impl Fn(&mut Job) -> Option<u32>,
    ) -> Options {
        self.each_from(at, None, window, |job, _| act(job))
    }

    fn each_from(
        &self,
        at: usize,
        asks: Option<u64>,
        window: Window,
        act: impl Fn(&mut Job, Window) -> Option<u32>,
    ) -> Options {
        let mut options = Vec::new();
        for stand in self.stands(at, window, asks) {
            let mut job = stand.job;
            let within = Window {
                from: stand.from.min(window.to),
                ..window
            };
            if let Some(ghosts) = act(&mut job, within) {
                options.push(self.one(at, job, ghosts + u32::from(stand.ghost)));
            }
        }
        some_or(options, || vec![at])
    }

    fn settle(
        &self,
        at: usize,
        by: u64,
        window: Window,
        act: impl Fn(&mut Job, Window),
    ) -> Options {
        self.each_from(at, Some(by), window, |job, window| {
            let may = job.is_held_by(by, self.world.rules);
            act(job, window);
            may.then_some(0)
        })
    }

    fn take(&self, at: usize, by: u64, in_turn: bool, window: Window) -> Options {
        if in_turn && window.to < self.pause.from && self.world.rules.have(Rule::Pauses) {
            return Err(vec![at]);
        }
        let taken = self.each_from(at, Some(by), window, |job, within| {
            let may = match job.phase {
                Phase::Ready => true,
                Phase::Delayed { .. } | Phase::Buried { .. } => !in_turn,
                Phase::Held { .. } => !self.world.rules.have(Rule::SingleHold),
                Phase::Absent | Phase::Gone => false,
            };
            job.hold(by, &self.facts[at], within, &self.world);
            may.then_some(0)
        })?;
        if !in_turn || !self.world.rules.have(Rule::Order) {
            return Ok(taken);
        }
        let better = (self.jobs[at].priority, self.facts[at].id);
        let waited = self.kicked.jobs.contains(&at) && window.from <= self.kicked.until;
        let excused = if waited {
            self.kicked.jobs.as_slice()
        } else {
            &[]
        };
        let cleared = self.none_better(Some(better), excused, window)?;
        let mut options = Vec::new();
        for clear in &cleared {
            for take in &taken {
                let mut both = clear.clone();
                both.kicked.clone_from(&self.kicked);
                both.jobs.extend(take.jobs.iter().cloned());
                both.ghosts += take.ghosts - self.ghosts_used;
                options.push(both);
            }
        }
        Ok(options)
    }

    /// That nothing is ready, or nothing better: what is must have been taken by reserves that were
    /// never answered.
    pub(super) fn none_better(
        &self,
        than: Option<(u32, u64)>,
        excused: &[usize],
        window: Window,
    ) -> Options {
        if self.partial {
            return Ok(vec![self.unchanged()]);
        }
        let there: Vec<_> = self
            .ready
            .iter()
            .take_while(|(priority, id, _)| than.is_none_or(|than| (*priority, *id) < than))
            .map(|(_, _, at)| *at)
            .filter(|at| !excused.contains(at))
            .take(1 + self.spare_ghosts(window) as usize)
            .collect();
        if there.len() > self.spare_ghosts(window) as usize {
            return Err(there);
        }
        let mut change = self.unchanged();
        for at in there {
            if let Some(ghost) = self
                .stands(at, window, None)
                .into_iter()
                .find(|stand| stand.ghost)
            {
                change.jobs.push((at, ghost.job));
                change.ghosts += 1;
            }
        }
        Ok(vec![change])
    }

    fn may_be_paused(&self, window: Window) -> bool {
        window.from <= self.pause.until
    }
}

fn turn<T: Ord>(set: &mut BTreeSet<T>, member: T, entering: bool) {
    if entering {
        set.insert(member);
    } else {
        set.remove(&member);
    }
}

pub(super) fn some_or(options: Vec<Change>, blamed: impl FnOnce() -> Vec<usize>) -> Options {
    if options.is_empty() {
        Err(blamed())
    } else {
        Ok(options)
    }
}

/// Two fixed 64-bit hashes side by side: enough that two states are never taken for one.
fn hash_of(value: &impl Hash) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        value.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    (half(1) << 64) | half(2)
}
