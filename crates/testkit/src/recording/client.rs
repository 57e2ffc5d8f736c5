use std::{sync::atomic::Ordering, time::Duration};

use trellis_checker::{
    history::{Call, CloseSide, Reply},
    workload::Step,
};

use super::{
    Shared, Silence,
    connection::Connection,
    told::{self, PATIENCE},
};

/// Between tries to connect.
const AGAIN: Duration = Duration::from_millis(30);

/// A recorded client: its connection, and where it will connect next.
pub(super) struct Client<'a> {
    shared: &'a Shared,
    number: u32,
    node: usize,
    connection: Option<(u64, Connection)>,
}

impl<'a> Client<'a> {
    pub(super) fn new(shared: &'a Shared, number: u32, node: usize) -> Self {
        Self {
            shared,
            number,
            node: node % shared.nodes.len().max(1),
            connection: None,
        }
    }

    /// Connects to its node, or else to the next. False if none can be had now.
    pub(super) fn connect(&mut self) -> bool {
        if self.connection.is_some() {
            return true;
        }
        let node = &self.shared.nodes[self.node];
        match Connection::open(node.clients) {
            Ok(connection) => {
                let number =
                    self.shared
                        .recorder
                        .opened(self.shared.now(), self.number, &node.name);
                self.connection = Some((number, connection));
                true
            }
            Err(_) => {
                self.node = (self.node + 1) % self.shared.nodes.len();
                false
            }
        }
    }

    pub(super) fn close(&mut self, by: CloseSide) {
        if let Some((number, connection)) = self.connection.take() {
            // Stamped before: the session cannot end before the socket is closed.
            let t = self.shared.now();
            drop(connection);
            self.shared.recorder.closed(t, number, by);
        }
    }

    /// Asks and records. `None` if there is no answer; then there is no connection any more either.
    pub(super) fn ask(&mut self, call: &Call) -> Option<Reply> {
        let (number, connection) = self.connection.as_mut()?;
        if let Err(silence) = connection.prepare(call, PATIENCE) {
            self.give_up(&silence);
            return None;
        }
        let op = self
            .shared
            .recorder
            .invoked(self.shared.now(), *number, call.clone());
        let answer = connection.ask(told::request(call), told::patience(call));
        let t = self.shared.now();
        match answer {
            Ok(reply) => {
                let reply = told::reply(call, reply);
                self.shared.recorder.replied(t, op, reply.clone());
                self.shared.answered.fetch_add(1, Ordering::Relaxed);
                if let Reply::Inserted { job } | Reply::Reserved { job, .. } = &reply {
                    self.shared.newest.fetch_max(job.0, Ordering::Relaxed);
                }
                Some(reply)
            }
            Err(silence) => {
                self.shared.recorder.unknown(t, op, &silence.words());
                self.give_up(&silence);
                None
            }
        }
    }

    fn give_up(&mut self, silence: &Silence) {
        self.close(silence.side());
        self.node = (self.node + 1) % self.shared.nodes.len();
    }
}

/// Plays one client's part until the run is over.
pub(super) fn play(shared: &Shared, number: u32) {
    let mut script = shared.workload.script(number);
    let mut client = Client::new(shared, number, number as usize);
    let mut last = None;
    while !shared.is_over() {
        if !client.connect() {
            shared.rest(AGAIN);
            continue;
        }
        match script.next(last.take().as_ref()) {
            Step::Rest(ms) => shared.rest(Duration::from_millis(ms.into())),
            Step::Reconnect => {
                client.close(CloseSide::Client);
                client.node = (client.node + 1) % shared.nodes.len();
            }
            Step::Ask(call) => {
                last = client.ask(&call);
                if last.is_none() {
                    script.lost();
                }
            }
        }
    }
    client.close(CloseSide::Client);
}

/// Watches all tubes at one node, so that none vanishes with its pause while it is empty.
pub(super) fn keep_tubes(shared: &Shared, node: usize) {
    let tubes = shared.workload.profile().all_tubes();
    while !shared.is_over() {
        if let Ok(mut connection) = Connection::open(shared.nodes[node].clients)
            && connection.watch(&tubes, PATIENCE).is_ok()
        {
            while !shared.is_over() && !connection.is_closed() {
                shared.rest(AGAIN);
            }
        }
        shared.rest(AGAIN);
    }
}
