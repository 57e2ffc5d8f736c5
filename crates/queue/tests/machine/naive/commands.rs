//! What sessions say.

use trellis_queue::{Answer, Batch, Command, Event, Fate, Verdict};
use trellis_types::{JobId, OriginId, Seconds, SessionId, Timestamp, TubeName};

use super::{Job, Naive, State, Wait};

impl Naive {
    pub(super) fn batch(&mut self, batch: &Batch) {
        let OriginId { node, run } = batch.origin;
        let known = self
            .nodes
            .iter_mut()
            .find(|n| n.node == node && n.run == run && n.open);
        let fate = match known {
            None => Some(Fate::NotOpen),
            Some(known) if batch.seq <= known.last_seq => Some(Fate::Duplicate),
            Some(known) if batch.seq > known.last_seq + 1 => Some(Fate::Hole {
                last: known.last_seq,
            }),
            Some(known) => {
                known.last_seq += 1;
                None
            }
        };
        let mut caused = vec![];
        let fate = fate.unwrap_or_else(|| {
            let before = std::mem::take(&mut self.events);
            let mut skipped = vec![];
            let verdicts = batch
                .items
                .iter()
                .map(|item| {
                    let session = SessionId {
                        origin: batch.origin,
                        connection: item.connection,
                    };
                    let exempt = matches!(
                        item.command,
                        Command::EndWait | Command::CloseSession | Command::TubeRef { .. }
                    );
                    let parked = self.waits.iter().any(|wait| wait.session == session);
                    if !exempt && (parked || skipped.contains(&session)) {
                        skipped.push(session);
                        return Verdict::Skipped;
                    }
                    if item.command == Command::CloseSession {
                        skipped.push(session);
                    }
                    self.command(session, &item.command)
                })
                .collect();
            caused = std::mem::replace(&mut self.events, before);
            Fate::Applied(verdicts)
        });
        self.events.push(Event::Batch {
            origin: batch.origin,
            seq: batch.seq,
            fate,
        });
        self.events.extend(caused);
    }

    pub(super) fn command(&mut self, session: SessionId, command: &Command) -> Verdict {
        let verdict = self.decide(session, command);
        self.dispatch();
        self.drop_unwanted_tubes();
        verdict
    }

    pub(super) fn decide(&mut self, session: SessionId, command: &Command) -> Verdict {
        let now = self.now;
        let later = |delay: Seconds| Timestamp(now.0.saturating_add(u64::from(delay.0) * 1_000));
        let answer = match command {
            Command::Put {
                tube,
                priority,
                delay,
                ttr,
                body,
            } => {
                let bytes: u64 = self.jobs.iter().map(|job| u64::from(job.body_bytes)).sum();
                if self.puts_refused
                    || self.jobs.len() as u64 >= self.jobs_max
                    || bytes + body.len() as u64 > self.job_bytes_max
                    || !self.has_or_makes_tube(tube)
                {
                    return Verdict::Answer(Answer::OutOfMemory);
                }
                self.jobs_put += 1;
                self.tube_mut(tube).unwrap().total_jobs += 1;
                let id = JobId(self.jobs_put);
                self.jobs.push(Job {
                    id,
                    tube: tube.clone(),
                    state: if delay.0 > 0 {
                        State::Delayed(later(*delay))
                    } else {
                        State::Ready
                    },
                    priority: *priority,
                    delay: *delay,
                    ttr: if ttr.0 == 0 { Seconds(1) } else { *ttr },
                    created: now,
                    reserves: 0,
                    timeouts: 0,
                    releases: 0,
                    buries: 0,
                    kicks: 0,
                    body_bytes: body.len() as u32,
                    body_crc: crc32c::crc32c(body),
                });
                Answer::Inserted(id)
            }
            Command::Reserve { tubes, timeout } => {
                return self.reserve(session, tubes, *timeout);
            }
            Command::ReserveJob { job } => match self.find(*job) {
                Some(found) if !matches!(found.state, State::Held(..)) => self.hold(*job, session),
                _ => Answer::NotFound,
            },
            Command::Delete { job } => match self.find(*job) {
                Some(found) if !matches!(found.state, State::Held(who, ..) if who != session) => {
                    let tube = found.tube.clone();
                    self.tube_mut(&tube).unwrap().deletes += 1;
                    self.jobs.retain(|other| other.id != *job);
                    Answer::Deleted
                }
                _ => Answer::NotFound,
            },
            Command::Release {
                job,
                priority,
                delay,
            } => match self.held(session, *job) {
                Some(found) => {
                    found.priority = *priority;
                    found.delay = *delay;
                    found.releases += 1;
                    found.state = if delay.0 > 0 {
                        State::Delayed(later(*delay))
                    } else {
                        State::Ready
                    };
                    Answer::Released
                }
                None => Answer::NotFound,
            },
            Command::Bury { job, priority } => {
                self.counter += 1;
                let counter = self.counter;
                match self.held(session, *job) {
                    Some(found) => {
                        found.priority = *priority;
                        found.buries += 1;
                        found.state = State::Buried(counter);
                        Answer::Buried
                    }
                    None => Answer::NotFound,
                }
            }
            Command::Touch { job } => match self.held(session, *job) {
                Some(found) => {
                    if let State::Held(_, deadline, _) = &mut found.state {
                        *deadline = later(found.ttr);
                    }
                    Answer::Touched
                }
                None => Answer::NotFound,
            },
            Command::Kick { tube, bound } => {
                let of_buried = self.first_buried(tube).is_some();
                self.kick(tube, *bound, of_buried)
            }
            Command::KickPortion {
                tube,
                bound,
                delayed,
            } => {
                let Answer::Kicked(count) = self.kick(tube, *bound, !*delayed) else {
                    unreachable!("kick says how many")
                };
                let of_kind = |job: &&super::Job| match job.state {
                    State::Buried(_) => !*delayed,
                    State::Delayed(_) => *delayed,
                    _ => false,
                };
                let here = self.jobs.iter().filter(|job| job.tube == *tube);
                let left = here.filter(of_kind).count() as u32;
                Answer::KickedPortion { count, left }
            }
            Command::KickJob { job } => match self.find(*job) {
                Some(found) if matches!(found.state, State::Buried(_) | State::Delayed(_)) => {
                    found.state = State::Ready;
                    found.kicks += 1;
                    Answer::KickedJob
                }
                _ => Answer::NotFound,
            },
            Command::PauseTube { tube, delay } => match self.tube_mut(tube) {
                Some(tube) => {
                    tube.pause = (delay.0 > 0).then(|| (*delay, later(*delay)));
                    tube.pauses += 1;
                    Answer::Paused
                }
                None => Answer::NotFound,
            },
            Command::EndWait => {
                if self.waits.iter().any(|wait| wait.session == session) {
                    self.waits.retain(|wait| wait.session != session);
                    self.events.push(Event::Deferred {
                        session,
                        answer: Answer::TimedOut,
                    });
                }
                return Verdict::Silent;
            }
            Command::CloseSession => {
                self.waits.retain(|wait| wait.session != session);
                self.return_holds(|who| who == session);
                return Verdict::Silent;
            }
            Command::TubeRef { tube, set: true } => {
                if !self.has_or_makes_tube(tube) {
                    return Verdict::Answer(Answer::OutOfMemory);
                }
                let references = &mut self.tube_mut(tube).unwrap().references;
                if !references.contains(&session.origin) {
                    references.push(session.origin);
                }
                Answer::Referenced
            }
            Command::TubeRef { tube, set: false } => {
                if let Some(tube) = self.tube_mut(tube) {
                    tube.references.retain(|origin| *origin != session.origin);
                }
                Answer::Referenced
            }
            Command::Undecodable => Answer::Undecodable,
        };
        Verdict::Answer(answer)
    }

    pub(super) fn reserve(
        &mut self,
        session: SessionId,
        tubes: &[TubeName],
        timeout: Option<Seconds>,
    ) -> Verdict {
        if tubes.len() > self.watch_names_max as usize {
            return Verdict::Answer(Answer::OutOfMemory);
        }
        let best = self
            .jobs
            .iter()
            .filter(|job| job.state == State::Ready && tubes.contains(&job.tube))
            .filter(|job| !self.is_paused(&job.tube))
            .min_by_key(|job| (job.priority, job.id))
            .map(|job| job.id);
        let poll = timeout == Some(Seconds(0));
        if let Some(best) = best
            && (poll || !self.is_suspended(session.origin))
        {
            return Verdict::Answer(self.hold(best, session));
        }
        if self
            .earliest_deadline(session)
            .is_some_and(|deadline| self.now.0 + 1_000 >= deadline.0)
        {
            return Verdict::Answer(Answer::DeadlineSoon);
        }
        if poll {
            return Verdict::Answer(Answer::TimedOut);
        }
        let until = timeout
            .map(|seconds| Timestamp(self.now.0.saturating_add(u64::from(seconds.0) * 1_000)));
        let mut watched: Vec<TubeName> = vec![];
        for tube in tubes {
            if !watched.contains(tube) {
                watched.push(tube.clone());
            }
        }
        self.waits.push(Wait {
            session,
            tubes: watched,
            until,
        });
        Verdict::Parked
    }

    fn kick(&mut self, tube: &TubeName, bound: u32, of_buried: bool) -> Answer {
        let mut kicked = 0;
        while kicked < bound {
            let next = if of_buried {
                self.first_buried(tube)
            } else {
                self.first_delayed(tube)
            };
            let Some(next) = next else { break };
            let job = self.find(next).unwrap();
            job.state = State::Ready;
            job.kicks += 1;
            kicked += 1;
            self.dispatch();
        }
        Answer::Kicked(kicked)
    }

    pub(super) fn return_holds(&mut self, whose: impl Fn(SessionId) -> bool) {
        let mut holds: Vec<(u64, JobId)> = self
            .jobs
            .iter()
            .filter_map(|job| match job.state {
                State::Held(who, _, which) if whose(who) => Some((which, job.id)),
                _ => None,
            })
            .collect();
        holds.sort_unstable();
        for (_, id) in holds {
            self.find(id).unwrap().state = State::Ready;
            self.dispatch();
        }
    }
}
