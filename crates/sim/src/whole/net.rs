use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    task::{Context, Waker},
};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::sync::{mpsc, oneshot};

use super::{
    link::{Link, Weather},
    pipe::End,
};

mod ends;

/// A machine: a node's, or that of all clients.
pub(super) type HostId = u32;
/// A connection.
pub(super) type PipeId = u64;

/// Where the clients are.
pub(super) const CLIENTS: HostId = 1_000;

/// Bytes of one direction that were sent and not read: a socket's buffers.
const WINDOW_BYTES: usize = 512 * 1024;

/// What a machine listens for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Port {
    /// Other nodes.
    Peers,
    /// Clients.
    Clients,
}

/// The network of all machines: connections as TCP gives them, bytes in order or none, over links
/// that are slow, lose, or are cut. Knows the time of the world; nothing arrives earlier than in the
/// next millisecond. Clones are the same network.
#[derive(Clone)]
pub(super) struct Net(Arc<Mutex<State>>);

struct State {
    now: u64,
    random: StdRng,
    seq: u64,
    events: BTreeMap<(u64, u64), Event>,
    hosts: BTreeMap<HostId, Host>,
    names: BTreeMap<String, HostId>,
    links: BTreeMap<(HostId, HostId), Link>,
    pipes: BTreeMap<PipeId, Pipe>,
    next_pipe: PipeId,
    /// Everything that was held back by a cut, so that a nemesis can tell that it did something.
    hindered: u64,
}

#[derive(Default)]
struct Host {
    /// The power is on: its kernel answers.
    on: bool,
    /// Its process says nothing any more, though it may not know yet.
    mute: bool,
    listening: BTreeMap<Port, mpsc::UnboundedSender<End>>,
}

struct Pipe {
    port: Port,
    /// Told once whether the connection stands.
    connecting: Option<oneshot::Sender<io::Result<End>>>,
    sides: [Side; 2],
}

/// What one end of a connection has and knows.
struct Side {
    host: HostId,
    /// A process holds it.
    open: bool,
    /// It sends nothing more.
    shut: bool,
    arrived: BytesMut,
    /// Bytes on their way here.
    coming: usize,
    /// When the last of them comes.
    last_due: u64,
    /// The other side sends nothing more.
    ended: bool,
    broken: bool,
    wakers: [Option<Waker>; 4],
}

const READ: usize = 0;
const WRITE: usize = 1;
const HUNG_UP: usize = 2;
const BROKEN: usize = 3;

/// Something on its way from one machine to another.
#[derive(Clone, Debug)]
pub(super) struct Event {
    from: HostId,
    to: HostId,
    pipe: PipeId,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Syn,
    SynAck,
    Refused,
    /// For this side.
    Data(usize, Bytes),
    Fin(usize),
    Reset(usize),
}

/// What is to be done when the network is not locked any more.
#[derive(Default)]
struct Later {
    wakes: Vec<Waker>,
    accepted: Vec<(mpsc::UnboundedSender<End>, PipeId)>,
    connected: Vec<(oneshot::Sender<io::Result<End>>, io::Result<PipeId>)>,
}

impl Later {
    fn carry_out(self, net: &Net) {
        for waker in self.wakes {
            waker.wake();
        }
        for (listener, pipe) in self.accepted {
            // A listener that is gone drops the connection.
            drop(listener.send(End::new(net.clone(), pipe, 1)));
        }
        for (caller, result) in self.connected {
            let end = result.map(|pipe| End::new(net.clone(), pipe, 0));
            drop(caller.send(end));
        }
    }
}

impl Side {
    fn new(host: HostId) -> Self {
        Self {
            host,
            open: false,
            shut: false,
            arrived: BytesMut::new(),
            coming: 0,
            last_due: 0,
            ended: false,
            broken: false,
            wakers: Default::default(),
        }
    }

    fn wake(&mut self, which: &[usize], later: &mut Later) {
        for which in which {
            later.wakes.extend(self.wakers[*which].take());
        }
    }

    fn wait(&mut self, which: usize, context: &Context<'_>) {
        self.wakers[which] = Some(context.waker().clone());
    }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl State {
    fn link(&mut self, from: HostId, to: HostId) -> &mut Link {
        self.links.entry((from, to)).or_default()
    }

    /// Sends something; when it arrives is a matter of the link and of chance.
    fn send(&mut self, from: HostId, to: HostId, pipe: PipeId, what: What) {
        let host = self.hosts.entry(from).or_default();
        if !host.on || host.mute {
            return;
        }
        self.send_from_kernel(from, to, pipe, what);
    }

    fn send_from_kernel(&mut self, from: HostId, to: HostId, pipe: PipeId, what: What) {
        let weather = self.link(from, to).weather;
        let mut due = self.now + weather.delay_ms(&mut self.random);
        if let What::Data(side, _) | What::Fin(side) = &what
            && let Some(pipe) = self.pipes.get_mut(&pipe)
        {
            let side = &mut pipe.sides[*side];
            due = due.max(side.last_due);
            side.last_due = due;
        }
        self.schedule(
            due,
            Event {
                from,
                to,
                pipe,
                what,
            },
        );
    }

    fn schedule(&mut self, due: u64, event: Event) {
        self.seq += 1;
        self.events.insert((due, self.seq), event);
    }

    fn arrive(&mut self, event: Event, later: &mut Later) {
        let Event {
            from,
            to,
            pipe: id,
            what,
        } = event.clone();
        if self.link(from, to).cut {
            self.hindered += 1;
            // What TCP sends again waits for the mending; a SYN or a reset is not sent for ever.
            if matches!(what, What::Data(..) | What::Fin(_)) {
                self.link(from, to).held.push(event);
            }
            return;
        }
        if !self.hosts.entry(to).or_default().on {
            if let (What::Data(side, bytes), Some(pipe)) = (&what, self.pipes.get_mut(&id)) {
                pipe.sides[*side].coming -= bytes.len();
            }
            return;
        }
        let Some(pipe) = self.pipes.get_mut(&id) else {
            return;
        };
        match what {
            What::Syn => {
                let listener = self
                    .hosts
                    .get(&to)
                    .and_then(|host| host.listening.get(&pipe.port));
                match listener {
                    Some(listener) if !listener.is_closed() => {
                        later.accepted.push((listener.clone(), id));
                        pipe.sides[1].open = true;
                        self.send_from_kernel(to, from, id, What::SynAck);
                    }
                    _ => self.send_from_kernel(to, from, id, What::Refused),
                }
            }
            What::SynAck => {
                pipe.sides[0].open = true;
                if let Some(caller) = pipe.connecting.take() {
                    later.connected.push((caller, Ok(id)));
                }
            }
            What::Refused => {
                if let Some(caller) = pipe.connecting.take() {
                    let refused = io::ErrorKind::ConnectionRefused.into();
                    later.connected.push((caller, Err(refused)));
                }
                self.pipes.remove(&id);
            }
            What::Data(to_side, bytes) => {
                let side = &mut pipe.sides[to_side];
                side.coming -= bytes.len();
                if side.open {
                    side.arrived.extend_from_slice(&bytes);
                    side.wake(&[READ], later);
                } else {
                    self.send_from_kernel(to, from, id, What::Reset(1 - to_side));
                }
            }
            What::Fin(to_side) => {
                let side = &mut pipe.sides[to_side];
                side.ended = true;
                side.wake(&[READ, HUNG_UP], later);
            }
            What::Reset(to_side) => {
                let side = &mut pipe.sides[to_side];
                side.broken = true;
                side.wake(&[READ, WRITE, HUNG_UP, BROKEN], later);
            }
        }
    }

    /// The processes of both sides have let go and nothing is on its way: nobody will ask again.
    fn forget_closed(&mut self) {
        self.pipes.retain(|_, pipe| {
            pipe.connecting.is_some() || pipe.sides.iter().any(|side| side.open || side.coming > 0)
        });
    }
}

impl Net {
    /// Nobody is there yet.
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: 0,
            random: StdRng::seed_from_u64(seed ^ 0x6e65_7477_6f72_6b00),
            seq: 0,
            events: BTreeMap::new(),
            hosts: BTreeMap::new(),
            names: BTreeMap::new(),
            links: BTreeMap::new(),
            pipes: BTreeMap::new(),
            next_pipe: 1,
            hindered: 0,
        })))
    }

    pub(super) fn now(&self) -> u64 {
        self.0.lock().now
    }

    /// What cuts have held back so far.
    pub(super) fn hindered(&self) -> u64 {
        self.0.lock().hindered
    }

    /// The world's time is `now`; everything that is due by then arrives.
    pub(super) fn advance(&self, now: u64) {
        let mut later = Later::default();
        {
            let mut state = self.0.lock();
            state.now = now;
            while let Some(first) = state.events.first_entry() {
                if first.key().0 > now {
                    break;
                }
                let event = first.remove();
                state.arrive(event, &mut later);
            }
            if now.is_multiple_of(1_000) {
                state.forget_closed();
            }
        }
        later.carry_out(self);
    }

    /// A machine by that name is on.
    pub(super) fn power_on(&self, host: HostId, name: &str) {
        let mut state = self.0.lock();
        let there = state.hosts.entry(host).or_default();
        (there.on, there.mute) = (true, false);
        state.names.insert(name.to_owned(), host);
    }

    /// The process of a machine says nothing any more.
    pub(super) fn mute(&self, host: HostId) {
        self.0.lock().hosts.entry(host).or_default().mute = true;
    }

    /// The process of a machine is gone. With the power on its kernel resets its connections; with
    /// the power off nobody hears of it.
    pub(super) fn process_gone(&self, host: HostId, power: bool) {
        let mut state = self.0.lock();
        let there = state.hosts.entry(host).or_default();
        there.listening.clear();
        there.mute = true;
        there.on = power;
        let mut resets = Vec::new();
        for (id, pipe) in &mut state.pipes {
            for side in 0..2 {
                if pipe.sides[side].host == host && pipe.sides[side].open {
                    pipe.sides[side].open = false;
                    pipe.sides[side].arrived.clear();
                    resets.push((pipe.sides[1 - side].host, *id, 1 - side));
                }
            }
        }
        if power {
            for (to, id, side) in resets {
                state.send_from_kernel(host, to, id, What::Reset(side));
            }
        }
    }

    /// Listens on a machine; what comes in is to be heard there.
    pub(super) fn listen(&self, host: HostId, port: Port) -> mpsc::UnboundedReceiver<End> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.0.lock();
        let there = state.hosts.entry(host).or_default();
        there.listening.insert(port, sender);
        receiver
    }

    /// Listens no more.
    pub(super) fn close_port(&self, host: HostId, port: Port) {
        let mut state = self.0.lock();
        state.hosts.entry(host).or_default().listening.remove(&port);
    }

    /// Begins to connect to the machine called `name`. The answer may never come.
    pub(super) fn connect(
        &self,
        from: HostId,
        name: &str,
        port: Port,
    ) -> oneshot::Receiver<io::Result<End>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.0.lock();
        let Some(to) = state.names.get(name).copied() else {
            drop(sender.send(Err(io::ErrorKind::NotFound.into())));
            return receiver;
        };
        let id = state.next_pipe;
        state.next_pipe += 1;
        state.pipes.insert(
            id,
            Pipe {
                port,
                connecting: Some(sender),
                sides: [Side::new(from), Side::new(to)],
            },
        );
        state.send(from, to, id, What::Syn);
        receiver
    }

    /// How it is from one machine to another.
    pub(super) fn set_weather(&self, from: HostId, to: HostId, weather: Weather) {
        self.0.lock().link(from, to).weather = weather;
    }

    /// Nothing gets from one machine to another.
    pub(super) fn cut(&self, from: HostId, to: HostId) {
        self.0.lock().link(from, to).cut = true;
    }

    /// What was held back comes, some time later.
    pub(super) fn mend(&self, from: HostId, to: HostId) {
        let mut state = self.0.lock();
        let link = state.link(from, to);
        link.cut = false;
        let held = std::mem::take(&mut link.held);
        // Each connection is sent again by its own timer.
        let mut again: BTreeMap<PipeId, u64> = BTreeMap::new();
        let pipes: BTreeSet<PipeId> = held.iter().map(|event| event.pipe).collect();
        for pipe in pipes {
            let wait = state.random.random_range(5..400);
            again.insert(pipe, state.now + wait);
        }
        for event in held {
            let mut due = again.get(&event.pipe).copied().unwrap_or(state.now);
            if let What::Data(side, _) | What::Fin(side) = &event.what
                && let Some(pipe) = state.pipes.get_mut(&event.pipe)
            {
                let side = &mut pipe.sides[*side];
                due = due.max(side.last_due);
                side.last_due = due;
            }
            state.schedule(due, event);
        }
    }
}

#[cfg(test)]
mod tests;
