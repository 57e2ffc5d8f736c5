//! A stage for the door: real sockets on one side, a scripted node on the other.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};
use trellis_beanstalk::{Backing, Door, DoorSettings, Listen, Talk};
use trellis_node::{Answer, Call, CloseReason, DoorState, Outlet, Refused};
use trellis_types::{JobId, OriginId};

/// Longer than anything here takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A node that does what the test says.
#[derive(Clone)]
pub(crate) struct Stage(Arc<Inner>);

struct Inner {
    doors: watch::Sender<DoorState>,
    connections_max: usize,
    /// Answers puts and the like at once, inline; otherwise they wait for [`Stage::round`].
    prompt: AtomicBool,
    /// What `peek` shows.
    body: Mutex<Bytes>,
    /// Whether that body has to be fetched from disk.
    body_far: AtomicBool,
    actors: Mutex<BTreeMap<usize, Arc<Actor>>>,
    next: Mutex<(usize, u64)>,
}

/// The node's side of one connection.
pub(crate) struct Actor {
    outlet: Arc<dyn Outlet>,
    calls: Mutex<Vec<Call>>,
    /// Everything that ever was submitted, and the sizes of the portions.
    pub(crate) portions: Mutex<Vec<usize>>,
    pub(crate) half_closed: AtomicBool,
    stopped: AtomicBool,
    go_on: Notify,
}

pub(crate) struct FakeSession {
    stage: Stage,
    number: usize,
    actor: Arc<Actor>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with_connections_max(usize::MAX)
    }

    pub(crate) fn with_connections_max(connections_max: usize) -> Self {
        Self(Arc::new(Inner {
            doors: watch::Sender::new(open()),
            connections_max,
            prompt: AtomicBool::new(true),
            body: Mutex::new(Bytes::from_static(b"body")),
            body_far: AtomicBool::new(false),
            actors: Mutex::default(),
            next: Mutex::new((0, 0)),
        }))
    }

    /// Opens a door in front of this node; its address.
    pub(crate) async fn opens(&self) -> std::net::SocketAddr {
        let address = self.opens_on(Listen::Tcp(([127, 0, 0, 1], 0).into())).await;
        match address {
            Listen::Tcp(address) => address,
            other => panic!("asked for TCP, got {other}"),
        }
    }

    pub(crate) async fn opens_on(&self, listen: Listen) -> Listen {
        self.opens_with(DoorSettings::on(vec![listen])).await
    }

    pub(crate) async fn opens_with(&self, settings: DoorSettings) -> Listen {
        let door = Door::bind(settings).expect("a free address");
        let address = door.addresses().remove(0);
        tokio::spawn(door.run(self.clone()));
        address
    }

    /// Opens a door with these bounds on a free port.
    pub(crate) async fn opens_with_bounds(
        &self,
        owed: usize,
        arriving: usize,
    ) -> std::net::SocketAddr {
        let settings = DoorSettings {
            owed_bytes_max: owed,
            arriving_bytes_max: arriving,
            ..DoorSettings::on(vec![Listen::Tcp(([127, 0, 0, 1], 0).into())])
        };
        match self.opens_with(settings).await {
            Listen::Tcp(address) => address,
            other => panic!("asked for TCP, got {other}"),
        }
    }

    /// A client that is let in.
    pub(crate) async fn client(&self, address: std::net::SocketAddr) -> Client {
        until("the door is open", || async {
            TcpStream::connect(address).await.ok()
        })
        .await
        .into()
    }

    pub(crate) fn close_doors(&self) {
        self.0.doors.send_replace(closed());
    }

    pub(crate) fn open_doors(&self) {
        self.0.doors.send_replace(open());
    }

    pub(crate) fn is_slow(&self) {
        self.0.prompt.store(false, Ordering::Relaxed);
    }

    pub(crate) fn shows(&self, body: Bytes, far: bool) {
        *self.0.body.lock() = body;
        self.0.body_far.store(far, Ordering::Relaxed);
    }

    pub(crate) fn connections(&self) -> usize {
        self.0.actors.lock().len()
    }

    pub(crate) async fn actor(&self, number: usize) -> Arc<Actor> {
        until("the node knows the connection", || async {
            self.0.actors.lock().get(&number).cloned()
        })
        .await
    }

    /// One apply round: answers everything that waits, once per connection.
    pub(crate) fn round(&self) {
        let actors: Vec<_> = self.0.actors.lock().values().cloned().collect();
        for actor in actors {
            self.answer(&actor, |call| {
                !matches!(call, Call::Reserve { timeout: None })
            });
        }
    }

    fn answer(&self, actor: &Actor, now: impl Fn(&Call) -> bool) {
        let mut answers = Vec::new();
        let mut quit = false;
        {
            let mut calls = actor.calls.lock();
            let count = calls.iter().take_while(|call| now(call)).count();
            for call in calls.drain(..count) {
                quit |= matches!(call, Call::Quit);
                answers.extend(self.act(call));
            }
        }
        if !answers.is_empty() {
            actor.outlet.deliver(&mut answers);
        }
        if quit {
            actor.outlet.close(CloseReason::Quit);
        }
    }

    fn act(&self, call: Call) -> Option<Answer> {
        Some(match call {
            Call::Put { .. } => {
                let mut next = self.0.next.lock();
                next.1 += 1;
                Answer::Inserted(JobId(next.1))
            }
            Call::Use(tube) => Answer::Using(tube),
            Call::Peek(job) => Answer::Found {
                job,
                body: self.owed(),
            },
            Call::Reserve { .. } => Answer::TimedOut,
            Call::Delete(_) => Answer::Deleted,
            Call::ListTubes => Answer::Tubes(vec![trellis_types::TubeName::default_tube()]),
            Call::Refused { tag, .. } => Answer::Refused(tag),
            Call::Quit => return None,
            _ => Answer::NotFound,
        })
    }

    fn owed(&self) -> trellis_node::Owed {
        owed(
            self.0.body.lock().clone(),
            self.0.body_far.load(Ordering::Relaxed),
        )
    }
}

fn owed(body: Bytes, far: bool) -> trellis_node::Owed {
    match far {
        false => trellis_node::Owed::at_hand(body),
        true => trellis_node::Owed::kept(body.len() as u32, Far(body)),
    }
}

/// A body that has to be fetched from disk.
struct Far(Bytes);

impl trellis_consensus::KeptBody for Far {
    fn ready(&self) -> Option<Bytes> {
        None
    }

    fn read(&self) -> std::io::Result<Bytes> {
        Ok(self.0.clone())
    }
}

fn open() -> DoorState {
    DoorState::Open {
        origin: OriginId::default(),
    }
}

fn closed() -> DoorState {
    DoorState::Closed {
        why: "the test says so",
    }
}

impl Actor {
    /// Back-pressure: the door reads nothing more of this connection.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn go_on(&self) {
        self.stopped.store(false, Ordering::Relaxed);
        self.go_on.notify_one();
    }

    /// How many calls wait for an answer.
    pub(crate) fn waiting(&self) -> usize {
        self.calls.lock().len()
    }
}

impl Backing for Stage {
    type Session = FakeSession;

    fn doors(&self) -> watch::Receiver<DoorState> {
        self.0.doors.subscribe()
    }

    fn connect(&self, outlet: Arc<dyn Outlet>) -> Result<FakeSession, Refused> {
        let mut actors = self.0.actors.lock();
        if actors.len() >= self.0.connections_max {
            return Err(Refused::TooMany);
        }
        let mut next = self.0.next.lock();
        next.0 += 1;
        let actor = Arc::new(Actor {
            outlet,
            calls: Mutex::default(),
            portions: Mutex::default(),
            half_closed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            go_on: Notify::new(),
        });
        actors.insert(next.0, Arc::clone(&actor));
        Ok(FakeSession {
            stage: self.clone(),
            number: next.0,
            actor,
        })
    }
}

impl Talk for FakeSession {
    fn submit(&self, calls: &mut Vec<Call>) {
        self.actor.portions.lock().push(calls.len());
        self.actor.calls.lock().append(calls);
        if self.stage.0.prompt.load(Ordering::Relaxed) {
            let half_closed = self.actor.half_closed.load(Ordering::Relaxed);
            self.stage.answer(&self.actor, |call| {
                half_closed || !matches!(call, Call::Reserve { timeout: None })
            });
        }
    }

    fn may_read(&self) -> bool {
        !self.actor.stopped.load(Ordering::Relaxed)
    }

    async fn wait_readable(&self) {
        self.actor.go_on.notified().await;
    }

    async fn wait_room(&self, _: usize) {}

    fn hung_up(&self) {
        self.actor.half_closed.store(true, Ordering::Relaxed);
        self.stage.answer(&self.actor, |_| true);
    }

    fn half_closed(&self) {
        self.hung_up();
    }
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        self.stage.0.actors.lock().remove(&self.number);
    }
}

/// The other end of a socket.
pub(crate) struct Client(pub(crate) TcpStream);

impl From<TcpStream> for Client {
    fn from(stream: TcpStream) -> Self {
        Self(stream)
    }
}

impl Client {
    pub(crate) async fn says(&mut self, text: &str) {
        self.sends(text.as_bytes()).await;
    }

    pub(crate) async fn sends(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.0.write_all(bytes))
            .await
            .expect("the door reads")
            .expect("it is open");
    }

    pub(crate) async fn hears(&mut self, text: &str) {
        let mut heard = vec![0; text.len()];
        let mut filled = 0;
        let patience = sleep(PATIENCE);
        tokio::pin!(patience);
        while filled < heard.len() {
            tokio::select! {
                read = self.0.read(&mut heard[filled..]) => match read.expect("the connection lives") {
                    0 => break,
                    count => filled += count,
                },
                () = &mut patience => break,
            }
        }
        assert_eq!(String::from_utf8_lossy(&heard[..filled]), text);
    }

    /// The connection is closed, and nothing more was said.
    pub(crate) async fn hears_the_end(&mut self) {
        let mut rest = Vec::new();
        let end = timeout(PATIENCE, self.0.read_to_end(&mut rest))
            .await
            .expect("it is closed");
        assert!(end.is_ok() || rest.is_empty(), "{end:?}");
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }

    pub(crate) async fn hears_nothing_for(&mut self, time: Duration) {
        let mut byte = [0];
        let heard = timeout(time, self.0.read(&mut byte)).await;
        assert!(heard.is_err(), "heard {heard:?} {byte:?}");
    }
}

/// Waits for something with a bound.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "waited {PATIENCE:?} until {what}"
        );
        sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) async fn until_true(what: &str, mut look: impl FnMut() -> bool) {
    until(what, || {
        let found = look().then_some(());
        async move { found }
    })
    .await;
}
