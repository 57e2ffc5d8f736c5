use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use trellis_checker::history::{Call, CloseSide, Record, Reply};
use trellis_types::{Seconds, TubeName};

use super::{Shared, client::Client};

/// Clients that drain at the same time.
const DRAINERS: u32 = 8;

/// Kicked at once: all there are.
const ALL: u32 = u32::MAX;

/// Delivers and deletes everything, and records how that went.
pub(super) fn drain(shared: &Shared, bound: Duration) -> bool {
    let begin = shared.now();
    let until = Instant::now() + bound;
    let empty = AtomicBool::new(false);
    let left = thread::scope(|scope| {
        for number in 0..DRAINERS {
            let empty = &empty;
            scope.spawn(move || take(shared, number, until, empty));
        }
        let left = supervise(shared, until);
        empty.store(true, Ordering::Relaxed);
        left
    });
    shared.recorder.write(&Record::Liveness {
        t: begin,
        ended: shared.now(),
        drained: left.is_none(),
        left: left.clone().unwrap_or_default(),
    });
    left.is_none()
}

/// Takes and deletes until all is empty.
fn take(shared: &Shared, number: u32, until: Instant, empty: &AtomicBool) {
    let tubes = shared.workload.profile().all_tubes();
    let mut client = Client::new(shared, shared.workload.clients() + number, number as usize);
    while !empty.load(Ordering::Relaxed) && Instant::now() < until {
        if !client.connect() {
            thread::sleep(Duration::from_millis(50));
            continue;
        }
        let call = Call::Reserve {
            tubes: tubes.clone(),
            timeout: Some(Seconds(1)),
        };
        if let Some(Reply::Reserved { job, .. }) = client.ask(&call) {
            client.ask(&Call::Delete { job });
        }
    }
    client.close(CloseSide::Client);
}

/// Ends pauses, kicks what lies, and counts, until nothing is left. What is left at the end, in
/// words.
fn supervise(shared: &Shared, until: Instant) -> Option<String> {
    let tubes = shared.workload.profile().all_tubes();
    let mut client = Client::new(shared, shared.workload.clients() + DRAINERS, 0);
    let mut left = "no node answered".to_owned();
    while Instant::now() < until {
        if client.connect() {
            match tubes
                .iter()
                .map(|tube| empty(&mut client, tube))
                .collect::<Option<Vec<_>>>()
            {
                Some(states) => {
                    let full: Vec<String> = states.into_iter().flatten().collect();
                    if full.is_empty() {
                        client.close(CloseSide::Client);
                        return None;
                    }
                    left = full.join("; ");
                }
                None => left = "a node gave no answer".to_owned(),
            }
        }
        thread::sleep(Duration::from_millis(200));
    }
    client.close(CloseSide::Client);
    Some(left)
}

/// Looks into one tube and wakes what lies in it: what it still holds, in words; `None` if nobody
/// answered.
fn empty(client: &mut Client<'_>, tube: &TubeName) -> Option<Option<String>> {
    let seen = client.ask(&Call::StatsTube { tube: tube.clone() })?;
    let stats = match seen {
        Reply::NotFound => return Some(None),
        Reply::TubeStats(stats) => stats,
        other => return Some(Some(format!("{tube}: {other}"))),
    };
    if stats.ready + stats.reserved + stats.delayed + stats.buried == 0 {
        return Some(None);
    }
    client.ask(&Call::PauseTube {
        tube: tube.clone(),
        delay: Seconds(0),
    })?;
    if stats.delayed + stats.buried > 0 {
        client.ask(&Call::Kick {
            tube: tube.clone(),
            bound: ALL,
        })?;
    }
    Some(Some(format!("{tube}: {}", Reply::TubeStats(stats))))
}
