use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use trellis_types::{JobId, TubeName};
use trellis_wire::beanstalk::{Reply, Request};

use crate::Client;

/// What clients did and what they were told. A put without an answer is *unknown*: it may be there or not, once.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Body → id of every put that was answered `INSERTED`.
    pub acknowledged: BTreeMap<String, JobId>,
    /// Bodies of puts whose answer never came, or was an error.
    pub unknown: BTreeSet<String>,
    /// Body → how often a worker got it.
    pub delivered: BTreeMap<String, u32>,
    /// Anything that went wrong, in the client's words.
    pub errors: Vec<String>,
    /// When each put was acknowledged, in order of time.
    pub acknowledged_at: Vec<Instant>,
}

impl Ledger {
    /// The longest time without any acknowledged put between `from` and the end.
    pub fn gap_since(&self, from: Instant) -> Duration {
        let mut last = from;
        let mut gap = Duration::ZERO;
        for at in self.acknowledged_at.iter().filter(|at| **at >= from) {
            gap = gap.max(*at - last);
            last = *at;
        }
        gap
    }

    /// How many puts were acknowledged between two moments.
    pub fn acknowledged_between(&self, from: Instant, until: Instant) -> usize {
        let inside = |at: &&Instant| (from..until).contains(at);
        self.acknowledged_at.iter().filter(inside).count()
    }

    /// Everything acknowledged was delivered, nothing twice, and nothing that nobody put.
    ///
    /// # Panics
    ///
    /// It is not so; it names up to ten bodies.
    pub fn assert_each_delivered_once(&self) {
        let delivered = |body: &&String| self.delivered.contains_key(*body);
        let lost: Vec<_> = self
            .acknowledged
            .keys()
            .filter(|it| !delivered(it))
            .take(10)
            .collect();
        assert!(
            lost.is_empty(),
            "acknowledged and never delivered: {lost:?}"
        );
        let twice: Vec<_> = self
            .delivered
            .iter()
            .filter(|it| *it.1 > 1)
            .take(10)
            .collect();
        assert!(twice.is_empty(), "delivered more than once: {twice:?}");
        let known =
            |body: &&String| self.acknowledged.contains_key(*body) || self.unknown.contains(*body);
        let foreign: Vec<_> = self
            .delivered
            .keys()
            .filter(|it| !known(it))
            .take(10)
            .collect();
        assert!(foreign.is_empty(), "delivered and never put: {foreign:?}");
    }

    /// No client met an error.
    ///
    /// # Panics
    ///
    /// One did.
    pub fn assert_no_error(&self) {
        let count = self.errors.len();
        let first: Vec<_> = self.errors.iter().take(10).collect();
        assert!(
            first.is_empty(),
            "{count} errors, the first ones: {first:#?}"
        );
    }
}

/// Producers and workers on some addresses, until they are told to stop.
#[derive(Debug)]
pub struct Load {
    ledger: Arc<Mutex<Ledger>>,
    stop_putting: Arc<AtomicBool>,
    stop_working: Arc<AtomicBool>,
    producers: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    tube: TubeName,
}

impl Load {
    /// Starts `producers` and `workers` on each of `addresses`. It returns when all are connected.
    ///
    /// # Errors
    ///
    /// One can't connect.
    pub fn start(
        addresses: &[SocketAddr],
        tube: &str,
        producers: usize,
        workers: usize,
    ) -> io::Result<Self> {
        let tube = TubeName::parse(tube.as_bytes()).map_err(io::Error::other)?;
        let mut load = Self {
            ledger: Arc::default(),
            stop_putting: Arc::default(),
            stop_working: Arc::default(),
            producers: Vec::new(),
            workers: Vec::new(),
            tube,
        };
        for (place, address) in addresses.iter().enumerate() {
            for number in 0..producers {
                let client = Client::at_tube(*address, &load.tube)?;
                let (ledger, stop) = (Arc::clone(&load.ledger), Arc::clone(&load.stop_putting));
                let name = format!("{place}-{number}");
                load.producers.push(thread::spawn(move || {
                    produce(client, &name, &ledger, &stop)
                }));
            }
            for _ in 0..workers {
                let client = Client::at_tube(*address, &load.tube)?;
                let (ledger, stop) = (Arc::clone(&load.ledger), Arc::clone(&load.stop_working));
                load.workers
                    .push(thread::spawn(move || work(client, &ledger, &stop)));
            }
        }
        Ok(load)
    }

    /// What was told so far.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Waits until `count` more puts than now are acknowledged.
    ///
    /// # Panics
    ///
    /// It takes longer than 30 s; it shows the errors.
    pub fn wait_for_puts(&self, count: usize) {
        let wanted = self.ledger().acknowledged.len() + count;
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let ledger = self.ledger();
            let found = ledger.acknowledged.len();
            if found >= wanted {
                return;
            }
            assert!(
                Instant::now() < until,
                "{found} of {wanted} puts, errors {:?}",
                ledger.errors
            );
            drop(ledger);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until no put was acknowledged for `still`.
    ///
    /// # Panics
    ///
    /// It takes longer than `bound`; it shows how many there are.
    pub fn wait_for_silence(&self, still: Duration, bound: Duration) {
        let until = Instant::now() + bound;
        let (mut found, mut since) = (self.ledger().acknowledged.len(), Instant::now());
        while since.elapsed() < still {
            thread::sleep(Duration::from_millis(5));
            let now = self.ledger().acknowledged.len();
            if now != found {
                (found, since) = (now, Instant::now());
            }
            assert!(Instant::now() < until, "{found} puts, and still more");
        }
    }

    /// Stops the producers, lets the workers empty the tube, and hands out the ledger. A worker that saw an error has
    /// stopped already.
    pub fn finish(self) -> Ledger {
        self.stop_putting.store(true, Ordering::Relaxed);
        for producer in self.producers {
            let _ = producer.join();
        }
        self.stop_working.store(true, Ordering::Relaxed);
        for worker in self.workers {
            let _ = worker.join();
        }
        let mut ledger = lock(&self.ledger);
        ledger.acknowledged_at.sort();
        std::mem::take(&mut ledger)
    }
}

/// A test that panicked with the ledger in hand does not make the others' words wrong.
fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

fn produce(mut client: Client, name: &str, ledger: &Mutex<Ledger>, stop: &AtomicBool) {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let body = format!("{name}-{number}");
        let answer = client.put(&body, 0);
        let at = Instant::now();
        let mut ledger = lock(ledger);
        match answer {
            Ok(job) => {
                ledger.acknowledged.insert(body, job);
                ledger.acknowledged_at.push(at);
            }
            Err(error) => {
                ledger.errors.push(format!("a put of {body}: {error}"));
                ledger.unknown.insert(body);
                return;
            }
        }
    }
}

fn work(mut client: Client, ledger: &Mutex<Ledger>, stop: &AtomicBool) {
    loop {
        let stopping = stop.load(Ordering::Relaxed);
        let (job, body) = match client.reserve(1) {
            Ok(Some(found)) => found,
            Ok(None) if stopping => return,
            Ok(None) => continue,
            Err(error) => {
                lock(ledger).errors.push(format!("a reserve: {error}"));
                return;
            }
        };
        *lock(ledger).delivered.entry(body).or_default() += 1;
        if let Err(error) = client.demand(&Request::Delete(job), &Reply::Deleted) {
            lock(ledger)
                .errors
                .push(format!("a delete of {job:?}: {error}"));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_the_longest_silence_and_not_the_sum() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let ledger = Ledger {
            acknowledged_at: [0, 10, 500, 520].map(at).into(),
            ..Ledger::default()
        };
        assert_eq!(ledger.gap_since(at(5)), Duration::from_millis(490));
        assert_eq!(ledger.acknowledged_between(at(10), at(520)), 2);
    }
}
