use std::collections::BTreeMap;

use trellis_types::{JobId, Priority, Seconds, Timestamp};

use crate::{JobRow, JobState, TubeId};

/// A job's header, packed: there may be hundreds of millions. Who holds it stands in
/// `Machine::holds`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) order: u64,
    pub(super) tube: TubeId,
    pub(super) created: Timestamp,
    pub(super) standing: Standing,
    pub(super) priority: Priority,
    pub(super) delay: Seconds,
    pub(super) ttr: Seconds,
    pub(super) reserves: u32,
    pub(super) timeouts: u32,
    pub(super) releases: u32,
    pub(super) buries: u32,
    pub(super) kicks: u32,
    pub(super) body_bytes: u32,
    pub(super) body_crc: u32,
}

/// [`JobState`] without the holder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Standing {
    Ready,
    Delayed(Timestamp),
    Reserved,
    /// With the sequence of the burial.
    Buried(u64),
}

/// Where a ready job stands in its tube: the smallest is served first. `order` is the id for a
/// put, which makes this beanstalkd's (pri, id); the id keeps two of equal order apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) priority: Priority,
    pub(super) order: u64,
    pub(super) job: JobId,
}

impl Job {
    pub(super) fn place(&self) -> Place {
        Place {
            priority: self.priority,
            order: self.order,
            job: self.id,
        }
    }

    pub(super) fn row(&self, state: JobState) -> JobRow {
        JobRow {
            id: self.id,
            order: self.order,
            tube: self.tube,
            priority: self.priority,
            delay: self.delay,
            ttr: self.ttr,
            created: self.created,
            state,
            reserves: self.reserves,
            timeouts: self.timeouts,
            releases: self.releases,
            buries: self.buries,
            kicks: self.kicks,
            body_bytes: self.body_bytes,
            body_crc: self.body_crc,
        }
    }

    pub(super) fn from_row(row: &JobRow) -> Self {
        Self {
            id: row.id,
            order: row.order,
            tube: row.tube,
            created: row.created,
            standing: Standing::of(row.state),
            priority: row.priority,
            delay: row.delay,
            ttr: row.ttr,
            reserves: row.reserves,
            timeouts: row.timeouts,
            releases: row.releases,
            buries: row.buries,
            kicks: row.kicks,
            body_bytes: row.body_bytes,
            body_crc: row.body_crc,
        }
    }
}

impl Standing {
    pub(super) fn of(state: JobState) -> Self {
        match state {
            JobState::Ready => Self::Ready,
            JobState::Delayed { until } => Self::Delayed(until),
            JobState::Reserved { .. } => Self::Reserved,
            JobState::Buried { sequence } => Self::Buried(sequence),
        }
    }
}

/// All jobs by id, in pages of neighbouring ids.
///
/// Ids are given out in order, and a `BTreeMap` that only grows at its end leaves its nodes half
/// empty: with headers in it, that would be 80 bytes lost per job. A page of neighbours is full.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Jobs {
    /// Never an empty page; ascending ids within each.
    pages: BTreeMap<u64, Vec<Job>>,
    len: u64,
}

/// Ids per page: 2 to the power of this. More would make removals dearer, less the map larger.
const PAGE_BITS: u32 = 5;

impl Jobs {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Job> {
        let page = self.pages.get(&page_of(id))?;
        let at = position(page, id)?;
        page.get(at)
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        let page = self.pages.get_mut(&page_of(id))?;
        let at = position(page, id)?;
        page.get_mut(at)
    }

    /// Adds a job. False, and no change, if there is one of this id.
    pub(super) fn insert(&mut self, job: Job) -> bool {
        let page = self.pages.entry(page_of(job.id)).or_default();
        match page.binary_search_by_key(&job.id, |other| other.id) {
            Ok(_) => false,
            Err(at) => {
                page.insert(at, job);
                self.len = self.len.saturating_add(1);
                true
            }
        }
    }

    pub(super) fn remove(&mut self, id: JobId) -> Option<Job> {
        let page = self.pages.get_mut(&page_of(id))?;
        let at = position(page, id)?;
        let job = page.remove(at);
        self.len = self.len.saturating_sub(1);
        if page.is_empty() {
            self.pages.remove(&page_of(id));
        } else if page.len() <= page.capacity() / 4 {
            // A few old survivors must not keep whole pages alive.
            page.shrink_to_fit();
        }
        Some(job)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.pages.values().flatten()
    }
}

fn page_of(id: JobId) -> u64 {
    id.0 >> PAGE_BITS
}

/// Where a job stands in its page. Mostly the page is full or filling up, or only its oldest are
/// gone; then its place follows from the id, and the headers between need not be looked at.
fn position(page: &[Job], id: JobId) -> Option<usize> {
    let is_at = |at: &usize| page.get(*at).is_some_and(|job| job.id == id);
    let slot = usize::try_from(id.0 % (1 << PAGE_BITS)).ok()?;
    Some(slot)
        .filter(is_at)
        .or_else(|| {
            let behind = page.last()?.id.0.checked_sub(id.0)?;
            let behind = usize::try_from(behind).ok()?;
            page.len()
                .checked_sub(behind.saturating_add(1))
                .filter(is_at)
        })
        .or_else(|| page.binary_search_by_key(&id, |job| job.id).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64) -> Job {
        Job {
            id: JobId(id),
            order: id,
            tube: TubeId(1),
            created: Timestamp(0),
            standing: Standing::Ready,
            priority: Priority(0),
            delay: Seconds(0),
            ttr: Seconds(1),
            reserves: 0,
            timeouts: 0,
            releases: 0,
            buries: 0,
            kicks: 0,
            body_bytes: 0,
            body_crc: 0,
        }
    }

    /// The budget is 150 bytes for a ready job: 88 here, about 48 for its place in the tube.
    #[test]
    fn a_header_stays_small() {
        assert_eq!(size_of::<Job>(), 88);
        assert_eq!(size_of::<Place>(), 24);
    }

    #[test]
    fn jobs_are_found_and_listed_by_id_whatever_the_order_of_arrival() {
        let mut jobs = Jobs::default();
        for id in [70, 3, 1, 32, 31, 64, 2] {
            assert!(jobs.insert(job(id)));
        }
        assert!(!jobs.insert(job(32)), "an id names one job");
        assert_eq!(jobs.len(), 7);
        let listed: Vec<u64> = jobs.iter().map(|job| job.id.0).collect();
        assert_eq!(listed, [1, 2, 3, 31, 32, 64, 70]);

        assert_eq!(jobs.remove(JobId(31)).map(|job| job.id), Some(JobId(31)));
        assert_eq!(jobs.remove(JobId(31)), None);
        assert!(jobs.get(JobId(31)).is_none());
        assert!(jobs.get_mut(JobId(32)).is_some());
        assert_eq!(jobs.len(), 6);
    }

    #[test]
    fn a_job_is_found_whichever_of_its_neighbours_are_gone() {
        for gone in [&[0_u64, 1, 2][..], &[31, 30], &[5, 6, 20], &[0, 9, 31], &[]] {
            let mut jobs = Jobs::default();
            for id in 0..64 {
                jobs.insert(job(id));
            }
            for id in gone {
                assert_eq!(jobs.remove(JobId(*id)).map(|job| job.id.0), Some(*id));
            }
            for id in 0..70 {
                let found = jobs.get(JobId(id)).map(|job| job.id.0);
                let stays = id < 64 && !gone.contains(&id);
                assert_eq!(found, stays.then_some(id), "without {gone:?}");
                assert_eq!(jobs.get_mut(JobId(id)).is_some(), stays);
            }
        }
    }

    #[test]
    fn nothing_is_left_of_a_page_whose_jobs_are_gone() {
        let mut jobs = Jobs::default();
        for id in 0..1_000 {
            jobs.insert(job(id));
        }
        for id in 0..1_000 {
            jobs.remove(JobId(id));
        }
        assert_eq!(jobs, Jobs::default());
    }

    #[test]
    fn a_few_survivors_keep_no_whole_page() {
        let mut jobs = Jobs::default();
        for id in 0..32 {
            jobs.insert(job(id));
        }
        for id in 1..32 {
            jobs.remove(JobId(id));
        }
        assert!(jobs.pages.values().map(Vec::capacity).sum::<usize>() < 4);
    }
}
