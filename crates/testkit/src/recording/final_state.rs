use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use trellis_checker::history::{FinalState, JobStats};
use trellis_types::{JobId, TubeName};
use trellis_wire::beanstalk::{Reply, Request};

use super::{Address, Shared, admin, connection::Connection, told::Yaml};

/// Ids beyond the largest that anybody was told: puts whose outcome is unknown may have taken them.
const BEYOND: u64 = 64;

/// Questions that are on their way at once.
const AT_ONCE: usize = 256;

/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Reads what a node holds: every id that can exist, every tube, its digest.
///
/// # Errors
///
/// It does not answer within `bound`, in words.
pub(super) fn read(shared: &Shared, node: &Address, bound: Duration) -> Result<FinalState, String> {
    let until = Instant::now() + bound;
    loop {
        match try_read(shared, node, until) {
            Ok(state) => return Ok(state),
            Err(words) if Instant::now() > until => {
                return Err(format!(
                    "{} does not tell its final state: {words}",
                    node.name
                ));
            }
            Err(_) => thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn try_read(shared: &Shared, node: &Address, until: Instant) -> Result<FinalState, String> {
    let mut connection = Connection::open(node.clients).map_err(|error| error.to_string())?;
    let t = shared.now();
    let up_to = shared.newest.load(Ordering::Relaxed) + BEYOND;
    let mut jobs = Vec::new();
    let ids: Vec<u64> = (1..=up_to).collect();
    for ids in ids.chunks(AT_ONCE) {
        let mut open = ids.to_vec();
        while !open.is_empty() {
            open = ask(&mut connection, &open, &mut jobs)?;
            if !open.is_empty() && Instant::now() > until {
                return Err("it finds no leader to ask".to_owned());
            }
        }
    }
    jobs.sort_by_key(|job| job.job);
    let names = match connection.ask(Request::ListTubes, ANSWER_MAX) {
        Ok(Reply::Ok(text)) => Yaml::list(&text),
        other => return Err(format!("list-tubes: {other:?}")),
    };
    let mut tubes = Vec::new();
    for name in names {
        let name = TubeName::parse(name.as_bytes()).map_err(|error| error.to_string())?;
        match connection.ask(Request::StatsTube(name), ANSWER_MAX) {
            Ok(Reply::Ok(text)) => tubes.extend(Yaml::read(&text).tube()),
            Ok(Reply::NotFound) => {}
            other => return Err(format!("stats-tube: {other:?}")),
        }
    }
    let total_jobs = match connection.ask(Request::Stats, ANSWER_MAX) {
        Ok(Reply::Ok(text)) => Yaml::read(&text).number("total-jobs"),
        other => return Err(format!("stats: {other:?}")),
    };
    let standing = match node.admin {
        Some(admin) => admin::standing(admin).map_err(|error| error.to_string())?,
        None => admin::Standing::default(),
    };
    Ok(FinalState {
        t,
        ended: shared.now(),
        node: node.name.clone(),
        applied: standing.applied,
        digest: standing.digest,
        digest_at: standing.digest_at,
        up_to: JobId(up_to),
        jobs,
        tubes,
        total_jobs,
    })
}

/// Asks for each of `ids` at once. Returns those that no leader could be asked about just now.
fn ask(
    connection: &mut Connection,
    ids: &[u64],
    jobs: &mut Vec<JobStats>,
) -> Result<Vec<u64>, String> {
    let requests: Vec<_> = ids.iter().map(|id| Request::StatsJob(JobId(*id))).collect();
    connection
        .send(&requests, ANSWER_MAX)
        .map_err(|silence| silence.words())?;
    let mut open = Vec::new();
    for id in ids {
        match connection.hear(ANSWER_MAX) {
            Ok(Reply::NotFound) => {}
            Ok(Reply::InternalError) => open.push(*id),
            Ok(Reply::Ok(text)) => match Yaml::read(&text).job() {
                Some(job) => jobs.push(job),
                None => return Err(format!("stats-job {id} cannot be read")),
            },
            other => return Err(format!("stats-job {id}: {other:?}")),
        }
    }
    Ok(open)
}
