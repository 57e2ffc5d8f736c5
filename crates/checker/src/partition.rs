//! The history by jobs and by tubes: each by itself is small enough to be searched.

use std::collections::{BTreeMap, HashMap};

use trellis_types::{JobId, TubeName};

use crate::{
    Run,
    history::{Body, Call, JobStats, Nanos, Reply, SECOND},
    model::{Act, Facts, Head},
    search::Step,
};

/// Everything that concerns one job.
#[derive(Debug)]
pub(crate) struct JobFile {
    pub(crate) facts: Facts,
    pub(crate) tube: TubeName,
    /// The operation that put it.
    pub(crate) put: usize,
    /// All operations that name it or were given it, the put included, by time.
    pub(crate) ops: Vec<usize>,
}

/// Everything that concerns a tube as a whole.
#[derive(Debug, Default)]
pub(crate) struct TubeFile {
    /// Its jobs, by place in [`Plan::jobs`].
    pub(crate) jobs: Vec<usize>,
    /// Operations that concern no single job.
    pub(crate) ops: Vec<usize>,
    /// When reserves were asked that nobody saw an answer of.
    pub(crate) ghosts: Vec<Nanos>,
    /// When puts were asked whose job nobody ever saw.
    pub(crate) strangers: Vec<Nanos>,
}

/// The history, sorted.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) jobs: Vec<JobFile>,
    pub(crate) by_id: HashMap<u64, usize>,
    pub(crate) tubes: BTreeMap<TubeName, TubeFile>,
    /// Since when each session may be over.
    pub(crate) ends: HashMap<u64, Nanos>,
    /// Jobs by the node whose final state tells of them, for each final state.
    finals: Vec<HashMap<u64, JobStats>>,
}

impl Plan {
    pub(crate) fn new(run: &Run) -> Self {
        let mut plan = Self {
            jobs: Vec::new(),
            by_id: HashMap::new(),
            tubes: BTreeMap::new(),
            ends: run
                .connections
                .iter()
                .map(|(id, connection)| (*id, connection.alive_until))
                .collect(),
            finals: run
                .finals
                .iter()
                .map(|state| {
                    state
                        .jobs
                        .iter()
                        .map(|job| (job.job.0, job.clone()))
                        .collect()
                })
                .collect(),
        };
        plan.find_jobs(run);
        for (at, op) in run.ops.iter().enumerate() {
            let job = op.call.job().or_else(|| given(op.answer()?));
            if let Some(job) = job.and_then(|job| plan.by_id.get(&job.0)) {
                plan.jobs[*job].ops.push(at);
            }
            plan.note_for_tubes(run, at);
        }
        for tube in plan.tubes.values_mut() {
            tube.ghosts.sort_unstable();
            tube.strangers.sort_unstable();
        }
        plan
    }

    fn find_jobs(&mut self, run: &Run) {
        let mut sighted: HashMap<&str, JobId> = HashMap::new();
        for op in &run.ops {
            if let Some(Reply::Reserved { job, body } | Reply::Found { job, body }) = op.answer()
                && let Some(key) = &body.key
            {
                sighted.entry(key).or_insert(*job);
            }
        }
        for (at, op) in run.ops.iter().enumerate() {
            let Call::Put {
                tube, ttr, body, ..
            } = &op.call
            else {
                continue;
            };
            let id = match op.answer() {
                Some(Reply::Inserted { job }) => *job,
                Some(_) => continue,
                None => match body.key.as_deref().and_then(|key| sighted.get(key)) {
                    Some(id) => *id,
                    None => {
                        self.tubes
                            .entry(tube.clone())
                            .or_default()
                            .strangers
                            .push(op.from);
                        continue;
                    }
                },
            };
            let place = self.jobs.len();
            // The same id twice is for the check of ids; here the first one counts.
            if self.by_id.insert(id.0, place).is_some() {
                continue;
            }
            self.tubes.entry(tube.clone()).or_default().jobs.push(place);
            self.jobs.push(JobFile {
                facts: Facts {
                    id: id.0,
                    ttr: Nanos::from(ttr.0.max(1)) * SECOND,
                },
                tube: tube.clone(),
                put: at,
                ops: vec![at],
            });
        }
        // Where an id was given twice the map names the later place.
        self.by_id = self
            .jobs
            .iter()
            .enumerate()
            .map(|(at, job)| (job.facts.id, at))
            .collect();
    }

    fn note_for_tubes(&mut self, run: &Run, at: usize) {
        let op = &run.ops[at];
        match &op.call {
            Call::Reserve { tubes, .. } => {
                for tube in tubes {
                    let file = self.tubes.entry(tube.clone()).or_default();
                    match op.answer() {
                        None => file.ghosts.push(op.from),
                        Some(Reply::TimedOut) => file.ops.push(at),
                        Some(_) => {}
                    }
                }
            }
            Call::Kick { tube, .. }
            | Call::PauseTube { tube, .. }
            | Call::PeekReady { tube }
            | Call::PeekDelayed { tube }
            | Call::PeekBuried { tube }
            | Call::StatsTube { tube } => {
                self.tubes.entry(tube.clone()).or_default().ops.push(at);
            }
            _ => {}
        }
    }

    /// The job with this key or id, as people would name it.
    pub(crate) fn name(&self, run: &Run, job: usize) -> String {
        let file = &self.jobs[job];
        let key = match &run.ops[file.put].call {
            Call::Put {
                body: Body { key: Some(key), .. },
                ..
            } => key,
            _ => "?",
        };
        format!("job {} [{key}] of tube {}", file.facts.id, file.tube)
    }

    /// One job's steps: what concerns it, and what was left of it at the end.
    pub(crate) fn steps_of_job(&self, run: &Run, job: usize) -> Vec<Step> {
        let file = &self.jobs[job];
        let mut steps: Vec<Step> = file.ops.iter().filter_map(|op| step(run, *op, 0)).collect();
        if steps.iter().any(|step| lies_down(&step.act))
            && let Some(tube) = self.tubes.get(&file.tube)
        {
            let born = run.ops[file.put].from;
            let kicks = tube.ops.iter().filter(|op| {
                matches!(run.ops[**op].call, Call::Kick { .. }) && run.ops[**op].to() >= born
            });
            steps.extend(kicks.filter_map(|op| tube_step(run, *op, |_| None)));
        }
        steps.extend(self.last_steps(run, job, 0));
        steps
    }

    /// What each node held of it at the end.
    fn last_steps(&self, run: &Run, job: usize, place: usize) -> Vec<Step> {
        let id = self.jobs[job].facts.id;
        run.finals
            .iter()
            .zip(&self.finals)
            .filter(|(state, _)| id <= state.up_to.0)
            .map(|(state, jobs)| Step {
                op: None,
                from: state.t,
                to: state.ended,
                act: Act::Stats {
                    job: place,
                    seen: jobs.get(&id).cloned(),
                    last: true,
                },
                needed: false,
            })
            .collect()
    }

    /// All steps of a tube; jobs are named by their place in `jobs`.
    pub(crate) fn steps_of_tube(&self, run: &Run, tube: &TubeFile, jobs: &[usize]) -> Vec<Step> {
        let places: HashMap<u64, usize> = jobs
            .iter()
            .enumerate()
            .map(|(place, job)| (self.jobs[*job].facts.id, place))
            .collect();
        let mut steps = Vec::new();
        for (place, job) in jobs.iter().enumerate() {
            let ops = self.jobs[*job].ops.iter();
            // A peek at the tube is in its own list, too.
            let own = ops.filter(|op| !is_peek_at_tube(&run.ops[**op].call));
            steps.extend(own.filter_map(|op| step(run, *op, place)));
        }
        let whole = tube.ops.iter();
        steps.extend(whole.filter_map(|op| tube_step(run, *op, |id| places.get(&id.0).copied())));
        steps
    }
}

/// The job that an answer hands out or shows.
fn given(reply: &Reply) -> Option<JobId> {
    match reply {
        Reply::Reserved { job, .. } | Reply::Found { job, .. } => Some(*job),
        _ => None,
    }
}

fn is_peek_at_tube(call: &Call) -> bool {
    matches!(
        call,
        Call::PeekReady { .. } | Call::PeekDelayed { .. } | Call::PeekBuried { .. }
    )
}

/// Whether a job is buried or delayed by it, so that a kick may concern it later.
fn lies_down(act: &Act) -> bool {
    match act {
        Act::Put { delay, .. } | Act::Release { delay, .. } => *delay > 0,
        Act::Bury { .. } => true,
        _ => false,
    }
}

/// An operation that concerns one job, as a step.
fn step(run: &Run, at: usize, job: usize) -> Option<Step> {
    let op = &run.ops[at];
    let by = op.connection;
    let answer = op.answer();
    if answer.is_some_and(Reply::is_refusal) {
        return None;
    }
    let act = match (&op.call, answer) {
        (
            Call::Put {
                priority, delay, ..
            },
            _,
        ) => Act::Put {
            job,
            priority: priority.0,
            delay: delay.0,
        },
        (Call::Reserve { .. }, Some(Reply::Reserved { .. })) => Act::Take {
            job,
            by,
            in_turn: true,
        },
        (Call::ReserveJob { .. }, Some(Reply::Reserved { .. }) | None) => Act::Take {
            job,
            by,
            in_turn: false,
        },
        (Call::ReserveJob { .. }, Some(_)) => Act::NotTaken { job },
        (Call::Delete { .. }, answer) => Act::Delete {
            job,
            by,
            done: answer.is_none_or(|reply| *reply == Reply::Deleted),
        },
        (Call::Release { .. } | Call::Bury { .. } | Call::Touch { .. }, Some(Reply::NotFound)) => {
            Act::NotHeld { job, by }
        }
        (
            Call::Release {
                priority, delay, ..
            },
            _,
        ) => Act::Release {
            job,
            by,
            priority: priority.0,
            delay: delay.0,
        },
        (Call::Bury { priority, .. }, _) => Act::Bury {
            job,
            by,
            priority: priority.0,
        },
        (Call::Touch { .. }, _) => Act::Touch { job, by },
        (Call::KickJob { .. }, answer) => Act::KickJob {
            job,
            done: answer.is_none_or(|reply| *reply == Reply::KickedJob),
        },
        (call, Some(reply)) if call.is_read() && !run.header.local_reads => match (call, reply) {
            (Call::StatsJob { .. }, Reply::JobStats(seen)) => Act::Stats {
                job,
                seen: Some(seen.clone()),
                last: false,
            },
            (Call::StatsJob { .. }, Reply::NotFound) => Act::Stats {
                job,
                seen: None,
                last: false,
            },
            (Call::Peek { .. }, reply) => Act::See {
                job,
                there: *reply != Reply::NotFound,
            },
            (Call::PeekReady { .. }, _) => Act::SeeHead {
                head: Head::Ready,
                job: Some(job),
            },
            (Call::PeekDelayed { .. }, _) => Act::SeeHead {
                head: Head::Delayed,
                job: Some(job),
            },
            (Call::PeekBuried { .. }, _) => Act::SeeHead {
                head: Head::Buried,
                job: Some(job),
            },
            _ => return None,
        },
        _ => return None,
    };
    Some(Step {
        op: Some(at),
        from: op.from,
        to: op.to(),
        act,
        needed: false,
    })
}

/// An operation that concerns a tube, as a step.
fn tube_step(run: &Run, at: usize, place: impl Fn(JobId) -> Option<usize>) -> Option<Step> {
    let op = &run.ops[at];
    let reads = !run.header.local_reads;
    let head = |head: Head| -> Option<Act> {
        let job = match op.answer()? {
            Reply::Found { job, .. } => Some(place(*job)?),
            Reply::NotFound => None,
            _ => return None,
        };
        reads.then_some(Act::SeeHead { head, job })
    };
    let act = match (&op.call, op.answer()) {
        (Call::Kick { bound, .. }, Some(Reply::Kicked { count })) => Act::Kick {
            bound: *bound,
            count: Some(*count),
        },
        (Call::Kick { bound, .. }, None) => Act::Kick {
            bound: *bound,
            count: None,
        },
        (Call::PauseTube { delay, .. }, Some(Reply::Paused) | None) => {
            let over = op.from.saturating_add(Nanos::from(delay.0) * SECOND);
            Act::Pause {
                delay: delay.0,
                firm: op.answer().is_some() && run.is_quiet(op.from, over),
            }
        }
        (Call::PeekReady { .. }, Some(_)) => head(Head::Ready)?,
        (Call::PeekDelayed { .. }, Some(_)) => head(Head::Delayed)?,
        (Call::PeekBuried { .. }, Some(_)) => head(Head::Buried)?,
        (Call::StatsTube { .. }, Some(Reply::TubeStats(seen))) if reads => {
            Act::Counts { seen: seen.clone() }
        }
        (Call::Reserve { .. }, Some(Reply::TimedOut)) if run.is_firm(op) => Act::Empty,
        _ => return None,
    };
    Some(Step {
        op: Some(at),
        from: op.from,
        to: op.to(),
        act,
        needed: false,
    })
}
