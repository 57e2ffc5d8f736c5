//! One run: connections on a few threads, each thread a loop around its own epoll.

mod actor;
mod connection;
mod dialect;
mod etcd;
mod pace;
mod tally;
mod thread;

use std::net::SocketAddr;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use trellis_types::{Priority, Seconds, TubeName};
use trellis_wire::beanstalk::{Reply, Request};

use crate::figures::{Figures, Latency, cpu_seconds_of, load_average, rss_bytes_of};
use crate::plan::{Mix, Plan};
pub(crate) use dialect::Tongue;
use etcd::EtcdThread;
use tally::Tally;
use thread::DriverThread;

/// Moments of a run, in nanoseconds since the threads started together.
#[derive(Clone, Copy, Debug)]
struct Times {
    measured_from: u64,
    until: u64,
    /// Without a reply for so long an operation has failed.
    patience: u64,
}

/// What drives a thread's share.
enum Driver {
    Sockets(DriverThread),
    Etcd(EtcdThread),
}

/// Connects, drives, and sums up what all threads saw.
pub(crate) fn run(plan: &Plan) -> anyhow::Result<Figures> {
    let load = &plan.load;
    let load_average = load_average();
    let times = Times {
        measured_from: nanos(plan.warm_up()),
        until: nanos(plan.warm_up() + plan.measured()),
        patience: nanos(Duration::from_secs_f64(load.patience)),
    };

    // New names for each run: what an earlier one left behind is not in the way.
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let run = format!("{:x}", since_epoch.as_micros());
    let mut threads = Vec::new();
    for index in 0..load.threads {
        threads.push(match load.dialect {
            Tongue::Etcd => Driver::Etcd(EtcdThread::connect(plan, &run, index, times)?),
            _ => Driver::Sockets(DriverThread::connect(plan, &run, index, times)?),
        });
    }

    // All connections stand; now all threads start at one moment, and this one watches the servers' CPU meanwhile.
    let start = Arc::new(Barrier::new(load.threads + 1));
    let running: Vec<_> = threads
        .into_iter()
        .map(|thread| {
            let start = Arc::clone(&start);
            std::thread::spawn(move || {
                start.wait();
                match thread {
                    Driver::Sockets(thread) => thread.run(),
                    Driver::Etcd(thread) => thread.run(),
                }
            })
        })
        .collect();
    start.wait();
    let began = Instant::now();
    sleep_until(began + plan.warm_up());
    let cpu_before = server_cpu(&plan.watched);
    sleep_until(began + plan.warm_up() + plan.measured());
    let cpu_after = server_cpu(&plan.watched);
    let rss: Option<u64> = plan.watched.iter().map(|pid| rss_bytes_of(*pid)).sum();

    let mut whole = Tally::new();
    let mut own_cpu_by_thread = Vec::new();
    for thread in running {
        let Ok(tally) = thread.join() else {
            bail!("a driving thread died")
        };
        let tally = tally.context("a driving thread stopped")?;
        own_cpu_by_thread.push(tally.cpu.as_secs_f64() / load.seconds);
        whole.add(&tally);
    }

    Ok(Figures {
        targets: plan.targets.iter().map(ToString::to_string).collect(),
        mix: load.mix,
        connections: load.connections * if load.mix == Mix::Delivery { 2 } else { 1 },
        depth: load.depth,
        body_bytes: load.body_bytes,
        tubes: if load.mix == Mix::Delivery {
            load.connections
        } else {
            load.tubes
        },
        rate: load.rate,
        warm_up_seconds: load.warm_up,
        seconds: load.seconds,
        operations: whole.operations,
        per_second: whole.operations as f64 / load.seconds,
        failed: whole.failed,
        failures: whole.failures,
        latency: whole
            .steps
            .iter()
            .map(|(step, histogram)| (step.name(), Latency::of(histogram)))
            .collect(),
        own_cpu_by_thread,
        server_cpu_cores: cpu_before
            .zip(cpu_after)
            .map(|(before, after)| (after - before) / load.seconds),
        server_rss_bytes: rss.filter(|_| !plan.watched.is_empty()),
        load_average,
    })
}

/// Finds out whether a server takes a job, within about `patience`.
pub(crate) fn prove(target: SocketAddr, tongue: Tongue, patience: Duration) -> anyhow::Result<()> {
    if tongue == Tongue::Etcd {
        return etcd::prove(target, patience);
    }
    let place = dialect::Place {
        number: 0,
        founds_tube: true,
        depth: 1,
    };
    let dialect = dialect::dialect(tongue, place).context("no dialect for a plain socket")?;
    let tube = TubeName::parse(b"bench-proof")?;
    let mut connection =
        connection::Connection::open(target, dialect, &[Request::Use(tube)], patience)?;
    let put = Request::Put {
        priority: Priority(0),
        delay: Seconds(0),
        ttr: Seconds(60),
        body: Bytes::from_static(b"proof"),
    };
    let job = match connection.ask(&put)? {
        Reply::Inserted(job) => job,
        other => bail!("a put is answered with {other:?}"),
    };
    if tongue == Tongue::Beanstalk {
        let deleted = connection.ask(&Request::Delete(job))?;
        ensure!(
            deleted == Reply::Deleted,
            "a delete is answered with {deleted:?}"
        );
    }
    Ok(())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// CPU seconds of all watched processes; `None` if none is watched or one is gone.
fn server_cpu(watched: &[u32]) -> Option<f64> {
    if watched.is_empty() {
        return None;
    }
    watched.iter().map(|pid| cpu_seconds_of(*pid)).sum()
}
