use std::{future::Future, io, sync::Arc, time::Duration};

use bytes::BytesMut;
use tokio::{task::yield_now, time::timeout};
use tokio_util::sync::CancellationToken;
use trellis_node::Call;
use trellis_types::limits;
use trellis_wire::beanstalk::{Decoder, Step};

use crate::{
    backing::{Backing, Talk},
    calls,
    door::Shared,
    large::{LargeBodies, Place},
    ledger::Seat,
    outbox::{Finish, Outbox},
    socket::Socket,
};

/// Bytes that a connection reads at first, and keeps a buffer for while it is idle.
const READ_BYTES_MIN: usize = 2 * 1024;

/// Bytes that one read takes at most; reads of a busy connection grow up to here.
const READ_BYTES_MAX: usize = 64 * 1024;

/// How often a large body's sender is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Bytes of an unfinished body up to which a connection needs no place in the ledger.
const BODY_BYTES_FREE: usize = 4 * 1024;

/// A connection that the node has let in.
pub(crate) struct Connection<S> {
    socket: Arc<Socket>,
    outbox: Arc<Outbox>,
    session: S,
}

impl<S> Connection<S> {
    /// Asks the node to let a connection in; one that it refuses is closed at once.
    pub(crate) fn let_in<B: Backing<Session = S>>(
        backing: &B,
        socket: Socket,
        shared: &Shared,
    ) -> Option<Self> {
        let socket = Arc::new(socket);
        let fetches = Arc::clone(&shared.fetches);
        let outbox = Outbox::new(Arc::clone(&socket), &shared.owed, fetches);
        match backing.connect(outbox.clone()) {
            Ok(session) => Some(Self {
                socket,
                outbox,
                session,
            }),
            Err(refused) => {
                shared.refusals.note(&refused);
                None
            }
        }
    }
}

/// Serves one connection until it is over, or until `closed`.
pub(crate) async fn serve<S: Talk>(
    connection: Connection<S>,
    shared: Arc<Shared>,
    closed: CancellationToken,
) {
    let Connection {
        socket,
        outbox,
        session,
    } = connection;
    let reader = Reader {
        session: &session,
        socket: &socket,
        outbox: &outbox,
        decoder: Decoder::new(shared.body_bytes_max),
        read_bytes: READ_BYTES_MIN,
        calls: Vec::new(),
        arriving: shared.arriving.seat(),
        large_bodies: &shared.large,
        large: None,
        hung_up: false,
        waited: false,
    };
    let finish = {
        let reading = reader.run();
        let writing = outbox.write_rest(&socket);
        tokio::pin!(writing);
        tokio::select! {
            biased;
            () = closed.cancelled() => Finish::Broken,
            finish = &mut writing => finish,
            end = reading => match end {
                End::Broken => Finish::Broken,
                // Answers to what stands before it are on their way, or a reserve waits there.
                End::Quit => tokio::select! {
                    () = closed.cancelled() => Finish::Broken,
                    finish = writing => finish,
                    () = end_of(&socket, &session) => Finish::Broken,
                },
            },
        }
    };
    if outbox.is_evicted() {
        shared
            .evictions
            .note(&"slow clients keep too many bytes waiting, this one for longest");
    }
    if finish == Finish::Orderly {
        socket.farewell();
    }
    outbox.hang_up();
}

/// Watches a client that is not read any more: returns when it is gone, and ends its wait when it
/// shuts its sending side.
async fn end_of<S: Talk>(socket: &Socket, session: &S) {
    if let Ok(false) = socket.hung_up().await {
        session.hung_up();
        // Returns with an error or never.
        drop(socket.broken().await);
    }
}

/// How reading ends.
enum End {
    /// The client said `quit`: nothing behind it counts.
    Quit,
    /// The connection is dead.
    Broken,
}

/// The half of a connection that reads, decodes and submits.
struct Reader<'a, S> {
    session: &'a S,
    socket: &'a Socket,
    outbox: &'a Outbox,
    decoder: Decoder,
    /// Bytes that the next read asks for.
    read_bytes: usize,
    /// Kept between rounds while the connection is busy.
    calls: Vec<Call>,
    /// The place in the ledger of a body that is still arriving.
    arriving: Seat<Outbox>,
    large_bodies: &'a Arc<LargeBodies>,
    /// The place of a large body that is being read in.
    large: Option<Place>,
    /// The node has been told that the client shut its sending side, before the end of its input.
    hung_up: bool,
    /// The last read had to wait for the client, and others had their turn meanwhile.
    waited: bool,
}

/// What a round of decoding came to.
enum Round {
    /// Everything whole is submitted.
    NeedMore,
    /// A bound is reached; there may be more.
    Full,
    /// `quit` is submitted.
    Quit,
}

impl<S: Talk> Reader<'_, S> {
    /// Reads for as long as there is something to read. When the client has shut its sending side
    /// it only waits for the connection to break: the writing half knows when all is answered.
    async fn run(mut self) -> End {
        loop {
            match self.submit_whole() {
                Round::Quit => return End::Quit,
                Round::Full => {
                    if self.wait_for_room().await.is_err() {
                        return End::Broken;
                    }
                    continue;
                }
                Round::NeedMore => {}
            }
            match self.read().await {
                Ok(0) => break,
                // A client that always has something to say must not keep its thread from all
                // others: between two rounds it is their turn.
                Ok(_) if !std::mem::take(&mut self.waited) => yield_now().await,
                Ok(_) => {}
                Err(_) => return End::Broken,
            }
        }
        self.arriving.set(0, false, self.outbox.debtor());
        self.large = None;
        self.session.half_closed();
        self.outbox.input_is_over();
        // Returns at once with an error, or never: then the writing half ends the connection.
        drop(self.socket.broken().await);
        End::Broken
    }

    /// Decodes everything whole that has arrived and submits it at once.
    fn submit_whole(&mut self) -> Round {
        loop {
            let room = self.outbox.may_submit();
            if room == 0 || !self.session.may_read() {
                return Round::Full;
            }
            let mut quit = false;
            let mut heavy = false;
            let mut answers = 0;
            let mut over = false;
            while answers < room && !heavy {
                match self.decoder.step() {
                    Step::NeedMore => {
                        over = true;
                        break;
                    }
                    Step::Refuse { refusal, counts } => {
                        self.calls.push(calls::refused(refusal, counts));
                        answers += 1;
                    }
                    Step::Request(request) => {
                        let call = calls::call(request);
                        quit = matches!(call, Call::Quit);
                        heavy = matches!(call, Call::ListTubes);
                        self.calls.push(call);
                        if quit {
                            break;
                        }
                        answers += 1;
                    }
                }
            }
            if !self.calls.is_empty() {
                self.outbox.submitting(answers, heavy);
                self.session.submit(&mut self.calls);
                self.calls.clear();
            }
            if quit {
                return Round::Quit;
            }
            if over {
                return Round::NeedMore;
            }
        }
    }

    /// Waits until more may be submitted.
    async fn wait_for_room(&mut self) -> io::Result<()> {
        let (session, outbox) = (self.session, self.outbox);
        self.while_connected(async {
            outbox.room().await;
            while !session.may_read() {
                session.wait_readable().await;
            }
        })
        .await
    }

    /// Waits for `room` without reading, and notices when the client hangs up meanwhile: unread
    /// input would hide it.
    async fn while_connected<T>(&mut self, room: impl Future<Output = T>) -> io::Result<T> {
        tokio::pin!(room);
        if !self.hung_up {
            tokio::select! {
                biased;
                room = &mut room => return Ok(room),
                gone = self.socket.hung_up() => {
                    if gone? {
                        return Err(io::ErrorKind::ConnectionReset.into());
                    }
                    // Whoever waits in a reserve is answered now (specification, 1.10); what is
                    // still unread is read, carried out and answered all the same.
                    self.hung_up = true;
                    self.session.hung_up();
                }
            }
        }
        tokio::select! {
            biased;
            room = room => Ok(room),
            broken = self.socket.broken() => broken.and(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }

    /// Reads once; 0 is the end of the input.
    async fn read(&mut self) -> io::Result<usize> {
        let wanted = match self.decoder.pending_body() {
            None => {
                self.arriving.set(0, false, self.outbox.debtor());
                self.large = None;
                self.read_bytes
            }
            Some(left) => {
                self.admit_body().await?;
                left.min(READ_BYTES_MAX).max(self.read_bytes)
            }
        };
        loop {
            let buffer = self.decoder.buffer_mut();
            buffer.reserve(wanted);
            match self.socket.try_read_buf(buffer) {
                Ok(count) => {
                    self.read_bytes = if count >= self.read_bytes {
                        (self.read_bytes * 2).min(READ_BYTES_MAX)
                    } else {
                        self.read_bytes
                    };
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            self.rest();
            self.waited = true;
            self.readable().await?;
        }
    }

    /// Waits until more of the body under way may be read in.
    async fn admit_body(&mut self) -> io::Result<()> {
        let here = self.decoder.buffered();
        if here > BODY_BYTES_FREE {
            self.arriving.set(here, true, self.outbox.debtor());
        }
        let (session, whole) = (
            self.session,
            self.decoder.body_announced().unwrap_or(0) as usize,
        );
        if whole < limits::LARGE_BODY_BYTES_MIN {
            return self.while_connected(session.wait_room(0)).await;
        }
        if self.large.is_none() {
            let place = Arc::clone(self.large_bodies).enter(whole);
            self.large = self.while_connected(place).await?;
            self.while_connected(session.wait_room(whole)).await?;
        }
        Ok(())
    }

    /// Waits for more to read. A large body that comes too slowly ends the connection if others
    /// wait for its place.
    async fn readable(&self) -> io::Result<()> {
        let Some(place) = &self.large else {
            return self.socket.readable().await;
        };
        loop {
            if place.is_overdue() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Ok(ready) = timeout(LOOK, self.socket.readable()).await {
                return ready;
            }
        }
    }

    /// Gives memory back before a wait that may last for hours.
    fn rest(&mut self) {
        let buffer = self.decoder.buffer_mut();
        if buffer.is_empty() {
            *buffer = BytesMut::new();
        }
        if self.calls.capacity() > 16 {
            self.calls = Vec::new();
        }
        self.read_bytes = READ_BYTES_MIN;
    }
}
