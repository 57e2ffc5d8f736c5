use super::{
    Phase, Window,
    tube::{Options, Tube, some_or},
};

impl Tube<'_> {
    /// `kick`: buried jobs in the order of their burial, or else delayed ones.
    pub(super) fn kick(&self, bound: u32, count: Option<u32>, window: Window) -> Options {
        if bound == 0 {
            return Ok(vec![self.unchanged()]);
        }
        if self.partial || self.jobs.len() < self.among {
            return self.kick_perhaps(count, window);
        }
        let mut change = self.unchanged();
        change.kicked.until = window.to;
        if !self.buried.is_empty() {
            let there = u32::try_from(self.buried.len())
                .unwrap_or(u32::MAX)
                .min(bound);
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
}
