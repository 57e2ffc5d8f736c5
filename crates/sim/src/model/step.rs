use std::sync::Arc;

use trellis_node::model::ModelOrigin;
use trellis_queue::{Event, LeaderCommand};
use trellis_rpc::queue::check_batch;
use trellis_types::SessionId;

use super::{
    Action, Rule,
    setup::{NODES, Setup},
    shared::Shared,
    world::{Client, Stream, World, beginning, origin_id},
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
                Arc::make_mut(&mut self.promises).connected(session, node, client, state.said);
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

    fn take(&mut self, node: usize, place: usize) {
        let stream = &mut self.nodes[node].streams[place];
        let Some((seq, batch)) = stream.messages.pop_front() else {
            return;
        };
        let (leader, origin, id) = (stream.leader, stream.origin, stream.id);
        let sound =
            check_batch(&batch).is_ok_and(|checked| (checked.origin, checked.seq) == (origin, seq));
        let Some(lead) = &mut self.nodes[leader].leads else {
            return;
        };
        if !sound || !lead.merger.take(origin, id, seq, batch) {
            lead.merger.close(origin);
            self.nodes[node].streams[place].read = false;
        }
    }

    pub(super) fn apply(&mut self, node: usize, setup: &Setup) -> Result<(), String> {
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
        if let Some(origin) = &mut this.origin
            && !setup.drops(Rule::SnapshotFences)
        {
            this.excused |= origin.open().is_some();
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
        let mut origin = ModelOrigin::new(beginning());
        this.run += 1;
        origin.opening(origin_id(node, this.run));
        if setup.drops(Rule::OpenWhenApplied) {
            origin.open_early();
        }
        this.origin = Some(Shared::new(origin));
    }

    fn fence(&mut self, node: usize) {
        if let Some(origin) = &mut self.nodes[node].origin {
            origin.fence();
        }
    }
}

impl Client {
    /// Its connection is gone; it may come back and say the rest of its script.
    pub(super) fn lose(&mut self) {
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
