use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tracing::debug;
use trellis_consensus::{Bodies, Role};
use trellis_queue::Machine;
use trellis_types::{
    JobId, SessionId, Timestamp,
    seeded::{Bug, planted},
};

use crate::{
    Answer, Reads, TubeStats,
    census::{self, Census},
    mind::{Inner, Running},
    origin::{Phase, Read, Ticket},
};

/// Requests for a read index that are under way at one time.
const ROUNDS_MAX: usize = 4;
/// One request.
const ASK_MAX: Duration = Duration::from_secs(1);
const BACK_OFF_MIN: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_millis(200);

/// Reads that wait for the next request to the leader.
#[derive(Default)]
pub(crate) struct ReadQueue {
    waiting: Mutex<Vec<Ticket>>,
    bell: Notify,
}

impl ReadQueue {
    pub(crate) fn push(&self, tickets: Vec<Ticket>) {
        self.waiting.lock().extend(tickets);
        self.bell.notify_one();
    }

    fn take(&self) -> Vec<Ticket> {
        std::mem::take(&mut *self.waiting.lock())
    }
}

/// Makes reads, for as long as the process lives.
///
/// All reads of the moment share one request to the leader for a read index; one that comes later
/// joins the next request. Source: architecture, sections 6 and 8.
pub(crate) async fn serve_reads(core: Arc<Inner>, running: Running) {
    let rounds = Arc::new(Semaphore::new(ROUNDS_MAX));
    loop {
        core.reads.bell.notified().await;
        let tickets = core.reads.take();
        let tickets = at_once(&core, &running, tickets);
        if tickets.is_empty() {
            continue;
        }
        core.reads.waiting.lock().extend(tickets);
        let Ok(permit) = rounds.clone().acquire_owned().await else {
            return;
        };
        // Whoever has come while all rounds were under way comes along.
        let tickets = core.reads.take();
        let (core, running) = (core.clone(), running.clone());
        tokio::spawn(async move {
            round(&core, &running, tickets).await;
            drop(permit);
        });
    }
}

/// Makes the reads that need no leader. Returns the rest.
fn at_once(core: &Arc<Inner>, running: &Running, tickets: Vec<Ticket>) -> Vec<Ticket> {
    let now = crate::now();
    if core.settings.reads == Reads::Local {
        let (polls, reads): (Vec<_>, Vec<_>) = tickets
            .into_iter()
            .partition(|ticket| matches!(ticket.read, Read::Poll(_)));
        answer(
            core,
            running,
            reads,
            core.clocks.at(now).unwrap_or_default(),
        );
        return polls;
    }
    tickets
}

/// Polls for which something is ready go through the log. Called wherever they turn up, so that
/// a poll that finds a job costs no more than any command.
pub(crate) fn submit_ready_polls(core: &Inner, running: &Running, tickets: &mut Vec<Ticket>) {
    if !tickets
        .iter()
        .any(|ticket| matches!(ticket.read, Read::Poll(_)))
    {
        return;
    }
    let Some(session) = session_of(core) else {
        return;
    };
    let ready = running.consensus.with_machine(|machine| {
        tickets
            .extract_if(.., |ticket| match &ticket.read {
                Read::Poll(tubes) => {
                    machine.would_reserve(tubes) || machine.holds_any(session(ticket))
                }
                _ => false,
            })
            .collect::<Vec<_>>()
    });
    if !ready.is_empty() {
        let now = crate::now();
        core.with_origin(|origin| {
            for ticket in &ready {
                origin.poll_submitted(ticket, now);
            }
        });
    }
}

fn session_of(core: &Inner) -> Option<impl Fn(&Ticket) -> SessionId + use<>> {
    match core.with_origin(|origin| origin.phase()) {
        Phase::Open(origin) => Some(move |ticket: &Ticket| SessionId {
            origin,
            connection: ticket.connection,
        }),
        _ => None,
    }
}

/// Asks until there is an index, or nobody waits any more.
async fn round(core: &Arc<Inner>, running: &Running, mut tickets: Vec<Ticket>) {
    let mut back_off = BACK_OFF_MIN;
    loop {
        tickets.retain(|ticket| core.with_origin(|origin| origin.is_reading(ticket)));
        if tickets.is_empty() {
            return;
        }
        let asked = tokio::time::timeout(ASK_MAX, ask(core, running)).await;
        let error = match asked {
            Ok(Ok((index, at))) => {
                match running
                    .consensus
                    .wait_applied(index, core.settings.commit_timeout)
                    .await
                {
                    Ok(()) => {
                        answer(core, running, tickets, at);
                        return;
                    }
                    Err(_) => "not applied in time".to_owned(),
                }
            }
            Ok(Err(error)) => error,
            Err(_) => "no answer in time".to_owned(),
        };
        debug!(error, reads = tickets.len(), "no read index");
        tokio::time::sleep(back_off).await;
        back_off = (back_off * 2).min(BACK_OFF_MAX);
        // A new request: who waits now may come along.
        tickets.extend(core.reads.take());
    }
}

async fn ask(core: &Inner, running: &Running) -> Result<(u64, Timestamp), String> {
    if planted(Bug::ReadWithoutIndex) {
        let applied = *running.consensus.applied().borrow();
        return Ok((applied, core.clocks.at(crate::now()).unwrap_or_default()));
    }
    let role = *running.consensus.role().borrow();
    match role {
        Role::Leader { .. } => core
            .read_index()
            .await
            .map_err(|status| status.message().to_owned()),
        Role::Follower {
            leader: Some(leader),
            ..
        }
        | Role::Learner {
            leader: Some(leader),
            ..
        } => running
            .neighbours
            .read_index(leader)
            .await
            .map(|reply| (reply.index, Timestamp(reply.at)))
            .map_err(|status| status.message().to_owned()),
        _ => Err("no leader".to_owned()),
    }
}

/// Makes the reads from this node's own state, which is as new as they need it.
fn answer(core: &Arc<Inner>, running: &Running, mut tickets: Vec<Ticket>, at: Timestamp) {
    submit_ready_polls(core, running, &mut tickets);
    let (asking, plain): (Vec<_>, Vec<_>) = tickets
        .into_iter()
        .partition(|ticket| matches!(ticket.read, Read::Stats | Read::StatsTube(_)));
    let answers: Vec<_> = running.consensus.with_machine(|machine| {
        let now = at.max(machine.now());
        plain
            .iter()
            .map(|ticket| look(machine, now, &ticket.read, &*core.bodies))
            .collect()
    });
    deliver(core, plain.into_iter().zip(answers));
    for ticket in asking {
        let (core, running) = (core.clone(), running.clone());
        tokio::spawn(async move {
            let answer = with_census(&core, &running, &ticket.read, at).await;
            deliver(&core, [(ticket, answer)]);
        });
    }
}

fn deliver(core: &Inner, answers: impl IntoIterator<Item = (Ticket, Answer)>) {
    let now = crate::now();
    core.with_origin(|origin| {
        for (ticket, answer) in answers {
            origin.read_answered(&ticket, answer, now);
        }
    });
}

fn look(machine: &Machine, now: Timestamp, read: &Read, bodies: &dyn Bodies) -> Answer {
    let found = |job: Option<JobId>| match job.and_then(|job| machine.job(job, now)) {
        Some(view) => Answer::Found {
            job: view.id,
            body: bodies.owe(view.id, view.body_bytes),
        },
        None => Answer::NotFound,
    };
    match read {
        // Looked again a moment ago: still nothing is ready.
        Read::Poll(_) => Answer::TimedOut,
        Read::Peek(job) => found(Some(*job)),
        Read::PeekReady(tube) => found(machine.peek_ready(tube)),
        Read::PeekDelayed(tube) => found(machine.peek_delayed(tube)),
        Read::PeekBuried(tube) => found(machine.peek_buried(tube)),
        Read::StatsJob(job) => machine
            .job(*job, now)
            .map_or(Answer::NotFound, |view| Answer::JobStats(Box::new(view))),
        Read::ListTubes => Answer::Tubes(machine.tubes().cloned().collect()),
        // Made with a census.
        Read::Stats | Read::StatsTube(_) => Answer::InternalError,
    }
}

async fn with_census(core: &Inner, running: &Running, read: &Read, at: Timestamp) -> Answer {
    let tube = match read {
        Read::StatsTube(tube) => Some(tube),
        _ => None,
    };
    if let Some(tube) = tube
        && running
            .consensus
            .with_machine(|machine| machine.tube(tube, at.max(machine.now())))
            .is_none()
    {
        return Answer::NotFound;
    }
    let census: Census = census::gather(core, running, tube).await;
    let Some(tube) = tube else {
        let view = running.consensus.with_machine(Machine::server);
        return Answer::ServerStats(Box::new(census.server_stats(core, running, view)));
    };
    let view = running
        .consensus
        .with_machine(|machine| machine.tube(tube, at.max(machine.now())));
    match view {
        None => Answer::NotFound,
        Some(view) => Answer::TubeStats(Box::new(TubeStats {
            view,
            using: census.using,
            watching: census.watching,
        })),
    }
}
