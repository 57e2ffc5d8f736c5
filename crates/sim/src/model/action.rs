use super::{
    Rule,
    setup::{CLIENTS, NODES, Setup},
    world::{World, node_id, origin_id},
};

/// One thing that may happen. Numbers are nodes and, where a second one stands, its client, its
/// stream, or the node that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client says its next word, and connects before if it has to.
    Say(usize, usize),
    /// A client is gone.
    HangUp(usize, usize),
    /// A client shuts its sending side; its input is used up, too.
    HalfClose(usize, usize),
    /// A client's shut sending side is noticed before its input is used up.
    ShutNoticed(usize, usize),
    /// The origin hands a batch over.
    Hand(usize),
    /// The origin opens a stream to a leader.
    OpenStream(usize, usize),
    /// The origin's stream breaks.
    Break(usize),
    /// The origin notices that its stream has ended, or that it doubts it.
    NoticeEnd(usize),
    /// The leader of a node's stream takes a batch from it.
    Take(usize, usize),
    /// The leader of a node's stream notices that it has ended.
    StreamClosed(usize, usize),
    /// A leader proposes what waits.
    Propose(usize),
    /// A leader's proposal fails; it may be in the log all the same.
    Refuse(usize, bool),
    /// A leader ends the streams of those whose proposals failed.
    EndDoubtful(usize),
    /// The leader's next entry is committed.
    Commit(usize),
    /// A node applies the next committed entry.
    Apply(usize),
    /// A snapshot takes a node so many entries on.
    Snapshot(usize, usize),
    /// A process dies.
    Crash(usize),
    /// It starts again.
    Restart(usize),
    /// A node is elected with so many entries of a node's suffix.
    Elect(usize, usize, usize),
    /// An elected leader has applied all of the log and serves streams.
    TakeOffice(usize),
    /// A leader learns that it leads no more.
    StepDown(usize),
    /// A leader proposes to open the origin of a stream.
    Open(usize, usize),
    /// An OpenOrigin of that run comes late.
    OpenLate(usize, usize, u64),
    /// A leader hears an origin, …
    Present(usize, usize),
    /// … or does not for too long.
    Absent(usize, usize),
    /// A leader proposes to suspend an absent origin.
    Suspend(usize, usize),
    /// A leader proposes to resume a present origin.
    Resume(usize, usize),
    /// A leader proposes to expire an absent origin.
    Expire(usize, usize),
    /// A leader tells an origin that it is over.
    TellEnded(usize, usize),
    /// A node has heard no leader for too long.
    Fence(usize),
    /// So much time passes that everything that waits for time is due.
    Leap,
    /// A leader proposes a Tick.
    Tick(usize),
    /// What a node has submitted has waited too long.
    Overdue(usize),
    /// A node asks for a read index.
    Ask(usize),
    /// A node looks again for its polls.
    Look(usize),
}

impl World {
    /// What may happen now. With `fair` only what happens by itself in a world in which nothing
    /// goes wrong any more and nobody says anything new.
    pub fn actions(&self, setup: &Setup, fair: bool) -> Vec<Action> {
        let mut out = Vec::new();
        for node in 0..NODES {
            if self.nodes[node].origin.is_none() {
                out.push(Action::Restart(node));
            } else {
                self.of_origin(setup, node, fair, &mut out);
                if !fair {
                    self.of_clients(setup, node, &mut out);
                    self.faults_of(node, &mut out);
                }
            }
            self.of_streams(node, &mut out);
            if self.nodes[node].origin.is_some() {
                self.of_elections(node, fair, &mut out);
            }
            self.of_leader(setup, node, fair, &mut out);
        }
        if !fair && self.left.leaps > 0 {
            out.push(Action::Leap);
        }
        out
    }

    fn of_origin(&self, setup: &Setup, node: usize, fair: bool, out: &mut Vec<Action>) {
        let this = &self.nodes[node];
        let Some(origin) = &this.origin else { return };
        if this.applied < self.length() {
            out.push(Action::Apply(node));
        }
        match self.stream(node) {
            Some(stream) => {
                let mine = origin.own() == Some(stream.origin);
                if !mine || !self.is_served(stream) || origin.doubt() != stream.doubt {
                    out.push(Action::NoticeEnd(node));
                } else if origin.awake && origin.open().is_some() {
                    out.push(Action::Hand(node));
                }
            }
            None if origin.own().is_some() => {
                for leader in 0..NODES {
                    let office = self.nodes[leader].leads.as_ref().is_some_and(|l| l.office);
                    if office && (!fair || Some(leader) == self.leader()) {
                        out.push(Action::OpenStream(node, leader));
                    }
                }
            }
            None => {}
        }
        let office = self
            .leader()
            .is_some_and(|leader| self.nodes[leader].leads.as_ref().is_some_and(|l| l.office));
        let loose = setup.drops(Rule::PollReadIndex);
        if office && this.polls.iter().any(|asked| asked.index.is_none()) {
            out.push(Action::Ask(node));
        }
        let ready =
            |index: Option<usize>| loose || index.is_some_and(|index| index <= this.applied);
        if this.polls.iter().any(|asked| ready(asked.index)) {
            out.push(Action::Look(node));
        }
    }

    fn of_clients(&self, setup: &Setup, node: usize, out: &mut Vec<Action>) {
        let this = &self.nodes[node];
        let Some(origin) = &this.origin else { return };
        if origin.open().is_none() {
            return;
        }
        for client in 0..CLIENTS {
            let state = &this.clients[client];
            let left = setup.scripts[node][client].len() - state.said;
            if state.gone {
                continue;
            }
            if left > 0 && !state.over && state.unanswered < setup.pipeline {
                out.push(Action::Say(node, client));
            }
            if state.connection.is_some() {
                if self.left.hang_ups > 0 {
                    out.push(Action::HangUp(node, client));
                }
                if !state.over && (self.left.half_closes > 0 || state.half) {
                    out.push(Action::HalfClose(node, client));
                }
                if !state.half && self.left.half_closes > 0 && left > 0 {
                    out.push(Action::ShutNoticed(node, client));
                }
            }
        }
    }

    fn faults_of(&self, node: usize, out: &mut Vec<Action>) {
        let this = &self.nodes[node];
        let left = &self.left;
        let is_open = this
            .origin
            .as_ref()
            .is_some_and(|origin| origin.open().is_some());
        if left.breaks > 0 && self.stream(node).is_some() {
            out.push(Action::Break(node));
        }
        if left.fences > 0 && is_open {
            out.push(Action::Fence(node));
        }
        if left.overdue > 0 && is_open {
            out.push(Action::Overdue(node));
        }
        if left.snapshots > 0 {
            for entries in 1..=self.length() - this.applied {
                out.push(Action::Snapshot(node, entries));
            }
        }
        if left.crashes > 0 {
            out.push(Action::Crash(node));
        }
    }

    fn of_streams(&self, node: usize, out: &mut Vec<Action>) {
        for (place, stream) in self.nodes[node].streams.iter().enumerate() {
            if !self.is_served(stream) {
                continue;
            }
            if !stream.messages.is_empty() {
                out.push(Action::Take(node, place));
            }
            if !stream.written {
                out.push(Action::StreamClosed(node, place));
            }
        }
    }

    fn of_elections(&self, node: usize, fair: bool, out: &mut Vec<Action>) {
        let leader = self.leader();
        let allowed = leader.is_none() || (!fair && self.left.elections > 0);
        if !allowed || leader == Some(node) {
            return;
        }
        let this = &self.nodes[node];
        let sound = |node: usize| !self.nodes[node].lost;
        for source in 0..NODES {
            if !sound(source) {
                continue;
            }
            let suffix = &self.nodes[source].suffix;
            if source != node && suffix.is_empty() && sound(node) {
                continue;
            }
            if fair {
                out.push(Action::Elect(node, source, suffix.len()));
                continue;
            }
            for kept in 0..=suffix.len() {
                let own = this.suffix.iter().take(kept).map(|entry| entry.term);
                let same = source != node
                    && sound(node)
                    && this.suffix.len() >= kept
                    && own.eq(suffix.iter().take(kept).map(|entry| entry.term));
                if !same {
                    out.push(Action::Elect(node, source, kept));
                }
            }
        }
        if !(0..NODES).any(sound) {
            out.push(Action::Elect(node, node, 0));
        }
    }

    fn of_leader(&self, setup: &Setup, node: usize, fair: bool, out: &mut Vec<Action>) {
        let this = &self.nodes[node];
        let Some(lead) = &this.leads else { return };
        let newest = lead.term == self.term;
        if !newest {
            out.push(Action::StepDown(node));
        }
        if newest && !this.suffix.is_empty() {
            out.push(Action::Commit(node));
        }
        if !lead.office {
            let known = this.applied == self.length()
                && this.suffix.iter().all(|entry| entry.term == lead.term);
            if newest && known {
                out.push(Action::TakeOffice(node));
            }
            return;
        }
        let room = this.suffix.len() < setup.log || this.lost;
        if lead.merger.has_work() {
            if room {
                out.push(Action::Propose(node));
            }
            if !fair && self.left.refusals > 0 {
                out.push(Action::Refuse(node, false));
                if room {
                    out.push(Action::Refuse(node, true));
                }
            }
        }
        if !lead.doubt.is_empty() {
            out.push(Action::EndDoubtful(node));
        }
        if !room || this.lost || (fair && !newest) {
            return;
        }
        self.of_presence(node, fair, out);
        let due = this
            .machine
            .next_due()
            .is_some_and(|due| due <= self.clock());
        if due && !self.is_pending(node, "Tick") {
            out.push(Action::Tick(node));
        }
    }

    fn of_presence(&self, leader: usize, fair: bool, out: &mut Vec<Action>) {
        let this = &self.nodes[leader];
        let Some(lead) = &this.leads else { return };
        for node in 0..NODES {
            let view = this.machine.origin(node_id(node));
            let highest = view.map_or(0, |view| view.highest_run.0);
            let open = view.and_then(|view| view.open);
            let living = self.nodes[node]
                .streams
                .iter()
                .find(|stream| stream.leader == leader && self.is_served(stream));
            if let Some(stream) = living {
                let run = stream.origin.run.0;
                let pending = format!("OpenOrigin({:?})", stream.origin);
                if run > highest && !self.is_pending(leader, &pending) {
                    out.push(Action::Open(leader, node));
                }
                if run <= highest && open != Some(stream.origin) && stream.written {
                    out.push(Action::TellEnded(leader, node));
                }
                let newest = lead.term == self.term;
                if newest && !lead.present[node] && open == Some(stream.origin) && stream.written {
                    out.push(Action::Present(leader, node));
                }
            }
            if !fair {
                if self.left.late_opens > 0 {
                    for run in 1..=self.nodes[node].run {
                        out.push(Action::OpenLate(leader, node, run));
                    }
                }
                if self.left.absences > 0 && lead.present[node] {
                    out.push(Action::Absent(leader, node));
                }
            }
            let (Some(origin), Some(view)) = (open, view) else {
                continue;
            };
            if lead.present[node] {
                if view.suspended && !self.is_pending(leader, &format!("ResumeOrigin({origin:?})"))
                {
                    out.push(Action::Resume(leader, node));
                }
            } else if !fair {
                if !view.suspended
                    && self.left.suspensions > 0
                    && !self.is_pending(leader, &format!("SuspendOrigin({origin:?})"))
                {
                    out.push(Action::Suspend(leader, node));
                }
                if self.left.expiries > 0
                    && !self.is_pending(leader, &format!("ExpireOrigin({origin:?})"))
                {
                    out.push(Action::Expire(leader, node));
                }
            }
        }
    }

    /// Whether a leader has such a command in its log that it has not applied.
    fn is_pending(&self, leader: usize, text: &str) -> bool {
        let this = &self.nodes[leader];
        let is_it = |entry: &trellis_queue::Entry| match &entry.content {
            trellis_queue::Content::Leader(commands) => commands
                .iter()
                .any(|command| format!("{command:?}") == text),
            trellis_queue::Content::Batches(_) => false,
        };
        this.suffix.iter().any(|appended| is_it(&appended.entry))
            || self
                .log
                .iter()
                .skip(this.applied - self.trimmed)
                .any(|committed| is_it(&committed.entry))
    }

    /// Names an origin for the reader of a trace.
    pub(crate) fn own(&self, node: usize) -> trellis_types::OriginId {
        origin_id(node, self.nodes[node].run)
    }
}

impl Action {
    /// Whether it happens by itself, in a world in which nothing goes wrong.
    pub(crate) fn is_progress(self) -> bool {
        !matches!(
            self,
            Self::HangUp(..)
                | Self::HalfClose(..)
                | Self::ShutNoticed(..)
                | Self::Break(..)
                | Self::Refuse(..)
                | Self::Snapshot(..)
                | Self::Crash(..)
                | Self::Elect(..)
                | Self::OpenLate(..)
                | Self::Absent(..)
                | Self::Suspend(..)
                | Self::Expire(..)
                | Self::Fence(..)
                | Self::Leap
                | Self::Overdue(..)
        )
    }
}
