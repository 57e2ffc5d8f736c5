use std::{collections::BTreeSet, sync::Arc};

use trellis_node::{
    CloseReason,
    model::{Heard, ModelMerger, ModelOrigin},
};
use trellis_queue::{Content, Entry, Event, LeaderCommand};
use trellis_rpc::queue::{check_batch, decode_batch};
use trellis_types::{ConnectionId, OriginId, SessionId, Timestamp};

use super::{
    Action, Rule, law,
    setup::{LEAP_MS, NODES, Setup, other_tube},
    world::{Appended, Asked, Client, Committed, Lead, Stream, World, mark_of, node_id, origin_id},
};

/// How long a command may wait, and a little more, in milliseconds.
const OVERDUE_MS: u64 = 6_000;

impl World {
    /// Lets something happen.
    ///
    /// # Errors
    ///
    /// The promise that is broken by it.
    pub fn step(&mut self, action: Action, setup: &Setup) -> Result<(), String> {
        match action {
            Action::Say(node, client) => self.say(node, client, setup),
            Action::HangUp(node, client) => {
                self.left.hang_ups -= 1;
                let this = &mut self.nodes[node];
                if let Some(id) = this.clients[client].connection.take()
                    && let Some(origin) = &mut this.origin
                {
                    origin.disconnect(id);
                }
                this.clients[client].gone = true;
            }
            Action::HalfClose(node, client) => self.half_close(node, client, true),
            Action::ShutNoticed(node, client) => self.half_close(node, client, false),
            Action::Hand(node) => self.hand(node),
            Action::OpenStream(node, leader) => self.open_stream(node, leader, setup),
            Action::Break(node) => {
                self.left.breaks -= 1;
                self.end_stream(node);
            }
            Action::NoticeEnd(node) => self.end_stream(node),
            Action::Take(node, place) => self.take(node, place),
            Action::StreamClosed(node, place) => {
                let stream = self.nodes[node].streams.remove(place);
                if let Some(lead) = &mut self.nodes[stream.leader].leads {
                    lead.merger.close(stream.origin);
                }
            }
            Action::Propose(leader) => {
                self.propose(leader);
            }
            Action::Refuse(leader, kept) => self.refuse(leader, kept, setup),
            Action::EndDoubtful(leader) => self.end_doubtful(leader),
            Action::Commit(leader) => self.commit(leader, setup)?,
            Action::Apply(node) => self.apply(node, setup)?,
            Action::Snapshot(node, entries) => self.snapshot(node, entries, setup),
            Action::Crash(node) => self.crash(node),
            Action::Restart(node) => self.restart(node, setup),
            Action::Elect(node, source, kept) => self.elect(node, source, kept),
            Action::TakeOffice(leader) => {
                if let Some(lead) = &mut self.nodes[leader].leads {
                    lead.office = true;
                }
            }
            Action::StepDown(leader) => self.step_down(leader),
            Action::Open(leader, node) => {
                let living = self.nodes[node]
                    .streams
                    .iter()
                    .find(|stream| stream.leader == leader && self.is_served(stream));
                if let Some(origin) = living.map(|stream| stream.origin) {
                    self.lead(leader, LeaderCommand::OpenOrigin(origin));
                }
            }
            Action::OpenLate(leader, node, run) => {
                self.left.late_opens -= 1;
                self.lead(leader, LeaderCommand::OpenOrigin(origin_id(node, run)));
            }
            Action::Present(leader, node) => self.set_present(leader, node, true),
            Action::Absent(leader, node) => {
                self.left.absences -= 1;
                self.set_present(leader, node, false);
            }
            Action::Suspend(leader, node) => {
                self.left.suspensions -= 1;
                self.lead_open(leader, node, LeaderCommand::SuspendOrigin);
            }
            Action::Resume(leader, node) => {
                self.lead_open(leader, node, LeaderCommand::ResumeOrigin);
            }
            Action::Expire(leader, node) => {
                self.left.expiries -= 1;
                self.lead_open(leader, node, LeaderCommand::ExpireOrigin);
            }
            Action::TellEnded(_, node) => {
                self.nodes[node].excused = true;
                self.fence(node);
            }
            Action::Fence(node) => {
                self.left.fences -= 1;
                self.nodes[node].excused = true;
                self.fence(node);
            }
            Action::Leap => {
                self.left.leaps -= 1;
                self.leaps += 1;
            }
            Action::Tick(leader) => self.lead(leader, LeaderCommand::Tick),
            Action::Overdue(node) => {
                self.left.overdue -= 1;
                let this = &mut self.nodes[node];
                this.now += OVERDUE_MS;
                if let Some(origin) = &mut this.origin {
                    origin.overdue(this.now);
                }
            }
            Action::Ask(node) => {
                let index = self.length();
                for asked in &mut self.nodes[node].polls {
                    asked.index.get_or_insert(index);
                }
            }
            Action::Look(node) => self.look(node, setup)?,
        }
        for node in 0..NODES {
            self.settle(node, setup)?;
        }
        self.trim();
        Ok(())
    }

    /// Cluster time as a leader stamps it.
    pub(crate) fn clock(&self) -> Timestamp {
        Timestamp(self.leaps * LEAP_MS)
    }

    fn say(&mut self, node: usize, client: usize, setup: &Setup) {
        let this = &mut self.nodes[node];
        let Some(origin) = &mut this.origin else {
            return;
        };
        let state = &mut this.clients[client];
        let id = match state.connection {
            Some(id) => id,
            None => {
                let (Some(id), Some(own)) = (origin.connect(), origin.open()) else {
                    return;
                };
                let session = SessionId {
                    origin: own,
                    connection: id,
                };
                self.promises.connected(session, node, client, state.said);
                *state = Client {
                    connection: Some(id),
                    said: state.said,
                    ..Client::default()
                };
                id
            }
        };
        let word = setup.scripts[node][client][state.said];
        let call = word.call(node, client, state.said);
        state.said += 1;
        state.unanswered += 1;
        origin.submit(id, call, this.now);
    }

    fn half_close(&mut self, node: usize, client: usize, over: bool) {
        let this = &mut self.nodes[node];
        let state = &mut this.clients[client];
        let (Some(origin), Some(id)) = (&mut this.origin, state.connection) else {
            return;
        };
        if !state.half {
            self.left.half_closes -= 1;
        }
        state.half = true;
        state.over = over;
        match over {
            true => origin.half_closed(id, this.now),
            false => origin.hung_up(id, this.now),
        }
    }

    fn hand(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        let Some(origin) = &mut this.origin else {
            return;
        };
        if let Some(batch) = origin.hand()
            && let Some(stream) = this.streams.iter_mut().find(|stream| stream.written)
        {
            stream.messages.push_back(batch);
        }
    }

    fn open_stream(&mut self, node: usize, leader: usize, setup: &Setup) {
        let Some(term) = self.term_of(leader) else {
            return;
        };
        self.streams += 1;
        let id = self.streams;
        let this = &mut self.nodes[node];
        let Some(origin) = &mut this.origin else {
            return;
        };
        let Some(own) = origin.own() else { return };
        if setup.drops(Rule::Immutable) {
            origin.form_batches_anew();
        }
        let again = match setup.drops(Rule::ResendAll) {
            true => Vec::new(),
            false => origin.resend(),
        };
        origin.awake = true;
        let doubt = origin.doubt();
        // The new one takes the place of the old one, if it is the same leader's.
        this.streams
            .retain(|old| (old.leader, old.origin) != (leader, own));
        this.streams.push(Stream {
            id,
            leader,
            term,
            origin: own,
            messages: again.into(),
            written: true,
            read: true,
            doubt,
        });
        if let Some(lead) = &mut self.nodes[leader].leads {
            lead.merger.open(own, id);
        }
    }

    /// The origin writes to its stream no more.
    fn end_stream(&mut self, node: usize) {
        for stream in &mut self.nodes[node].streams {
            stream.written = false;
        }
        for leader in 0..NODES {
            self.set_present(leader, node, false);
        }
    }

    fn set_present(&mut self, leader: usize, node: usize, present: bool) {
        if let Some(lead) = &mut self.nodes[leader].leads {
            lead.present[node] = present;
        }
    }

    fn take(&mut self, node: usize, place: usize) {
        let stream = &mut self.nodes[node].streams[place];
        let Some((seq, batch)) = stream.messages.pop_front() else {
            return;
        };
        let (leader, origin, id) = (stream.leader, stream.origin, stream.id);
        let sound = check_batch(&batch).is_ok_and(|(its, its_seq)| (its, its_seq) == (origin, seq));
        let Some(lead) = &mut self.nodes[leader].leads else {
            return;
        };
        if !sound || !lead.merger.take(origin, id, seq, batch) {
            lead.merger.close(origin);
            self.nodes[node].streams[place].read = false;
        }
    }

    fn append(&mut self, leader: usize, content: Content) {
        let entry = Entry {
            at: self.clock(),
            content,
        };
        let this = &mut self.nodes[leader];
        // A log that contradicts what is committed goes nowhere.
        if let Some(lead) = &this.leads
            && !this.lost
        {
            this.suffix.push_back(Appended {
                term: lead.term,
                mark: mark_of(&entry),
                entry: Arc::new(entry),
            });
        }
    }

    fn lead(&mut self, leader: usize, command: LeaderCommand) {
        self.append(leader, Content::Leader(vec![command]));
    }

    fn lead_open(&mut self, leader: usize, node: usize, of: fn(OriginId) -> LeaderCommand) {
        let view = self.nodes[leader].machine.origin(node_id(node));
        if let Some(origin) = view.and_then(|view| view.open) {
            self.lead(leader, of(origin));
        }
    }

    fn propose(&mut self, leader: usize) -> Vec<OriginId> {
        let merged = match &mut self.nodes[leader].leads {
            Some(lead) => lead.merger.merge(),
            None => None,
        };
        let Some((batches, origins)) = merged else {
            return Vec::new();
        };
        let batches = batches
            .into_iter()
            .filter_map(|bytes| decode_batch(bytes).ok())
            .collect();
        self.append(leader, Content::Batches(batches));
        origins
    }

    fn refuse(&mut self, leader: usize, kept: bool, setup: &Setup) {
        self.left.refusals -= 1;
        let before = self.nodes[leader].suffix.len();
        let mut origins = self.propose(leader);
        let this = &mut self.nodes[leader];
        if !kept {
            this.suffix.truncate(before);
        }
        if setup.drops(Rule::Doubt) {
            origins.clear();
        }
        if setup.drops(Rule::DoubtEvery) {
            origins.truncate(1);
        }
        if let Some(lead) = &mut this.leads {
            lead.doubt.extend(origins);
        }
    }

    fn end_doubtful(&mut self, leader: usize) {
        let Some(lead) = &mut self.nodes[leader].leads else {
            return;
        };
        let term = lead.term;
        let doubtful = std::mem::take(&mut lead.doubt);
        for origin in &doubtful {
            lead.merger.close(*origin);
        }
        for node in &mut self.nodes {
            for stream in &mut node.streams {
                if (stream.leader, stream.term) == (leader, term)
                    && doubtful.contains(&stream.origin)
                {
                    stream.read = false;
                }
            }
        }
        for node in 0..NODES {
            if doubtful.iter().any(|origin| origin.node == node_id(node)) {
                self.set_present(leader, node, false);
            }
        }
    }

    fn commit(&mut self, leader: usize, setup: &Setup) -> Result<(), String> {
        let Some(Appended { term, entry, mark }) = self.nodes[leader].suffix.pop_front() else {
            return Ok(());
        };
        for (other, node) in self.nodes.iter_mut().enumerate() {
            if other == leader || node.lost {
                continue;
            }
            match node.suffix.front() {
                Some(front) if front.term == term => {
                    node.suffix.pop_front();
                }
                _ => {
                    // Overwritten, or not there yet.
                    node.suffix.clear();
                    node.lost = node.leads.is_some();
                }
            }
        }
        let (machine, outcome) = law::apply(&self.tip, &entry, setup.dropped)?;
        self.promises.committed(setup, &entry, &outcome, &machine)?;
        self.tip = Arc::new(machine);
        self.log.push_back(Arc::new(Committed {
            mark,
            entry,
            events: outcome.events,
            machine: self.tip.clone(),
        }));
        // Where nobody is served it makes no difference when a node applies.
        for node in 0..NODES {
            while self.nodes[node].applied < self.length()
                && (setup.is_idle(node)
                    || self.nodes[node]
                        .origin
                        .as_ref()
                        .is_none_or(|origin| origin.open().is_none()))
            {
                self.apply(node, setup)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, node: usize, setup: &Setup) -> Result<(), String> {
        let this = &mut self.nodes[node];
        let Some(committed) = self.log.get(this.applied - self.trimmed).cloned() else {
            return Ok(());
        };
        this.applied += 1;
        this.machine = committed.machine.clone();
        if let Some(origin) = &mut this.origin {
            let own = origin.own();
            let ends = committed
                .events
                .iter()
                .any(|event| matches!(event, Event::Ended(ended) if Some(*ended) == own));
            this.excused |= ends;
            origin.applied(&committed.events, this.now);
        }
        self.settle(node, setup)
    }

    fn snapshot(&mut self, node: usize, entries: usize, setup: &Setup) {
        self.left.snapshots -= 1;
        let length = self.nodes[node].applied + entries;
        let machine = self.machine_at(length);
        let this = &mut self.nodes[node];
        this.applied = length;
        this.excused = true;
        if let Some(origin) = &mut this.origin
            && !setup.drops(Rule::SnapshotFences)
        {
            origin.replaced(&machine);
        }
        this.machine = machine;
    }

    /// What nobody has of a process that died is gone; its state is somewhere at or behind what
    /// is committed, and replaying the log tells nobody anything.
    fn crash(&mut self, node: usize) {
        self.left.crashes -= 1;
        self.end_stream(node);
        self.step_down(node);
        let length = self.length();
        let this = &mut self.nodes[node];
        this.origin = None;
        this.polls.clear();
        this.excused = false;
        this.applied = length;
        this.machine = self.tip.clone();
        for client in &mut this.clients {
            client.lose();
        }
    }

    fn restart(&mut self, node: usize, setup: &Setup) {
        let this = &mut self.nodes[node];
        let mut origin = ModelOrigin::new(super::world::beginning());
        this.run += 1;
        origin.opening(origin_id(node, this.run));
        if setup.drops(Rule::OpenWhenApplied) {
            origin.open_early();
        }
        this.origin = Some(origin);
    }

    fn elect(&mut self, node: usize, source: usize, kept: usize) {
        if self.leader().is_some() {
            self.left.elections -= 1;
        }
        self.term += 1;
        let mut suffix = match self.nodes[source].lost {
            true => Default::default(),
            false => self.nodes[source].suffix.clone(),
        };
        suffix.truncate(kept);
        self.step_down(node);
        let this = &mut self.nodes[node];
        this.suffix = suffix;
        this.lost = false;
        this.leads = Some(Lead {
            term: self.term,
            office: false,
            merger: ModelMerger::default(),
            present: [false; NODES],
            doubt: BTreeSet::new(),
        });
    }

    /// Leads no more.
    fn step_down(&mut self, node: usize) {
        let this = &mut self.nodes[node];
        this.leads = None;
        if std::mem::take(&mut this.lost) {
            this.suffix.clear();
        }
    }

    fn fence(&mut self, node: usize) {
        if let Some(origin) = &mut self.nodes[node].origin {
            origin.fence();
        }
    }

    fn look(&mut self, node: usize, setup: &Setup) -> Result<(), String> {
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

    /// What follows from anything at a node: clients hear, polls turn up, a new run is drawn.
    fn settle(&mut self, node: usize, setup: &Setup) -> Result<(), String> {
        loop {
            let length = self.length();
            let this = &mut self.nodes[node];
            let Some(origin) = &mut this.origin else {
                return Ok(());
            };
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

    fn tell(
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
                    if matches!(*word, "INTERNAL_ERROR" | "DRAINING") && this.now == 0 {
                        return Err(format!("ERROR: {session} hears {word} for no reason"));
                    }
                    if *word == "USING" && !this.machine.has_reference(origin, &other_tube()) {
                        return Err(format!("TUBE: {session} hears USING, the tube is not kept"));
                    }
                    let unknown = heard[place + 1..].iter().any(|(other, word)| {
                        other == connection && *word == Heard::Closed(CloseReason::OutcomeUnknown)
                    });
                    self.promises.heard(setup, session, (word, *job), unknown)?;
                }
            }
        }
        Ok(())
    }

    /// Forgets what every node has applied, and streams that nobody reads or writes.
    fn trim(&mut self) {
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
            self.promises
                .forget_origins(node_id(node), self.nodes[node].run);
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

    fn node_at_rest(&self, node: usize) -> Result<(), String> {
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

impl Client {
    /// Its connection is gone; it may come back and say the rest of its script.
    fn lose(&mut self) {
        *self = Self {
            connection: None,
            said: self.said,
            unanswered: 0,
            half: false,
            over: false,
            gone: self.gone || self.half,
        };
    }
}
