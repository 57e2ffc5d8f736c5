//! The machine as rows, and back.

use std::collections::BTreeSet;

use trellis_types::{
    OriginId, Seconds, SessionId, TubeName, limits,
    seeded::{Bug, planted},
};

use super::{
    Hold, Machine,
    jobs::{Job, Jobs, Standing},
    origin::Live,
    tube::Tube,
};
use crate::{JobRow, JobState, Key, MetaRow, OriginRow, Row, TubeId, TubeRow, WaitRow};

/// Why some rows are no image of a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadImage(pub String);

impl Machine {
    /// The row of this key as it is now; `None` if there is none (any more).
    pub fn row(&self, key: Key) -> Option<Row> {
        match key {
            Key::Meta => Some(Row::Meta(self.meta.clone())),
            Key::Tube(id) => self.tubes.get(id).map(|tube| Row::Tube(tube.row(id))),
            Key::Job(id) => self.jobs.get(id).map(|job| self.job_row(job)),
            Key::Origin(node) => self.origin_row(node).map(Row::Origin),
            Key::Wait(session) => self
                .session(session)?
                .wait
                .as_ref()
                .map(|wait| Row::Wait(wait.row(session))),
        }
    }

    /// All rows: the whole replicated state but the bodies.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let tubes = self.tubes.iter().map(|(id, tube)| Row::Tube(tube.row(id)));
        let origins = self
            .runs
            .keys()
            .filter_map(|node| self.origin_row(*node))
            .map(Row::Origin);
        let jobs = self.jobs.iter().map(|job| self.job_row(job));
        let waits = self.origins.iter().flat_map(|(origin, live)| {
            live.sessions.iter().filter_map(|(connection, session)| {
                let id = SessionId {
                    origin: *origin,
                    connection: *connection,
                };
                session.wait.as_ref().map(|wait| Row::Wait(wait.row(id)))
            })
        });
        std::iter::once(Row::Meta(self.meta.clone()))
            .chain(tubes)
            .chain(origins)
            .chain(jobs)
            .chain(waits)
    }

    fn job_row(&self, job: &Job) -> Row {
        Row::Job(job.row(self.state_of(job)))
    }

    /// Builds the machine of which `rows` are the image, in whatever order they come: same
    /// digest, same future. No rows at all are a new machine. The row of `default` may be missing
    /// as long as it has never changed, because only changed rows reach the disk.
    ///
    /// # Errors
    ///
    /// [`BadImage`] if no machine can have this image: a key twice, something that refers to
    /// nothing, numbers beyond the counters that gave them out, a waiter beside a job that it
    /// should have got.
    pub fn load(rows: impl IntoIterator<Item = Row>) -> Result<Self, BadImage> {
        let mut loading = Loading {
            machine: Self::bare(MetaRow::default()),
            has_meta: false,
            is_empty: true,
            waits: Vec::new(),
        };
        for row in rows {
            loading.is_empty = false;
            loading.take(row)?;
        }
        if loading.is_empty {
            return Ok(Self::new());
        }
        loading.finish()
    }
}

/// A machine of which not all rows have been seen.
struct Loading {
    /// Holds the rows; its indexes are empty until the end.
    machine: Machine,
    has_meta: bool,
    is_empty: bool,
    waits: Vec<WaitRow>,
}

impl Loading {
    fn take(&mut self, row: Row) -> Result<(), BadImage> {
        let key = row.key();
        let is_new = match row {
            Row::Meta(meta) => {
                self.machine.meta = meta;
                !std::mem::replace(&mut self.has_meta, true)
            }
            Row::Tube(row) => self.take_tube(row)?,
            Row::Job(row) => self.take_job(&row),
            Row::Origin(row) => self.take_origin(&row)?,
            // Twice the same session is found when they are put in line.
            Row::Wait(row) => {
                self.waits.push(row);
                true
            }
        };
        ensure(is_new, || format!("{key:?} is there twice"))
    }

    fn take_tube(&mut self, row: TubeRow) -> Result<bool, BadImage> {
        let id = row.id;
        ensure(row.references.is_sorted_by(|a, b| a < b), || {
            format!("the references of tube {} are not in order", row.name)
        })?;
        ensure(
            self.machine.names.insert(row.name.clone(), id).is_none(),
            || format!("two tubes have the name {}", row.name),
        )?;
        Ok(self.machine.tubes.insert(id, Tube::from_row(row)))
    }

    fn take_job(&mut self, row: &JobRow) -> bool {
        if let JobState::Reserved {
            holder,
            deadline,
            sequence,
        } = row.state
        {
            self.machine.holds.insert(
                row.id,
                Hold {
                    holder,
                    deadline,
                    sequence,
                },
            );
        }
        self.machine.jobs.insert(Job::from_row(row))
    }

    fn take_origin(&mut self, row: &OriginRow) -> Result<bool, BadImage> {
        let origin = OriginId {
            node: row.node,
            run: row.highest_run,
        };
        if row.open {
            let live = Live {
                last_seq: row.last_seq,
                suspended: row.suspended,
                ..Live::default()
            };
            self.machine.origins.insert(origin, live);
        } else {
            ensure(row.last_seq == 0 && !row.suspended, || {
                format!("origin {origin} is over but not at rest")
            })?;
        }
        Ok(self
            .machine
            .runs
            .insert(row.node, row.highest_run)
            .is_none())
    }

    fn finish(mut self) -> Result<Machine, BadImage> {
        ensure(self.has_meta, || {
            "there are rows but no counters".to_owned()
        })?;
        if planted(Bug::IdCounterNotInSnapshot) {
            let last = self.machine.jobs.iter().last();
            self.machine.meta.next_job = last.map_or(1, |job| job.id.0.saturating_add(1));
        }
        self.check_meta()?;
        self.add_default_tube()?;
        self.index_tubes()?;
        self.index_jobs()?;
        self.index_waits()?;
        let mut machine = self.machine;
        machine.check_settled()?;
        machine.sum = machine.full_sum();
        Ok(machine)
    }

    fn check_meta(&self) -> Result<(), BadImage> {
        let meta = &self.machine.meta;
        // Half of the range is far beyond what can ever be counted.
        let sound = 1..=u64::MAX / 2;
        ensure(
            (1..=limits::JOB_ID_MAX.saturating_add(1)).contains(&meta.next_job),
            || format!("the next job id cannot be {}", meta.next_job),
        )?;
        ensure(
            sound.contains(&meta.next_tube) && sound.contains(&meta.next_sequence),
            || {
                format!(
                    "the next numbers cannot be {} and {}",
                    meta.next_tube, meta.next_sequence
                )
            },
        )?;
        ensure(meta.retired.is_sorted_by(|a, b| a < b), || {
            "the retired nodes are not in order".to_owned()
        })?;
        let back = self
            .machine
            .origins
            .keys()
            .find(|origin| self.machine.is_retired(origin.node));
        ensure(back.is_none(), || {
            format!("{back:?} is open although its node is retired")
        })
    }

    fn add_default_tube(&mut self) -> Result<(), BadImage> {
        let name = TubeName::default_tube();
        if self.machine.names.contains(&name) {
            return Ok(());
        }
        let id = TubeId(1);
        self.machine.names.insert(name.clone(), id);
        ensure(self.machine.tubes.insert(id, Tube::new(name)), || {
            "the tube default is missing".to_owned()
        })
    }

    fn index_tubes(&mut self) -> Result<(), BadImage> {
        let machine = &mut self.machine;
        for (id, tube) in machine.tubes.iter() {
            ensure((1..machine.meta.next_tube).contains(&id.0), || {
                format!("tube {} has a number that was never given out", tube.name)
            })?;
            for origin in &tube.references {
                let live = machine.origins.get_mut(origin).ok_or_else(|| {
                    BadImage(format!(
                        "tube {} is referred to by {origin}, not open",
                        tube.name
                    ))
                })?;
                live.references.insert(id);
            }
            if tube.is_paused() {
                machine.due.pauses.insert((tube.pause_until, id));
            }
        }
        Ok(())
    }

    fn index_jobs(&mut self) -> Result<(), BadImage> {
        let machine = &mut self.machine;
        let next_sequence = machine.meta.next_sequence;
        let jobs: Jobs = std::mem::take(&mut machine.jobs);
        let holds = std::mem::take(&mut machine.holds);
        for job in jobs.iter() {
            let id = job.id;
            ensure((1..machine.meta.next_job).contains(&id.0), || {
                format!("job {id} has an id that was never given out")
            })?;
            ensure(job.ttr >= Seconds(1), || format!("job {id} has no TTR"))?;
            let tube = machine
                .tubes
                .get(job.tube)
                .ok_or_else(|| BadImage(format!("job {id} is in no tube")))?;
            let state = match (job.standing, holds.get(&id)) {
                (Standing::Ready, _) => JobState::Ready,
                (Standing::Delayed(until), _) => JobState::Delayed { until },
                (Standing::Buried(sequence), _) => {
                    ensure(
                        sequence < next_sequence && !tube.buried.contains_key(&sequence),
                        || format!("job {id} has no place among the buried"),
                    )?;
                    JobState::Buried { sequence }
                }
                (Standing::Reserved, Some(hold)) => {
                    let Hold {
                        holder,
                        deadline,
                        sequence,
                    } = *hold;
                    let live = machine
                        .origins
                        .get(&holder.origin)
                        .ok_or_else(|| BadImage(format!("job {id} is held by {holder}, gone")))?;
                    let session = live.sessions.get(&holder.connection);
                    ensure(
                        sequence < next_sequence
                            && !session.is_some_and(|held| held.holds.contains_key(&sequence)),
                        || format!("job {id} has no place among the holds of {holder}"),
                    )?;
                    JobState::Reserved {
                        holder,
                        deadline,
                        sequence,
                    }
                }
                (Standing::Reserved, None) => {
                    return Err(BadImage(format!("job {id} is held by nobody")));
                }
            };
            let bytes = u64::from(job.body_bytes);
            machine.counts.job_bytes = machine.counts.job_bytes.saturating_add(bytes);
            machine.index(job.tube, job.place(), state);
        }
        machine.jobs = jobs;
        if planted(Bug::TtrNotInSnapshot) {
            machine.due.ttr.clear();
        }
        Ok(())
    }

    fn index_waits(&mut self) -> Result<(), BadImage> {
        let machine = &mut self.machine;
        let mut places = BTreeSet::new();
        for wait in &self.waits {
            let session = wait.session;
            ensure(machine.origins.contains_key(&session.origin), || {
                format!("{session} waits but its origin is gone")
            })?;
            ensure(!machine.is_parked(session), || {
                format!("{session} waits twice")
            })?;
            ensure(
                wait.sequence < machine.meta.next_sequence && places.insert(wait.sequence),
                || format!("{session} has no place in line"),
            )?;
            let names: BTreeSet<&TubeName> = wait.tubes.iter().collect();
            ensure(names.len() == wait.tubes.len(), || {
                format!("{session} waits twice for one tube")
            })?;
            machine.stand_in_line(session, wait.sequence, &wait.tubes, wait.until);
        }
        Ok(())
    }
}

pub(super) fn ensure(holds: bool, breach: impl FnOnce() -> String) -> Result<(), BadImage> {
    if holds {
        Ok(())
    } else {
        Err(BadImage(breach()))
    }
}
