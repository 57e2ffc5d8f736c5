use std::sync::Arc;

use trellis_node::{CloseReason, model::Heard};
use trellis_types::{ConnectionId, OriginId, SessionId};

use super::{
    Rule,
    setup::{NODES, Setup, other_tube},
    world::{Asked, World, node_id, origin_id},
};

/// What follows from anything, and what must hold then.
impl World {
    /// What follows from anything at a node: clients hear, polls turn up, a new run is drawn.
    pub(super) fn settle(&mut self, node: usize, setup: &Setup) -> Result<(), String> {
        loop {
            let length = self.length();
            let this = &mut self.nodes[node];
            let Some(origin) = &mut this.origin else {
                return Ok(());
            };
            if origin.is_settled() && setup.dropped.is_none() {
                this.last_open = origin.open().unwrap_or(this.last_open);
                return Ok(());
            }
            if setup.drops(Rule::HoldBack) {
                origin.hold_nothing_back(this.now);
            }
            if setup.drops(Rule::HalfClosedPolls) {
                origin.forget_half_close();
            }
            if setup.drops(Rule::SureReference) {
                origin.trust_references();
            }
            origin.submit_ready_polls(&this.machine, this.now);
            for poll in std::mem::take(&mut origin.polls) {
                this.polls.push(Asked {
                    poll,
                    since: length,
                    index: None,
                });
            }
            let session_of = this.last_open;
            let heard = origin.hears();
            if let Some(open) = origin.open() {
                this.last_open = open;
            }
            let fenced = origin.own().is_none();
            let quiet = heard.is_empty();
            self.tell(node, session_of, heard, setup)?;
            let this = &mut self.nodes[node];
            if fenced && let Some(origin) = &mut this.origin {
                this.run += 1;
                this.polls.clear();
                origin.opening(origin_id(node, this.run));
                if setup.drops(Rule::OpenWhenApplied) {
                    origin.open_early();
                }
                this.excused = false;
                for stream in &mut this.streams {
                    stream.written = false;
                }
                for leader in 0..NODES {
                    self.set_present(leader, node, false);
                }
            } else if quiet {
                return Ok(());
            }
        }
    }

    pub(super) fn tell(
        &mut self,
        node: usize,
        origin: OriginId,
        heard: Vec<(ConnectionId, Heard)>,
        setup: &Setup,
    ) -> Result<(), String> {
        for (place, (connection, word)) in heard.iter().enumerate() {
            let session = SessionId {
                origin,
                connection: *connection,
            };
            let this = &mut self.nodes[node];
            let Some(client) = this
                .clients
                .iter_mut()
                .find(|client| client.connection == Some(*connection))
            else {
                continue;
            };
            match word {
                Heard::Closed(why) => {
                    client.lose();
                    client.gone = *why != CloseReason::Fenced;
                    if *why == CloseReason::Fenced && !this.excused {
                        return Err(format!("FENCED: {session} is closed for no reason"));
                    }
                    if *why == CloseReason::OutcomeUnknown && this.now == 0 {
                        return Err(format!("UNKNOWN: {session} is closed for no reason"));
                    }
                }
                Heard::Answer(word, job) => {
                    client.unanswered = client.unanswered.saturating_sub(1);
                    let half = client.half;
                    if matches!(*word, "INTERNAL_ERROR" | "DRAINING") && this.now == 0 {
                        return Err(format!("ERROR: {session} hears {word} for no reason"));
                    }
                    if *word == "USING" && !this.machine.has_reference(origin, &other_tube()) {
                        return Err(format!("TUBE: {session} hears USING, the tube is not kept"));
                    }
                    let unknown = heard[place + 1..].iter().any(|(other, word)| {
                        other == connection && *word == Heard::Closed(CloseReason::OutcomeUnknown)
                    });
                    Arc::make_mut(&mut self.promises).heard(
                        setup,
                        session,
                        (word, *job),
                        half,
                        unknown,
                    )?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn look(&mut self, node: usize, setup: &Setup) -> Result<(), String> {
        let loose = setup.drops(Rule::PollReadIndex);
        let length = self.length();
        let this = &mut self.nodes[node];
        let applied = this.applied;
        let (ready, rest): (Vec<Asked>, Vec<Asked>) = std::mem::take(&mut this.polls)
            .into_iter()
            .partition(|asked| loose || asked.index.is_some_and(|index| index <= applied));
        this.polls = rest;
        let Some(origin) = &mut this.origin else {
            return Ok(());
        };
        let since: Vec<_> = ready
            .iter()
            .map(|asked| (asked.poll.key(), asked.since))
            .collect();
        origin.polls = ready.into_iter().map(|asked| asked.poll).collect();
        origin.submit_ready_polls(&this.machine, this.now);
        // What turned up meanwhile waits for an index of its own.
        let (nothing, new): (Vec<_>, Vec<_>) = std::mem::take(&mut origin.polls)
            .into_iter()
            .partition(|poll| since.iter().any(|(key, _)| *key == poll.key()));
        origin.polls = new;
        let tubes: Vec<_> = nothing
            .iter()
            .filter_map(|poll| {
                let since = since.iter().find(|(key, _)| *key == poll.key())?;
                Some((since.1, poll.tubes.clone()))
            })
            .collect();
        origin.polls_found_nothing(nothing, this.now);
        for (since, tubes) in tubes {
            // True at some moment between the question and the answer, or a lie.
            let earliest = since.max(self.trimmed);
            if (earliest..=length).all(|at| self.machine_at(at).would_reserve(&tubes)) {
                return Err(format!(
                    "LIE: a poll of node {node} hears TIMED_OUT beside a ready job"
                ));
            }
        }
        Ok(())
    }

    /// Forgets what every node has applied, and streams that nobody reads or writes.
    pub(super) fn trim(&mut self) {
        for node in 0..NODES {
            let served: Vec<bool> = self.nodes[node]
                .streams
                .iter()
                .map(|stream| self.is_served(stream))
                .collect();
            let mut served = served.into_iter();
            self.nodes[node].streams.retain_mut(|stream| {
                let served = served.next().unwrap_or(false);
                if !served {
                    stream.messages.clear();
                }
                stream.written || served
            });
        }
        let least = self.nodes.iter().map(|node| node.applied).min();
        let drop = least.map_or(0, |least| least - self.trimmed);
        self.log.drain(..drop);
        self.trimmed += drop;
        for node in 0..NODES {
            let run = self.nodes[node].run;
            if run > 2 {
                Arc::make_mut(&mut self.promises).forget_origins(node_id(node), run);
            }
        }
    }

    /// What must hold when nothing happens by itself any more.
    ///
    /// # Errors
    ///
    /// The promise that is broken.
    pub fn at_rest(&self) -> Result<(), String> {
        for node in 0..NODES {
            self.node_at_rest(node)
                .map_err(|it| format!("REST: {it}"))?;
        }
        Ok(())
    }

    pub(super) fn node_at_rest(&self, node: usize) -> Result<(), String> {
        let this = &self.nodes[node];
        let own = self.own(node);
        let Some(origin) = &this.origin else {
            return Err(format!("node {node} is down"));
        };
        if origin.open() != Some(own) {
            return Err(format!("the origin of node {node} is not open"));
        }
        let batches = origin.batches();
        if batches > 0 {
            return Err(format!(
                "node {node} has {batches} batches that nobody applies"
            ));
        }
        let view = self.tip.origin(node_id(node));
        if view.and_then(|view| view.open) != Some(own) {
            return Err(format!("the log does not know {own}, which serves clients"));
        }
        if view.is_some_and(|view| view.suspended) {
            return Err(format!("{own} is present and suspended"));
        }
        if !this.polls.is_empty() {
            return Err(format!("polls of node {node} are never answered"));
        }
        for (connection, waits) in origin.sessions() {
            let session = SessionId {
                origin: own,
                connection,
            };
            if waits == Some(false) {
                return Err(format!("{session} is never answered"));
            }
            if waits.is_some() != self.tip.is_waiting(session) {
                return Err(format!(
                    "{session} waits here: {waits:?}, not so in the log"
                ));
            }
            if this
                .clients
                .iter()
                .any(|client| client.connection == Some(connection) && client.over)
            {
                return Err(format!("{session} is half-closed and stays"));
            }
        }
        for row in self.tip.rows() {
            let session = match row {
                trellis_queue::Row::Wait(row) => row.session,
                trellis_queue::Row::Job(row) => match row.state {
                    trellis_queue::JobState::Reserved { holder, .. } => holder,
                    _ => continue,
                },
                _ => continue,
            };
            if session.origin.node == node_id(node)
                && (session.origin != own || !origin.has_session(session.connection))
            {
                return Err(format!(
                    "{session} is over here, and holds or waits in the log"
                ));
            }
        }
        let used = origin.interest(&other_tube()) > 0;
        if self.tip.has_reference(own, &other_tube()) != used {
            return Err(format!(
                "node {node} uses the tube: {used}; not so in the log"
            ));
        }
        Ok(())
    }
}
