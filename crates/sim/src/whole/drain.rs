use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use trellis_checker::history::{Call, CloseSide, FinalState, Record, Reply};
use trellis_testkit::recording::told::{PATIENCE, Yaml};
use trellis_types::{JobId, Seconds, TubeName};
use trellis_wire::beanstalk::{Reply as Wire, Request};

use super::{
    client::{Client, Shared},
    talk::Talk,
};

/// Clients that drain at the same time.
const DRAINERS: u32 = 6;

/// Kicked at once: all there are.
const ALL: u32 = u32::MAX;

/// Ids beyond the largest that anybody was told: puts whose outcome is unknown may have taken them.
const BEYOND: u64 = 64;

/// Questions that are on their way at once.
const AT_ONCE: usize = 128;

/// Delivers and deletes everything, and records how that went. What is left, in words.
pub(super) async fn drain(shared: Arc<Shared>, bound: Duration) -> Option<String> {
    let begin = shared.now();
    let until = Instant::now() + bound;
    let empty = Arc::new(AtomicBool::new(false));
    let mut takers = JoinSet::new();
    for number in 0..DRAINERS {
        takers.spawn(take(shared.clone(), number, until, empty.clone()));
    }
    let left = supervise(&shared, until).await;
    empty.store(true, Ordering::Relaxed);
    while takers.join_next().await.is_some() {}
    shared.recorder.write(&Record::Liveness {
        t: begin,
        ended: shared.now(),
        drained: left.is_none(),
        left: left.clone().unwrap_or_default(),
    });
    left
}

/// Takes and deletes until all is empty.
async fn take(shared: Arc<Shared>, number: u32, until: Instant, empty: Arc<AtomicBool>) {
    let tubes = shared.workload.profile().all_tubes();
    let mut client = Client::new(shared.clone(), shared.workload.clients() + number);
    while !empty.load(Ordering::Relaxed) && Instant::now() < until {
        if !client.connect().await {
            sleep(Duration::from_millis(50)).await;
            continue;
        }
        let call = Call::Reserve {
            tubes: tubes.clone(),
            timeout: Some(Seconds(1)),
        };
        if let Some(Reply::Reserved { job, .. }) = client.ask(&call).await {
            client.ask(&Call::Delete { job }).await;
        }
    }
    client.close(CloseSide::Client);
}

/// Ends pauses, kicks what lies, and counts, until nothing is left. What is left at the end.
async fn supervise(shared: &Arc<Shared>, until: Instant) -> Option<String> {
    let tubes = shared.workload.profile().all_tubes();
    let mut client = Client::new(shared.clone(), shared.workload.clients() + DRAINERS);
    let mut left = "no node answered".to_owned();
    while Instant::now() < until {
        if client.connect().await {
            let mut full = Vec::new();
            for tube in &tubes {
                match look(&mut client, tube).await {
                    Some(state) => full.extend(state),
                    None => full.push("a node gave no answer".to_owned()),
                }
            }
            if full.is_empty() {
                client.close(CloseSide::Client);
                return None;
            }
            left = full.join("; ");
        }
        sleep(Duration::from_millis(200)).await;
    }
    client.close(CloseSide::Client);
    Some(left)
}

/// Looks into one tube and wakes what lies in it: what it still holds, in words; `None` if nobody
/// answered.
async fn look(client: &mut Client, tube: &TubeName) -> Option<Option<String>> {
    let asked = client.ask(&Call::StatsTube { tube: tube.clone() }).await?;
    let stats = match asked {
        Reply::NotFound => return Some(None),
        Reply::TubeStats(stats) => stats,
        other => return Some(Some(format!("{tube}: {other}"))),
    };
    if stats.ready + stats.reserved + stats.delayed + stats.buried == 0 {
        return Some(None);
    }
    let pause = Call::PauseTube {
        tube: tube.clone(),
        delay: Seconds(0),
    };
    client.ask(&pause).await?;
    if stats.delayed + stats.buried > 0 {
        let kick = Call::Kick {
            tube: tube.clone(),
            bound: ALL,
        };
        client.ask(&kick).await?;
    }
    Some(Some(format!("{tube}: {}", Reply::TubeStats(stats))))
}

/// Reads what a node holds over its own door: every id that can exist, every tube.
pub(super) async fn final_state(
    shared: &Shared,
    node: &str,
    bound: Duration,
) -> Result<FinalState, String> {
    let until = Instant::now() + bound;
    loop {
        match try_final_state(shared, node).await {
            Ok(state) => return Ok(state),
            Err(words) if Instant::now() > until => {
                return Err(format!("{node} does not tell its final state: {words}"));
            }
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn try_final_state(shared: &Shared, node: &str) -> Result<FinalState, String> {
    let opened = Talk::open(&shared.net, node).await;
    let mut talk = opened.map_err(|error| error.to_string())?;
    let t = shared.now();
    let up_to = shared.newest.load(Ordering::Relaxed) + BEYOND;
    let mut jobs = Vec::new();
    let ids: Vec<u64> = (1..=up_to).collect();
    for ids in ids.chunks(AT_ONCE) {
        let requests: Vec<_> = ids.iter().map(|id| Request::StatsJob(JobId(*id))).collect();
        let sent = talk.send(&requests).await;
        sent.map_err(|silence| silence.words())?;
        for id in ids {
            match talk.hear(PATIENCE).await {
                Ok(Wire::NotFound) => {}
                Ok(Wire::Ok(text)) => match Yaml::read(&text).job() {
                    Some(job) => jobs.push(job),
                    None => return Err(format!("stats-job {id} cannot be read")),
                },
                other => return Err(format!("stats-job {id}: {other:?}")),
            }
        }
    }
    let names = match talk.ask(Request::ListTubes, PATIENCE).await {
        Ok(Wire::Ok(text)) => Yaml::list(&text),
        other => return Err(format!("list-tubes: {other:?}")),
    };
    let mut tubes = Vec::new();
    for name in names {
        let name = TubeName::parse(name.as_bytes()).map_err(|error| error.to_string())?;
        match talk.ask(Request::StatsTube(name), PATIENCE).await {
            Ok(Wire::Ok(text)) => tubes.extend(Yaml::read(&text).tube()),
            Ok(Wire::NotFound) => {}
            other => return Err(format!("stats-tube: {other:?}")),
        }
    }
    let total_jobs = match talk.ask(Request::Stats, PATIENCE).await {
        Ok(Wire::Ok(text)) => Yaml::read(&text).number("total-jobs"),
        other => return Err(format!("stats: {other:?}")),
    };
    Ok(FinalState {
        t,
        ended: shared.now(),
        node: node.to_owned(),
        applied: 0,
        digest: None,
        digest_at: None,
        up_to: JobId(up_to),
        jobs,
        tubes,
        total_jobs,
    })
}
