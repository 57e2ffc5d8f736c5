use std::{
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore},
    time::{sleep, sleep_until},
};
use trellis_node::{Answer, CloseReason, Outlet};
use trellis_types::limits;

use crate::{
    backlog::{Backlog, Next, Piece},
    ledger::{Debtor, Ledger, Seat},
    replies::{self, Owing},
    socket::Socket,
};

/// Bytes of replies that may wait for a client to read before its commands are not read any more.
/// With what was submitted before, this bounds what one slow client can make the node keep.
pub(crate) const WAITING_BYTES_MAX: usize = 64 * 1024;

/// How long the last replies may make no progress when the session is over already.
const FAREWELL: Duration = Duration::from_secs(30);

/// One connection's way out: takes answers on whatever thread they come, encodes them, and writes
/// at once what the socket takes. The rest waits here, in order, for the connection's own task
/// ([`Outbox::write_rest`]).
pub(crate) struct Outbox {
    me: Weak<Self>,
    state: Mutex<State>,
    /// Wakes the task that writes.
    left: Notify,
    /// Wakes the task that reads, when it waits for the client to read.
    room: Notify,
    evicted: AtomicBool,
    /// How many connections may have a thread read bodies from disk at once.
    fetches: Arc<Semaphore>,
}

struct State {
    backlog: Backlog,
    /// Calls handed to the node and not answered.
    unanswered: usize,
    /// One of them can have an answer of any length.
    heavy: bool,
    /// The reader waits for `room`.
    reader_waits: bool,
    /// The client sends nothing more.
    input_over: bool,
    /// The session is over; what waits is still written.
    closing: Option<CloseReason>,
    seat: Seat<Outbox>,
}

impl State {
    /// Whether nothing more will be said when the backlog is written.
    fn is_over(&self) -> bool {
        self.closing.is_some() || self.input_over && self.unanswered == 0
    }
}

/// How a connection's writing ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// All is answered and written: say goodbye.
    Orderly,
    /// The socket is dead, or the connection was told to go.
    Broken,
}

impl Outbox {
    pub(crate) fn new(
        socket: Arc<Socket>,
        ledger: &Arc<Ledger<Self>>,
        fetches: Arc<Semaphore>,
    ) -> Arc<Self> {
        let seat = ledger.seat();
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            state: Mutex::new(State {
                backlog: Backlog::new(socket),
                unanswered: 0,
                heavy: false,
                reader_waits: false,
                input_over: false,
                closing: None,
                seat,
            }),
            left: Notify::new(),
            room: Notify::new(),
            evicted: AtomicBool::new(false),
            fetches,
        })
    }

    /// A handle for ledgers.
    pub(crate) fn debtor(&self) -> &Weak<Self> {
        &self.me
    }

    /// How many more calls may be handed to the node now.
    pub(crate) fn may_submit(&self) -> usize {
        let state = self.state.lock();
        if state.heavy || state.backlog.bytes() >= WAITING_BYTES_MAX || state.closing.is_some() {
            0
        } else {
            limits::CONNECTION_PIPELINE_MAX.saturating_sub(state.unanswered)
        }
    }

    /// Waits until [`Self::may_submit`] allows something.
    pub(crate) async fn room(&self) {
        loop {
            {
                let mut state = self.state.lock();
                let full = state.heavy
                    || state.backlog.bytes() >= WAITING_BYTES_MAX
                    || state.unanswered >= limits::CONNECTION_PIPELINE_MAX;
                state.reader_waits = full;
                // When the session is over nothing is read any more; the writing half ends the
                // connection.
                if !full && state.closing.is_none() {
                    return;
                }
            }
            self.room.notified().await;
        }
    }

    /// Notes that `calls` are about to be handed to the node; `heavy` if the last of them can have
    /// an answer of any length: nothing is submitted behind it until it is answered.
    pub(crate) fn submitting(&self, calls: usize, heavy: bool) {
        let mut state = self.state.lock();
        state.unanswered += calls;
        state.heavy |= heavy;
    }

    /// Notes that the client sends nothing more: when everything is answered and written the
    /// connection is over.
    pub(crate) fn input_is_over(&self) {
        self.state.lock().input_over = true;
        self.left.notify_one();
    }

    /// Writes what the socket did not take at once, for as long as the connection lives. Returns
    /// how it ended. Runs in the connection's task, beside its reading.
    pub(crate) async fn write_rest(&self, socket: &Socket) -> Finish {
        loop {
            let (next, over) = {
                let mut state = self.state.lock();
                if state.backlog.flush().is_err() || self.evicted.load(Ordering::Relaxed) {
                    return Finish::Broken;
                }
                self.settle(&mut state);
                (state.backlog.next(), state.is_over())
            };
            match next {
                Next::Nothing if over => return Finish::Orderly,
                Next::Nothing => self.left.notified().await,
                Next::Wait => {
                    // An eviction has to get through to one who never reads.
                    tokio::select! {
                        ready = socket.writable() => {
                            if ready.is_err() {
                                return Finish::Broken;
                            }
                        }
                        () = self.left.notified() => {}
                        () = sleep(FAREWELL), if over => return Finish::Broken,
                    }
                }
                Next::Fetch(owing) => {
                    if !self.admitted(owing.iter().map(Owing::bytes).sum()).await {
                        return Finish::Broken;
                    }
                    match self.fetch(owing).await {
                        Ok(pieces) => self.state.lock().backlog.fetched(pieces),
                        Err(_) => return Finish::Broken,
                    }
                }
            }
        }
    }

    /// Waits until there is room in memory for `bytes` that are to be fetched; false if the
    /// connection has to go instead. What it keeps meanwhile is not its client's fault.
    async fn admitted(&self, bytes: usize) -> bool {
        let ledger = {
            let mut state = self.state.lock();
            state.seat.excuse();
            self.settle(&mut state);
            Arc::clone(state.seat.ledger())
        };
        let turn = ledger.turn();
        tokio::pin!(turn);
        let _turn = loop {
            tokio::select! {
                turn = &mut turn => break turn,
                () = self.left.notified() => if self.is_evicted() { return false },
            }
        };
        loop {
            if self.is_evicted() {
                return false;
            }
            let again = {
                let mut state = self.state.lock();
                match state.seat.grow(bytes, &self.me) {
                    Ok(()) => {
                        state.backlog.admit();
                        self.settle(&mut state);
                        return true;
                    }
                    Err(again) => again,
                }
            };
            tokio::select! {
                () = ledger.freed() => {}
                () = sleep_until(again) => {}
                () = self.left.notified() => {}
            }
        }
    }

    /// Reads owed bodies from disk on a thread that may block.
    async fn fetch(&self, owing: Vec<Owing>) -> io::Result<Vec<Piece>> {
        let _permit = self.fetches.acquire().await.map_err(io::Error::other)?;
        let read = tokio::task::spawn_blocking(move || {
            let mut pieces = Vec::new();
            let mut text = BytesMut::new();
            for owing in owing {
                let reply = owing.read().inspect_err(|error| {
                    tracing::error!(job = %owing.job(), %error, "cannot read a body");
                })?;
                if let Some(body) = replies::encode(&reply, &mut text) {
                    pieces.push(Piece::Encoded(text.split()));
                    pieces.push(Piece::Body(body));
                    text.extend_from_slice(b"\r\n");
                }
            }
            pieces.push(Piece::Encoded(text));
            Ok(pieces)
        });
        read.await.map_err(io::Error::other)?
    }

    /// Brings ledger and reader up to date after anything was queued or written.
    fn settle(&self, state: &mut State) {
        let waiting = state.backlog.bytes();
        let (held, moved) = (state.backlog.held(), state.backlog.has_moved());
        state.seat.set(held, moved, &self.me);
        if state.reader_waits
            && !state.heavy
            && waiting < WAITING_BYTES_MAX
            && state.unanswered < limits::CONNECTION_PIPELINE_MAX
        {
            state.reader_waits = false;
            self.room.notify_one();
        }
    }

    /// Whether the connection was closed because others need its memory.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Drops the socket and what waits; the node may hold the outbox a little longer.
    pub(crate) fn hang_up(&self) {
        let mut state = self.state.lock();
        state.backlog.end();
        self.settle(&mut state);
    }
}

impl Outlet for Outbox {
    fn deliver(&self, answers: &mut Vec<Answer>) {
        let mut state = self.state.lock();
        state.unanswered = state.unanswered.saturating_sub(answers.len());
        // Only the last call can be heavy, so when all are answered it is.
        state.heavy &= state.unanswered > 0;
        if state.backlog.is_over() {
            answers.clear();
            return;
        }
        let written = SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            for answer in answers.drain(..) {
                state.backlog.queue(answer, scratch);
            }
            let written = state.backlog.flush_with(scratch);
            if scratch.capacity() > SCRATCH_BYTES_MAX {
                *scratch = BytesMut::new();
            }
            written
        });
        self.settle(&mut state);
        let wake = written.is_err() || !state.backlog.is_empty() || state.is_over();
        drop(state);
        if wake {
            self.left.notify_one();
        }
    }

    fn close(&self, why: CloseReason) {
        let mut state = self.state.lock();
        // A client that has shut its sending side may have left input that is not read yet; the
        // connection is over when that is answered too.
        if why == CloseReason::HalfClosed && !state.input_over {
            return;
        }
        state.closing.get_or_insert(why);
        drop(state);
        self.left.notify_one();
    }
}

impl Debtor for Outbox {
    fn evict(&self) {
        self.evicted.store(true, Ordering::Relaxed);
        self.left.notify_one();
    }
}

thread_local! {
    /// Where replies are encoded, so that a connection needs no buffer of its own while its client
    /// reads what it gets.
    static SCRATCH: std::cell::RefCell<BytesMut> = std::cell::RefCell::new(BytesMut::new());
}

/// What a thread keeps of [`SCRATCH`] between two rounds.
const SCRATCH_BYTES_MAX: usize = 1024 * 1024;
