use std::collections::HashMap;

use super::{Rule, Rules};
use crate::{
    history::{Bounds, JobState, JobStats, MILLI, Nanos, SECOND},
    standstill::Standstill,
};

/// The session of a reserve that was never answered: it may hold a job without anybody knowing.
pub(crate) const NOBODY_KNOWN: u64 = u64::MAX;

/// What never changes of a job.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) id: u64,
    pub(crate) ttr: Nanos,
}

/// A moment that is known only within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: Nanos,
    pub(crate) to: Nanos,
    /// The same, whatever else was placed before.
    pub(crate) alone: (Nanos, Nanos),
}

/// A count that is known only within bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Count {
    least: u32,
    most: u32,
}

impl Count {
    fn raise(&mut self, least: bool, most: bool) {
        self.least += u32::from(least);
        self.most += u32::from(most);
    }

    /// Once seen it is known.
    fn settle(&mut self, seen: u32, spare: u32) -> Option<u32> {
        let beyond = seen.saturating_sub(self.most);
        if seen < self.least || beyond > spare {
            return None;
        }
        *self = Self {
            least: seen,
            most: seen,
        };
        Some(beyond)
    }
}

/// A job as far as the operations ordered so far tell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) phase: Phase,
    pub(crate) priority: u32,
    delay: u32,
    reserves: Count,
    timeouts: Count,
    releases: u32,
    buries: u32,
    kicks: Count,
}

/// Where it is in its life. Bounds of time: not before `from`, not after `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Absent,
    Ready,
    Delayed { from: Nanos, until: Nanos },
    Held { by: u64, from: Nanos, until: Nanos },
    Buried { place: u64 },
    Gone,
}

/// What a job can have become by itself, and not before when.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    pub(crate) job: Job,
    pub(crate) from: Nanos,
    /// Whether an unanswered reserve is needed for it.
    pub(crate) ghost: bool,
}

/// What the model knows of the whole run.
#[derive(Clone, Debug)]
pub(crate) struct World<'a> {
    pub(crate) rules: Rules,
    pub(crate) early: Nanos,
    late: Nanos,
    standstill: &'a Standstill,
    /// Since when a session may be over.
    pub(crate) ends: &'a HashMap<u64, Nanos>,
    /// Whether every bound is to be as narrow as the order found so far makes it. Else states that
    /// differ only by bounds are one, and counts of a job are not looked at.
    pub(crate) exact: bool,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        rules: Rules,
        bounds: Bounds,
        standstill: &'a Standstill,
        ends: &'a HashMap<u64, Nanos>,
        exact: bool,
    ) -> Self {
        Self {
            rules,
            early: bounds.early_ms.saturating_mul(MILLI),
            late: bounds.late_ms.saturating_mul(MILLI),
            standstill,
            ends,
            exact,
        }
    }

    fn end_of(&self, session: u64) -> Nanos {
        self.ends.get(&session).copied().unwrap_or(0)
    }

    /// From when to when something is due that was set going for `time` within `window`.
    fn due(&self, window: Window, time: Nanos) -> (Nanos, Nanos) {
        let (from, to) = if self.exact {
            (window.from, window.to)
        } else {
            window.alone
        };
        let from = from.saturating_add(time).saturating_sub(self.early);
        (from, self.over(to.saturating_add(time)))
    }

    /// When what is due at `moment` at the latest is surely over.
    pub(super) fn over(&self, moment: Nanos) -> Nanos {
        self.standstill.put_off(moment).saturating_add(self.late)
    }
}

impl Job {
    pub(crate) const ABSENT: Self = Self {
        phase: Phase::Absent,
        priority: 0,
        delay: 0,
        reserves: Count { least: 0, most: 0 },
        timeouts: Count { least: 0, most: 0 },
        releases: 0,
        buries: 0,
        kicks: Count { least: 0, most: 0 },
    };

    /// A new job.
    pub(crate) fn put(priority: u32, delay: u32, window: Window, world: &World<'_>) -> Self {
        let mut job = Self {
            priority,
            ..Self::ABSENT
        };
        job.settle(delay, window, world);
        job
    }

    /// Ready, or delayed.
    fn settle(&mut self, delay: u32, window: Window, world: &World<'_>) {
        self.delay = delay;
        self.phase = if delay == 0 {
            Phase::Ready
        } else {
            let (from, until) = world.due(window, Nanos::from(delay) * SECOND);
            Phase::Delayed { from, until }
        };
    }

    /// All that it can be within `window` without anybody doing anything to it. The likelier first.
    /// Whoever asks (`asks`) is there.
    pub(crate) fn stands(
        &self,
        facts: &Facts,
        window: Window,
        ghosts: bool,
        asks: Option<u64>,
        world: &World<'_>,
    ) -> Vec<Stand> {
        let mut stands = Vec::with_capacity(2);
        let mut stand = |job: Job, from: Nanos| {
            stands.push(Stand {
                job,
                from: from.max(window.from),
                ghost: false,
            });
        };
        match self.phase {
            Phase::Delayed { from, until } => {
                if window.from <= until || !world.rules.have(Rule::DelayLate) {
                    stand(self.clone(), window.from);
                }
                if window.to >= from || !world.rules.have(Rule::DelayEarly) {
                    let job = Self {
                        phase: Phase::Ready,
                        ..self.clone()
                    };
                    stand(job, from);
                }
            }
            Phase::Held { by, from, until } => {
                if window.from <= until || !world.rules.have(Rule::HoldLate) {
                    stand(self.clone(), window.from);
                }
                let from = match (
                    world.rules.have(Rule::HoldEarly),
                    world.rules.have(Rule::Hold),
                ) {
                    (true, true) => from,
                    (false, true) => from.saturating_sub(facts.ttr / 2),
                    (_, false) => 0,
                };
                let leaves = if asks == Some(by) {
                    Nanos::MAX
                } else {
                    world.end_of(by)
                };
                let (expired, left) = (window.to >= from, window.to >= leaves);
                if expired || left {
                    let mut job = self.clone();
                    job.phase = Phase::Ready;
                    job.timeouts
                        .raise(!left && world.exact, expired && world.exact);
                    stand(job, if left { leaves.min(from) } else { from });
                }
            }
            _ => stand(self.clone(), window.from),
        }
        if !world.rules.have(Rule::Ended) && self.phase == Phase::Gone {
            let job = Self {
                phase: Phase::Ready,
                ..self.clone()
            };
            stand(job, window.from);
        }
        if !world.rules.have(Rule::Kept) && self.phase != Phase::Absent {
            let job = Self {
                phase: Phase::Gone,
                ..self.clone()
            };
            stand(job, window.from);
        }
        if ghosts && let Some(ready) = stands.iter().find(|stand| stand.job.phase == Phase::Ready) {
            // It may have begun long before anybody could notice.
            let within = Window {
                from: 0,
                to: window.to,
                alone: (0, Nanos::MAX),
            };
            let mut job = ready.job.clone();
            job.hold(NOBODY_KNOWN, facts, within, world);
            let from = ready.from;
            stands.push(Stand {
                job,
                from,
                ghost: true,
            });
        }
        stands
    }

    /// Whether it is ready at `now` whatever happened by itself.
    pub(crate) fn is_surely_ready(&self, now: Nanos, world: &World<'_>) -> bool {
        match self.phase {
            Phase::Ready => true,
            Phase::Delayed { until, .. } => until < now && world.rules.have(Rule::DelayLate),
            Phase::Held { until, .. } => until < now && world.rules.have(Rule::HoldLate),
            _ => false,
        }
    }

    /// When it is ready at the latest, if that is only a matter of time.
    pub(crate) fn due(&self) -> Option<Nanos> {
        match self.phase {
            Phase::Delayed { until, .. } | Phase::Held { until, .. } => Some(until),
            _ => None,
        }
    }

    /// What it is once its time is surely over.
    pub(crate) fn matured(&self, world: &World<'_>) -> Self {
        let mut job = self.clone();
        if let Phase::Held { by, until, .. } = self.phase {
            job.timeouts
                .raise(until < world.end_of(by) && world.exact, world.exact);
        }
        job.phase = Phase::Ready;
        job
    }

    /// A hold begins.
    pub(crate) fn hold(&mut self, by: u64, facts: &Facts, window: Window, world: &World<'_>) {
        let (from, until) = world.due(window, facts.ttr);
        self.phase = Phase::Held { by, from, until };
        self.reserves.raise(world.exact, world.exact);
    }

    /// Whether `session` may settle it.
    pub(crate) fn is_held_by(&self, session: u64, rules: Rules) -> bool {
        match self.phase {
            Phase::Held { by, .. } => {
                by == session || !rules.have(Rule::SingleHold) || !rules.have(Rule::Outdated)
            }
            Phase::Absent | Phase::Gone => false,
            _ => !rules.have(Rule::Outdated),
        }
    }

    pub(crate) fn release(&mut self, priority: u32, delay: u32, window: Window, world: &World<'_>) {
        self.priority = priority;
        self.releases += 1;
        self.settle(delay, window, world);
    }

    pub(crate) fn bury(&mut self, priority: u32, place: u64) {
        self.priority = priority;
        self.buries += 1;
        self.phase = Phase::Buried { place };
    }

    pub(crate) fn kick(&mut self) {
        self.kicks.raise(true, true);
        self.phase = Phase::Ready;
    }

    /// It may have been kicked while it was delayed.
    pub(crate) fn maybe_kick(&mut self) {
        if let Phase::Delayed { from, .. } = &mut self.phase {
            *from = 0;
            self.kicks.raise(false, true);
        }
    }

    /// Starts the hold's time again.
    pub(crate) fn touch(&mut self, by: u64, facts: &Facts, window: Window, world: &World<'_>) {
        let (from, until) = world.due(window, facts.ttr);
        self.phase = Phase::Held { by, from, until };
    }

    /// For telling states apart: the places of buried jobs are told apart by their order.
    pub(crate) fn without_place(&self) -> Self {
        let mut job = self.clone();
        if let Phase::Buried { place } = &mut job.phase {
            *place = 0;
        }
        job
    }

    /// Whether `seen` tells of this job; what was uncertain is known then. The number of unanswered
    /// reserves, of `spare`, that must have taken it unseen.
    pub(crate) fn shows(
        &mut self,
        seen: &JobStats,
        window: Window,
        spare: u32,
        rules: Rules,
    ) -> Option<u32> {
        let (state, least, most) = match self.phase {
            Phase::Absent | Phase::Gone => return None,
            Phase::Ready => (JobState::Ready, 0, 0),
            Phase::Buried { .. } => (JobState::Buried, 0, 0),
            Phase::Delayed { from, until } => (
                JobState::Delayed,
                from.saturating_sub(window.to),
                until.saturating_sub(window.from),
            ),
            Phase::Held { from, until, .. } => (
                JobState::Reserved,
                from.saturating_sub(window.to),
                until.saturating_sub(window.from),
            ),
        };
        if state != seen.state || self.priority != seen.priority.0 || self.delay != seen.delay.0 {
            return None;
        }
        let left = seen.time_left.saturating_mul(SECOND);
        let (early, late) = match state {
            JobState::Delayed => (Rule::DelayEarly, Rule::DelayLate),
            _ => (Rule::HoldEarly, Rule::HoldLate),
        };
        if (left > most && rules.have(late))
            || (left.saturating_add(SECOND) < least && rules.have(early))
        {
            return None;
        }
        if !rules.have(Rule::Counters) {
            return Some(0);
        }
        if self.releases != seen.releases || self.buries != seen.buries {
            return None;
        }
        let ghosts = self.reserves.settle(seen.reserves, spare)?;
        self.timeouts.settle(seen.timeouts, ghosts)?;
        self.kicks.settle(seen.kicks, 0)?;
        Some(ghosts)
    }
}
