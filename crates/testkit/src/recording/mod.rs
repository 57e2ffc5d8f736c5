//! Plays a workload of the checker on real sockets and records what happens.
//!
//! A [`Recording`] runs one thread for each client; whoever owns it breaks things meanwhile, says so
//! with [`Recording::nemesis`], mends them, and asks for [`Recording::stop`], [`Recording::drain`]
//! and [`Recording::final_states`].

mod admin;
mod client;
mod connection;
mod drain;
mod final_state;
mod silence;
pub mod told;
mod tubes;

pub use silence::Silence;
pub use tubes::Tubes;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use trellis_checker::{
    history::{Nanos, NodeEvent, Record, Recorder, SECOND, Stage},
    workload::Workload,
};

/// Where a node is.
#[derive(Clone, Debug)]
pub struct Address {
    /// What the history calls it.
    pub name: String,
    /// Its door for beanstalk clients.
    pub clients: SocketAddr,
    /// Its admin port, if it has one.
    pub admin: Option<SocketAddr>,
}

/// A run that is being recorded.
pub struct Recording {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What all threads of a recording share.
struct Shared {
    recorder: Recorder,
    workload: Workload,
    nodes: Vec<Address>,
    begin: Instant,
    over: AtomicBool,
    /// Answers so far, so that a run that gets none is noticed.
    answered: AtomicU64,
    /// The largest id that anybody was told.
    newest: AtomicU64,
}

impl Shared {
    /// The run's clock. It starts at one second, so that no moment is 0.
    fn now(&self) -> Nanos {
        let nanos = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(Nanos::MAX);
        SECOND.saturating_add(nanos)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Sleeps, but not beyond the end of the run.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}

impl Recording {
    /// Starts all clients of `workload` against `nodes`, and what looks after them.
    pub fn start(recorder: Recorder, workload: Workload, nodes: Vec<Address>) -> Self {
        let shared = Arc::new(Shared {
            recorder,
            workload,
            nodes,
            begin: Instant::now(),
            over: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            newest: AtomicU64::new(0),
        });
        let mut threads = Vec::new();
        for client in 0..shared.workload.clients() {
            let shared = shared.clone();
            threads.push(thread::spawn(move || client::play(&shared, client)));
        }
        for node in 0..shared.nodes.len() {
            let keeper = shared.clone();
            threads.push(thread::spawn(move || client::keep_tubes(&keeper, node)));
            let sampler = shared.clone();
            threads.push(thread::spawn(move || admin::sample(&sampler, node)));
        }
        Self { shared, threads }
    }

    /// The run's clock.
    pub fn now(&self) -> Nanos {
        self.shared.now()
    }

    /// Answers so far.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Something is broken or mended now.
    pub fn nemesis(&self, fault: u32, what: &str, nodes: &[&str], stage: Stage, effect: bool) {
        self.nemesis_at(self.now(), fault, what, nodes, stage, effect);
    }

    /// As [`Self::nemesis`], of a moment that has gone by: whether breaking something had an effect
    /// is known only later.
    pub fn nemesis_at(
        &self,
        t: Nanos,
        fault: u32,
        what: &str,
        nodes: &[&str],
        stage: Stage,
        effect: bool,
    ) {
        self.shared.recorder.write(&Record::Nemesis {
            t,
            fault,
            what: what.to_owned(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            stage,
            effect,
        });
    }

    /// Something became of a node's process or disk.
    pub fn node(&self, node: &str, event: NodeEvent) {
        let node = node.to_owned();
        let t = self.now();
        self.shared.recorder.write(&Record::Node { t, node, event });
    }

    /// Ends the load: each client hears its last answer, within its patience, and closes.
    pub fn stop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A client that panicked has said so on standard error.
            let _ = thread.join();
        }
    }

    /// Everything that is left is to be delivered and deleted, within `bound`; what came of it is
    /// recorded. Whether all of it was.
    pub fn drain(&self, bound: Duration) -> bool {
        drain::drain(&self.shared, bound)
    }

    /// Reads and records what each node holds.
    ///
    /// # Errors
    ///
    /// A node that does not answer within `bound`, in words.
    pub fn final_states(&self, bound: Duration) -> Result<(), String> {
        self.final_states_but(&[], bound)
    }

    /// As [`Self::final_states`], but for the nodes named, which are no members any more.
    ///
    /// # Errors
    ///
    /// As [`Self::final_states`].
    pub fn final_states_but(&self, gone: &[&str], bound: Duration) -> Result<(), String> {
        let left = |node: &&Address| !gone.contains(&node.name.as_str());
        for node in self.shared.nodes.iter().filter(left) {
            let state = final_state::read(&self.shared, node, bound)?;
            self.shared.recorder.write(&Record::Final(state));
        }
        Ok(())
    }

    /// The history is complete.
    ///
    /// # Errors
    ///
    /// It could not be written.
    pub fn finish(&self) -> std::io::Result<()> {
        self.shared.recorder.finish()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.stop();
    }
}
