use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Bound,
};

use super::{
    Facts, Job, Phase, Rule, Window,
    job::{Stand, World},
};
use crate::history::{JobStats, Nanos, SECOND, TubeStats};

/// What an operation does or sees, as the tube has it. Jobs are named by their place in the tube.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Put {
        job: usize,
        priority: u32,
        delay: u32,
    },
    /// `RESERVED`: by a reserve if `in_turn`, else by a reserve-job.
    Take {
        job: usize,
        by: u64,
        in_turn: bool,
    },
    /// A reserve-job that got nothing.
    NotTaken {
        job: usize,
    },
    Delete {
        job: usize,
        by: u64,
        done: bool,
    },
    Release {
        job: usize,
        by: u64,
        priority: u32,
        delay: u32,
    },
    Bury {
        job: usize,
        by: u64,
        priority: u32,
    },
    Touch {
        job: usize,
        by: u64,
    },
    /// A release, bury or touch that got `NOT_FOUND`.
    NotHeld {
        job: usize,
        by: u64,
    },
    KickJob {
        job: usize,
        done: bool,
    },
    /// `count` is `None` if nobody heard it.
    Kick {
        bound: u32,
        count: Option<u32>,
    },
    /// `peek`.
    See {
        job: usize,
        there: bool,
    },
    SeeHead {
        head: Head,
        job: Option<usize>,
    },
    Stats {
        job: usize,
        seen: Option<JobStats>,
        /// Whether everything was over then.
        last: bool,
    },
    Counts {
        seen: TubeStats,
    },
    /// `TIMED_OUT`.
    Empty,
    /// `firm` if the pause cannot have been lost together with the tube.
    Pause {
        delay: u32,
        firm: bool,
    },
}

/// Which end of a tube a peek looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Ready,
    Delayed,
    Buried,
}

impl Act {
    /// The job concerned, if it is one.
    pub(crate) fn job(&self) -> Option<usize> {
        match self {
            Self::Put { job, .. }
            | Self::Take { job, .. }
            | Self::NotTaken { job }
            | Self::Delete { job, .. }
            | Self::Release { job, .. }
            | Self::Bury { job, .. }
            | Self::Touch { job, .. }
            | Self::NotHeld { job, .. }
            | Self::KickJob { job, .. }
            | Self::See { job, .. }
            | Self::Stats { job, .. } => Some(*job),
            Self::SeeHead { job, .. } => *job,
            Self::Kick { .. } | Self::Counts { .. } | Self::Empty | Self::Pause { .. } => None,
        }
    }

    /// Whether it leaves a mark on its job that somebody may see much later.
    pub(crate) fn leaves_a_mark(&self) -> bool {
        matches!(
            self,
            Self::Release { .. } | Self::Bury { .. } | Self::Take { .. } | Self::KickJob { .. }
        )
    }

    /// Whether any job of the tube can decide how it goes.
    pub(crate) fn is_about_the_tube(&self) -> bool {
        matches!(self, Self::Kick { .. } | Self::SeeHead { .. } | Self::Counts { .. })
    }

    /// Whether it looks at what is there while the run goes on.
    pub(crate) fn is_read(&self) -> bool {
        matches!(
            self,
            Self::See { .. }
                | Self::SeeHead { .. }
                | Self::Stats { last: false, .. }
                | Self::Counts { .. }
                | Self::Empty
        )
    }

    /// Whether it was to change something and did not.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NotTaken { .. }
                | Self::NotHeld { .. }
                | Self::Delete { done: false, .. }
                | Self::KickJob { done: false, .. }
        )
    }
}

/// One way in which an operation can have gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    jobs: Vec<(usize, Job)>,
    ghosts: u32,
    pause: Option<Pause>,
    places: u64,
    kicked: Kicked,
}

/// Jobs of the kick that was placed last, and when that was at the latest. Each is offered to those
/// who wait before the next is kicked, so that a wait may get the first of them and not the best.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Kicked {
    jobs: Vec<usize>,
    until: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Pause {
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
    world: World<'a>,
    facts: &'a [Facts],
    /// Moments of unanswered reserves that may have taken something here, ascending.
    ghosts: &'a [Nanos],
    /// Moments of puts whose jobs nobody ever saw, ascending.
    strangers: &'a [Nanos],
    /// Whether order among jobs is of no interest.
    partial: bool,
    /// How many jobs the tube has, those that are not in here included.
    among: usize,
    jobs: Vec<Job>,
    ready: BTreeSet<(u32, u64, usize)>,
    due: BTreeSet<(Nanos, usize)>,
    buried: BTreeSet<(u64, usize)>,
    delayed: BTreeSet<usize>,
    held: BTreeSet<usize>,
    ghosts_used: u32,
    pause: Pause,
    places: u64,
    kicked: Kicked,
    hash: u128,
}

type Options = Result<Vec<Change>, Vec<usize>>;

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
            Act::Delete { job, by, done: true } => self.each_from(*job, Some(*by), window, |job, _| {
                let free = !matches!(
                    job.phase,
                    Phase::Held { .. } | Phase::Absent | Phase::Gone
                );
                let may = free || job.is_held_by(*by, self.world.rules);
                job.phase = Phase::Gone;
                may.then_some(0)
            }),
            Act::Delete { job, by, done: false } => self.each_from(*job, Some(*by), window, |job, _| {
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
                let (from, until) = (
                    window.alone.0.saturating_add(pause).saturating_sub(self.world.early),
                    window.alone.1.saturating_add(pause).saturating_add(self.world.late),
                );
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

    fn unchanged(&self) -> Change {
        Change {
            ghosts: self.ghosts_used,
            places: self.places + 1,
            ..Change::default()
        }
    }

    fn one(&self, at: usize, job: Job, ghosts: u32) -> Change {
        let mut change = self.unchanged();
        if self.jobs[at] != job {
            change.jobs.push((at, job));
        }
        change.ghosts += ghosts;
        change
    }

    /// Unanswered reserves that may have happened by then and explain nothing yet.
    fn spare_ghosts(&self, window: Window) -> u32 {
        let asked = self.ghosts.partition_point(|from| *from <= window.to);
        u32::try_from(asked).unwrap_or(u32::MAX).saturating_sub(self.ghosts_used)
    }

    fn stands(&self, at: usize, window: Window, asks: Option<u64>) -> Vec<Stand> {
        let ghosts = self.spare_ghosts(window) > 0;
        self.jobs[at].stands(&self.facts[at], window, ghosts, asks, &self.world)
    }

    /// For every state that the job may be in: what `act` makes of it and how many unanswered
    /// reserves that needs, or `None` if it cannot be.
    fn each(&self, at: usize, window: Window, act: impl Fn(&mut Job) -> Option<u32>) -> Options {
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
        let excused = if waited { self.kicked.jobs.as_slice() } else { &[] };
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
    fn none_better(
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
            if let Some(ghost) = self.stands(at, window, None).into_iter().find(|stand| stand.ghost) {
                change.jobs.push((at, ghost.job));
                change.ghosts += 1;
            }
        }
        Ok(vec![change])
    }

    fn see_head(&self, head: Head, at: Option<usize>, window: Window) -> Options {
        let binding = self.world.rules.have(Rule::Heads);
        match (head, at) {
            (Head::Ready, Some(at)) => {
                let seen = self.each(at, window, |job| (job.phase == Phase::Ready).then_some(0))?;
                if !binding {
                    return Ok(seen);
                }
                let than = (self.jobs[at].priority, self.facts[at].id);
                let cleared = self.none_better(Some(than), &[], window)?;
                Ok(seen
                    .into_iter()
                    .flat_map(|seen| {
                        cleared.iter().map(move |clear| {
                            let mut both = seen.clone();
                            both.jobs.extend(clear.jobs.iter().cloned());
                            both.ghosts += clear.ghosts - self.ghosts_used;
                            both
                        })
                    })
                    .collect())
            }
            (Head::Ready, None) if binding => self.none_better(None, &[], window),
            (Head::Delayed, Some(at)) => self.each(at, window, |job| {
                matches!(job.phase, Phase::Delayed { .. }).then_some(0)
            }),
            (Head::Buried, Some(at)) => {
                let first = self.buried.first().map(|(_, first)| *first);
                let seen = self.each(at, window, |job| {
                    matches!(job.phase, Phase::Buried { .. }).then_some(0)
                })?;
                if binding && !self.partial && first != Some(at) {
                    return Err(first.into_iter().chain([at]).collect());
                }
                Ok(seen)
            }
            (Head::Delayed, None) if binding && !self.partial => {
                let against: Vec<_> = self
                    .delayed
                    .iter()
                    .copied()
                    .filter(|at| self.is_surely_delayed(*at, window))
                    .collect();
                if against.is_empty() {
                    Ok(vec![self.unchanged()])
                } else {
                    Err(against)
                }
            }
            (Head::Buried, None) if binding && !self.partial && !self.buried.is_empty() => {
                Err(self.buried.iter().map(|(_, at)| *at).collect())
            }
            _ => Ok(vec![self.unchanged()]),
        }
    }

    fn is_surely_delayed(&self, at: usize, window: Window) -> bool {
        matches!(self.jobs[at].phase, Phase::Delayed { from, .. } if from > window.to)
    }

    fn kick(&self, bound: u32, count: Option<u32>, window: Window) -> Options {
        if bound == 0 {
            return Ok(vec![self.unchanged()]);
        }
        if self.partial || self.jobs.len() < self.among {
            return self.kick_perhaps(count, window);
        }
        let mut change = self.unchanged();
        change.kicked.until = window.to;
        if !self.buried.is_empty() {
            let there = u32::try_from(self.buried.len()).unwrap_or(u32::MAX).min(bound);
            if count.is_some_and(|count| count != there) {
                return Err(self.buried.iter().map(|(_, at)| *at).collect());
            }
            for (_, at) in self.buried.iter().take(there as usize) {
                let mut job = self.jobs[*at].clone();
                job.kick();
                change.jobs.push((*at, job));
                change.kicked.jobs.push(*at);
            }
            return Ok(vec![change]);
        }
        let there = u32::try_from(self.delayed.len()).unwrap_or(u32::MAX);
        let surely = self
            .delayed
            .iter()
            .filter(|at| self.is_surely_delayed(**at, window))
            .count();
        let surely = u32::try_from(surely).unwrap_or(u32::MAX);
        let unseen = self.strangers.partition_point(|from| *from <= window.to);
        let most = there.saturating_add(u32::try_from(unseen).unwrap_or(u32::MAX));
        if count.is_some_and(|count| count > most.min(bound) || count < surely.min(bound)) {
            return Err(self.delayed.iter().copied().collect());
        }
        for at in &self.delayed {
            let mut job = self.jobs[*at].clone();
            if count == Some(there) && unseen == 0 {
                job.kick();
                change.kicked.jobs.push(*at);
            } else if count != Some(0) {
                // Which ones depends on moments that nobody knows exactly.
                job.maybe_kick();
            }
            change.jobs.push((*at, job));
        }
        Ok(vec![change])
    }

    /// The tube's other jobs are not in here: any of these may have been among those kicked.
    fn kick_perhaps(&self, count: Option<u32>, window: Window) -> Options {
        let mut options = vec![self.unchanged()];
        options[0].kicked.until = window.to;
        for at in 0..self.jobs.len() {
            let mut more = Vec::new();
            for stand in self.stands(at, window, None) {
                let lies = matches!(
                    stand.job.phase,
                    Phase::Buried { .. } | Phase::Delayed { .. }
                );
                let kicked = (lies && count != Some(0)).then(|| {
                    let mut job = stand.job.clone();
                    job.kick();
                    job
                });
                let left = (!stand.ghost && (!lies || count != Some(0))).then_some(stand.job);
                for job in kicked.into_iter().chain(left) {
                    more.extend(options.iter().map(|option| {
                        let mut option = option.clone();
                        if lies && job.phase == Phase::Ready {
                            option.kicked.jobs.push(at);
                        }
                        option.jobs.push((at, job.clone()));
                        option
                    }));
                }
            }
            options = more;
        }
        some_or(options, || (0..self.jobs.len()).collect())
    }

    fn counts(&self, seen: &TubeStats, window: Window) -> Options {
        let unchanged = Ok(vec![self.unchanged()]);
        if self.partial || !self.world.rules.have(Rule::Counts) {
            return unchanged;
        }
        let ghosts = u64::from(self.spare_ghosts(window));
        let mut ready = (self.ready.len() as u64, self.ready.len() as u64);
        let (mut delayed, mut held) = ((0, 0), (0, 0));
        for at in self.delayed.iter().chain(&self.held) {
            let stands = self.stands(*at, window, None);
            let mut known = stands.iter().filter(|stand| !stand.ghost);
            let may_wait = known.clone().any(|stand| stand.job.phase != Phase::Ready);
            let may_be_ready = known.any(|stand| stand.job.phase == Phase::Ready);
            let side = if self.held.contains(at) { &mut held } else { &mut delayed };
            side.1 += u64::from(may_wait);
            side.0 += u64::from(!may_be_ready);
            ready.1 += u64::from(may_be_ready);
            ready.0 += u64::from(!may_wait);
        }
        ready.0 = ready.0.saturating_sub(ghosts);
        held.1 += ghosts;
        let strangers = self.strangers.partition_point(|from| *from <= window.to) as u64;
        let within = |seen: u64, (least, most): (u64, u64)| {
            (least..=most.saturating_add(strangers)).contains(&seen)
        };
        if within(seen.ready, ready)
            && within(seen.delayed, delayed)
            && within(seen.reserved, held)
            && seen.buried == self.buried.len() as u64
        {
            return unchanged;
        }
        Err(self.delayed.iter().chain(&self.held).copied().collect())
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

fn some_or(options: Vec<Change>, blamed: impl FnOnce() -> Vec<usize>) -> Options {
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
