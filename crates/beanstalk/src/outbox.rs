use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::{Buf as _, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use trellis_node::{Answer, CloseReason, Outlet};
use trellis_types::limits;

use crate::{
    ledger::{Debtor, Ledger, Seat},
    replies::{self, Owing, Wired},
    socket::Socket,
};

/// Bytes of replies that may wait for a client to read before its commands are not read any more.
/// With what was submitted before, this bounds what one slow client can make the node keep.
pub(crate) const WAITING_BYTES_MAX: usize = 64 * 1024;

/// Body bytes that are fetched from disk at once for one connection; one body may be larger.
const FETCH_BYTES: usize = 256 * 1024;

/// Slices of one vectored write.
const SLICES: usize = 16;

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
    /// Gone when the connection is over: the node may keep the outbox longer than the socket.
    socket: Option<Arc<Socket>>,
    pieces: VecDeque<Piece>,
    /// Bytes in `pieces`, bodies that are not here included.
    waiting: usize,
    /// So many bytes that the task has taken off the front of `pieces`, to read them from disk;
    /// nothing may be written before they are back. They count as waiting.
    fetching: Option<usize>,
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

enum Piece {
    Encoded(BytesMut),
    Body(Bytes),
    Owing(Owing),
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
                socket: Some(socket),
                pieces: VecDeque::new(),
                waiting: 0,
                fetching: None,
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
        if state.heavy || state.waiting >= WAITING_BYTES_MAX || state.closing.is_some() {
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
                    || state.waiting >= WAITING_BYTES_MAX
                    || state.unanswered >= limits::CONNECTION_PIPELINE_MAX;
                state.reader_waits = full;
                if !full {
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
            let todo = {
                let mut state = self.state.lock();
                if state.flush().is_err() || self.evicted.load(Ordering::Relaxed) {
                    return Finish::Broken;
                }
                self.settle(&mut state);
                state.todo()
            };
            match todo {
                Todo::Nothing => self.left.notified().await,
                Todo::Finished => return Finish::Orderly,
                Todo::Wait => {
                    // An eviction has to get through to one who never reads.
                    tokio::select! {
                        ready = socket.ready(tokio::io::Interest::WRITABLE) => {
                            if ready.is_err() {
                                return Finish::Broken;
                            }
                        }
                        () = self.left.notified() => {}
                    }
                }
                Todo::Fetch(owing) => {
                    let fetched = self.fetch(owing).await;
                    let mut state = self.state.lock();
                    state.waiting -= state.fetching.take().unwrap_or(0);
                    let Ok(pieces) = fetched else {
                        return Finish::Broken;
                    };
                    pieces
                        .into_iter()
                        .rev()
                        .for_each(|piece| state.unshift(piece));
                }
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
        let waiting = state.waiting;
        state.seat.set(waiting, false, &self.me);
        if state.reader_waits
            && !state.heavy
            && waiting < WAITING_BYTES_MAX
            && state.unanswered < limits::CONNECTION_PIPELINE_MAX
        {
            state.reader_waits = false;
            self.room.notify_one();
        }
    }

    /// Drops the socket and what waits; the node may hold the outbox a little longer.
    pub(crate) fn hang_up(&self) {
        let mut state = self.state.lock();
        state.socket = None;
        state.pieces = VecDeque::new();
        state.waiting = 0;
        state.fetching = None;
        self.settle(&mut state);
    }
}

impl Outlet for Outbox {
    fn deliver(&self, answers: &mut Vec<Answer>) {
        let mut state = self.state.lock();
        state.unanswered = state.unanswered.saturating_sub(answers.len());
        // Only the last call can be heavy, so when all are answered it is.
        state.heavy &= state.unanswered > 0;
        if state.socket.is_none() {
            answers.clear();
            return;
        }
        let written = SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            for answer in answers.drain(..) {
                state.queue(answer, scratch);
            }
            let written = state.flush_with(scratch);
            if scratch.capacity() > SCRATCH_BYTES_MAX {
                *scratch = BytesMut::new();
            }
            written
        });
        self.settle(&mut state);
        let wake = written.is_err()
            || !state.pieces.is_empty()
            || state.closing.is_some()
            || state.input_over && state.unanswered == 0;
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

enum Todo {
    /// Nothing waits.
    Nothing,
    /// The socket is full.
    Wait,
    /// The socket has room and the next thing is a body that is not here.
    Fetch(Vec<Owing>),
    /// All is said.
    Finished,
}

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Self::Encoded(text) => text.len(),
            Self::Body(body) => body.len(),
            Self::Owing(owing) => owing.bytes(),
        }
    }

    fn here(&self) -> Option<&[u8]> {
        match self {
            Self::Encoded(text) => Some(text),
            Self::Body(body) => Some(body),
            Self::Owing(_) => None,
        }
    }
}

impl State {
    /// Encodes one answer behind what waits: into `scratch` while that is all there is.
    fn queue(&mut self, answer: Answer, scratch: &mut BytesMut) {
        match replies::wired(answer) {
            Wired::Whole(reply) => self.append(&reply, scratch),
            // When nothing is held up a body that is in memory goes straight out. Behind something
            // that waits it stays where it is: memory is not to fill with what nobody reads.
            Wired::Owing(owing) => {
                match owing
                    .ready()
                    .filter(|_| scratch.len() + self.waiting < WAITING_BYTES_MAX)
                {
                    Some(reply) => self.append(&reply, scratch),
                    None => {
                        self.push_scratch(scratch);
                        self.push(Piece::Owing(owing));
                    }
                }
            }
        }
    }

    fn append(&mut self, reply: &trellis_wire::beanstalk::Reply, scratch: &mut BytesMut) {
        if let Some(body) = replies::encode(reply, scratch) {
            self.push_scratch(scratch);
            self.push(Piece::Body(body));
            scratch.extend_from_slice(b"\r\n");
        }
    }

    fn push(&mut self, piece: Piece) {
        self.waiting += piece.bytes();
        self.pieces.push_back(piece);
    }

    /// Moves what is encoded behind what waits.
    fn push_scratch(&mut self, scratch: &mut BytesMut) {
        if scratch.is_empty() {
            return;
        }
        self.waiting += scratch.len();
        match self.pieces.back_mut() {
            Some(Piece::Encoded(text)) => text.extend_from_slice(scratch),
            _ => self
                .pieces
                .push_back(Piece::Encoded(BytesMut::from(&scratch[..]))),
        }
        scratch.clear();
    }

    /// Writes what waits and then `scratch`; what the socket does not take waits.
    fn flush_with(&mut self, scratch: &mut BytesMut) -> io::Result<()> {
        if self.pieces.is_empty() && self.fetching.is_none() {
            if let Some(socket) = &self.socket {
                while !scratch.is_empty() {
                    match socket.try_write(scratch) {
                        Ok(count) => scratch.advance(count),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => {
                            scratch.clear();
                            return Err(error);
                        }
                    }
                }
            }
            self.push_scratch(scratch);
            return Ok(());
        }
        self.push_scratch(scratch);
        self.flush()
    }

    /// Writes from the front of what waits as much as the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        let Some(socket) = self.socket.clone() else {
            return Ok(());
        };
        while self.fetching.is_none() && self.front_is_here() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, bytes) in slices
                .iter_mut()
                .zip(self.pieces.iter().map_while(Piece::here))
            {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
            match socket.try_write_vectored(&slices[..count]) {
                Ok(written) => self.advance(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.pieces.is_empty() && self.pieces.capacity() > SLICES {
            self.pieces = VecDeque::new();
        }
        Ok(())
    }

    /// Whether the next thing can be written; a body that turns out to be in memory can.
    fn front_is_here(&mut self) -> bool {
        let Some(Piece::Owing(owing)) = self.pieces.front() else {
            return !self.pieces.is_empty();
        };
        let (Some(reply), bytes) = (owing.ready(), owing.bytes()) else {
            return false;
        };
        self.pieces.pop_front();
        self.waiting -= bytes;
        let mut text = BytesMut::new();
        if let Some(body) = replies::encode(&reply, &mut text) {
            self.unshift(Piece::Encoded(BytesMut::from(&b"\r\n"[..])));
            self.unshift(Piece::Body(body));
        }
        self.unshift(Piece::Encoded(text));
        true
    }

    fn unshift(&mut self, piece: Piece) {
        self.waiting += piece.bytes();
        self.pieces.push_front(piece);
    }

    /// Takes `written` bytes off the front.
    fn advance(&mut self, mut written: usize) {
        self.waiting -= written;
        while let Some(front) = self.pieces.front_mut() {
            let length = front.bytes();
            if length > written {
                match front {
                    Piece::Encoded(text) => text.advance(written),
                    Piece::Body(body) => body.advance(written),
                    Piece::Owing(_) => {}
                }
                return;
            }
            if matches!(front, Piece::Owing(_)) {
                return;
            }
            written -= length;
            self.pieces.pop_front();
        }
    }

    /// What the task has to do now that [`Self::flush`] has written what it could.
    fn todo(&mut self) -> Todo {
        match self.pieces.front() {
            Some(Piece::Owing(_)) => Todo::Fetch(self.take_owing()),
            Some(_) => Todo::Wait,
            None if self.closing.is_some() || self.input_over && self.unanswered == 0 => {
                Todo::Finished
            }
            None => Todo::Nothing,
        }
    }

    /// Takes a portion of owed bodies off the front; [`Self::fetching`] until it is back.
    fn take_owing(&mut self) -> Vec<Owing> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(Piece::Owing(owing)) = self.pieces.front() {
            if bytes > 0 && bytes + owing.bytes() > FETCH_BYTES {
                break;
            }
            bytes += owing.bytes();
            if let Some(Piece::Owing(owing)) = self.pieces.pop_front() {
                taken.push(owing);
            }
        }
        self.fetching = Some(bytes);
        taken
    }
}
