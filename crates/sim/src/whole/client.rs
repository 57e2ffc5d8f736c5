use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};
use trellis_checker::{
    history::{Call, CloseSide, Nanos, Recorder, Reply, SECOND},
    workload::{Step, Workload},
};
use trellis_testkit::recording::{
    Silence,
    told::{self, PATIENCE},
};

use super::{net::Net, talk::Talk};

/// Between tries to connect.
const AGAIN: Duration = Duration::from_millis(30);

/// What all clients share.
pub(super) struct Shared {
    pub(super) net: Net,
    pub(super) recorder: Recorder,
    pub(super) workload: Workload,
    pub(super) nodes: Vec<String>,
    pub(super) over: AtomicBool,
    /// Answers so far.
    pub(super) answered: AtomicU64,
    /// The largest id that anybody was told.
    pub(super) newest: AtomicU64,
    /// Clients that still play.
    pub(super) playing: AtomicU64,
}

thread_local! {
    /// The last moment that was told, so that no two are alike.
    static LAST: Cell<Nanos> = const { Cell::new(0) };
}

impl Shared {
    /// The run's clock: the world's, and within a millisecond one after the other.
    pub(super) fn now(&self) -> Nanos {
        let now = SECOND + self.net.now() * 1_000_000;
        let now = now.max(LAST.get() + 1);
        LAST.set(now);
        now
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Sleeps, but not beyond the end of the run.
    async fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            sleep(left.min(Duration::from_millis(20))).await;
        }
    }
}

/// A recorded client: its connection, and where it will connect next.
pub(super) struct Client {
    shared: Arc<Shared>,
    number: u32,
    node: usize,
    connection: Option<(u64, Talk)>,
}

impl Client {
    pub(super) fn new(shared: Arc<Shared>, number: u32) -> Self {
        let node = number as usize % shared.nodes.len().max(1);
        Self {
            shared,
            number,
            node,
            connection: None,
        }
    }

    fn next_node(&mut self) {
        self.node = (self.node + 1) % self.shared.nodes.len().max(1);
    }

    /// Connects to its node, or else to the next. False if none can be had now.
    pub(super) async fn connect(&mut self) -> bool {
        if self.connection.is_some() {
            return true;
        }
        let name = self.shared.nodes[self.node].clone();
        match Talk::open(&self.shared.net, &name).await {
            Ok(talk) => {
                let shared = &self.shared;
                let number = shared.recorder.opened(shared.now(), self.number, &name);
                self.connection = Some((number, talk));
                true
            }
            Err(_) => {
                self.next_node();
                false
            }
        }
    }

    pub(super) fn close(&mut self, by: CloseSide) {
        if let Some((number, talk)) = self.connection.take() {
            // Stamped before: the session cannot end before the connection is closed.
            let t = self.shared.now();
            drop(talk);
            self.shared.recorder.closed(t, number, by);
        }
    }

    /// Asks and records. `None` if there is no answer; then there is no connection any more either.
    pub(super) async fn ask(&mut self, call: &Call) -> Option<Reply> {
        let shared = self.shared.clone();
        let (number, talk) = self.connection.as_mut()?;
        if let Err(silence) = talk.prepare(call, PATIENCE).await {
            self.give_up(&silence);
            return None;
        }
        let op = shared.recorder.invoked(shared.now(), *number, call.clone());
        let answer = talk.ask(told::request(call), told::patience(call)).await;
        let t = shared.now();
        match answer {
            Ok(reply) => {
                let reply = told::reply(call, reply);
                shared.recorder.replied(t, op, reply.clone());
                shared.answered.fetch_add(1, Ordering::Relaxed);
                if let Reply::Inserted { job } | Reply::Reserved { job, .. } = &reply {
                    shared.newest.fetch_max(job.0, Ordering::Relaxed);
                }
                Some(reply)
            }
            Err(silence) => {
                shared.recorder.unknown(t, op, &silence.words());
                self.give_up(&silence);
                None
            }
        }
    }

    fn give_up(&mut self, silence: &Silence) {
        self.close(silence.side());
        self.next_node();
    }
}

/// Plays one client's part until the run is over.
pub(super) async fn play(shared: Arc<Shared>, number: u32) {
    let mut script = shared.workload.script(number);
    let mut client = Client::new(shared.clone(), number);
    let mut last = None;
    while !shared.is_over() {
        if !client.connect().await {
            shared.rest(AGAIN).await;
            continue;
        }
        match script.next(last.take().as_ref()) {
            Step::Rest(ms) => shared.rest(Duration::from_millis(ms.into())).await,
            Step::Reconnect => {
                client.close(CloseSide::Client);
                client.next_node();
            }
            Step::Ask(call) => {
                last = client.ask(&call).await;
                if last.is_none() {
                    script.lost();
                }
            }
        }
    }
    client.close(CloseSide::Client);
    shared.playing.fetch_sub(1, Ordering::Relaxed);
}

/// Watches all tubes at one node, so that none vanishes with its pause while it is empty.
pub(super) async fn keep_tubes(shared: Arc<Shared>, node: usize) {
    let tubes = shared.workload.profile().all_tubes();
    while !shared.is_over() {
        if let Ok(mut talk) = Talk::open(&shared.net, &shared.nodes[node]).await
            && talk.watch(&tubes, PATIENCE).await.is_ok()
        {
            while !shared.is_over() && timeout(AGAIN * 10, talk.closed()).await.is_err() {}
        }
        shared.rest(AGAIN).await;
    }
}
