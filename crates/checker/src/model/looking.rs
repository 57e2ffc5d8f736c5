use super::{
    Head, Phase, Rule, Window,
    tube::{Options, Tube},
};
use crate::history::TubeStats;

impl Tube<'_> {
    /// A peek at one end of the tube.
    pub(super) fn see_head(&self, head: Head, at: Option<usize>, window: Window) -> Options {
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

    /// Whether a job is still delayed whatever happened by itself.
    pub(super) fn is_surely_delayed(&self, at: usize, window: Window) -> bool {
        matches!(self.jobs[at].phase, Phase::Delayed { from, .. } if from > window.to)
    }

    /// `stats-tube`: each count within what can be there, and together as many as there are.
    pub(super) fn counts(&self, seen: &TubeStats, window: Window) -> Options {
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
            let side = if self.held.contains(at) {
                &mut held
            } else {
                &mut delayed
            };
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
        let all = seen.ready + seen.delayed + seen.reserved + seen.buried;
        let there = self.ready.len() + self.delayed.len() + self.held.len() + self.buried.len();
        if within(seen.ready, ready)
            && within(seen.delayed, delayed)
            && within(seen.reserved, held)
            && seen.buried == self.buried.len() as u64
            && within(all, (there as u64, there as u64))
        {
            return unchanged;
        }
        Err(self.delayed.iter().chain(&self.held).copied().collect())
    }
}
