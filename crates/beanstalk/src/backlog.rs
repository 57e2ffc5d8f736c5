use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::Arc,
};

use bytes::{Buf as _, Bytes, BytesMut};
use trellis_node::Answer;
use trellis_wire::beanstalk::Reply;

use crate::{
    outbox::WAITING_BYTES_MAX,
    replies::{self, Owing, Wired},
    socket::Socket,
};

/// Body bytes that are fetched from disk at once for one connection; one body may be larger.
const FETCH_BYTES: usize = 256 * 1024;

/// Slices of one vectored write.
const SLICES: usize = 16;

/// The replies of one connection that its socket did not take yet, in order. Knows no task: it
/// writes what can be written at once, and says what has to happen for the rest.
pub(crate) struct Backlog {
    /// Gone when the connection is over: the node may keep its outlet longer than the socket.
    socket: Option<Arc<Socket>>,
    pieces: VecDeque<Piece>,
    /// Bytes of `pieces`, bodies that are not here included, and of what is being fetched.
    bytes: usize,
    /// Those of them that are in memory.
    held: usize,
    /// Something was written since [`Self::has_moved`] was asked.
    moved: bool,
    /// So many bytes were taken off the front, to be read from disk; nothing may be written
    /// before they are back.
    fetching: Option<usize>,
    /// There is room for them, and it is theirs.
    admitted: bool,
}

/// A part of what waits.
pub(crate) enum Piece {
    /// Encoded replies.
    Encoded(BytesMut),
    /// A long body, whose line stands before it and whose CRLF behind it.
    Body(Bytes),
    /// A reply whose body is not here; how much of memory it takes up.
    Owing(Owing, usize),
}

/// What has to happen before more can be written.
pub(crate) enum Next {
    /// Nothing waits.
    Nothing,
    /// The socket is full.
    Wait,
    /// The socket has room and the next thing is a body that is not here.
    Fetch(Vec<Owing>),
}

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Self::Encoded(text) => text.len(),
            Self::Body(body) => body.len(),
            Self::Owing(owing, _) => owing.bytes(),
        }
    }

    fn held(&self) -> usize {
        match self {
            Self::Owing(_, held) => *held,
            here => here.bytes(),
        }
    }

    fn here(&self) -> Option<&[u8]> {
        match self {
            Self::Encoded(text) => Some(text),
            Self::Body(body) => Some(body),
            Self::Owing(..) => None,
        }
    }
}

impl Backlog {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self {
            socket: Some(socket),
            pieces: VecDeque::new(),
            bytes: 0,
            held: 0,
            moved: false,
            fetching: None,
            admitted: false,
        }
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes in memory: here, or about to be.
    pub(crate) fn held(&self) -> usize {
        let coming = self.fetching.filter(|_| self.admitted).unwrap_or(0);
        self.held + coming
    }

    /// Whether the client's socket took something since this was asked last.
    pub(crate) fn has_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// There is room for what is to be fetched.
    pub(crate) fn admit(&mut self) {
        self.admitted = true;
    }

    /// Whether everything is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.fetching.is_none()
    }

    /// Whether the socket is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.socket.is_none()
    }

    /// Lets go of the socket and of everything that waits.
    pub(crate) fn end(&mut self) {
        self.socket = None;
        self.pieces = VecDeque::new();
        self.bytes = 0;
        self.held = 0;
        self.fetching = None;
    }

    /// Encodes one answer behind what waits: into `scratch` while that is all there is.
    pub(crate) fn queue(&mut self, answer: Answer, scratch: &mut BytesMut) {
        match replies::wired(answer) {
            Wired::Whole(reply) => self.append(&reply, scratch),
            // When nothing is held up a body that is in memory goes straight out. Behind something
            // that waits it stays where it is: memory is not to fill with what nobody reads.
            Wired::Owing(owing) => {
                match owing
                    .ready()
                    .filter(|_| scratch.len() + self.bytes < WAITING_BYTES_MAX)
                {
                    Some(reply) => self.append(&reply, scratch),
                    None => {
                        self.push_scratch(scratch);
                        // Who asks for one job again and again gets the same bytes of memory. The
                        // one behind is at the front, and counts, when this one is written.
                        let again = matches!(
                            self.pieces.back(),
                            Some(Piece::Owing(last, _)) if last.job() == owing.job()
                        );
                        let held = if again { 0 } else { owing.held() };
                        self.push(Piece::Owing(owing, held));
                    }
                }
            }
        }
    }

    fn append(&mut self, reply: &Reply, scratch: &mut BytesMut) {
        if let Some(body) = replies::encode(reply, scratch) {
            self.push_scratch(scratch);
            self.push(Piece::Body(body));
            scratch.extend_from_slice(b"\r\n");
        }
    }

    fn push(&mut self, piece: Piece) {
        self.bytes += piece.bytes();
        self.held += piece.held();
        self.pieces.push_back(piece);
    }

    /// Moves what is encoded behind what waits.
    fn push_scratch(&mut self, scratch: &mut BytesMut) {
        if scratch.is_empty() {
            return;
        }
        self.bytes += scratch.len();
        self.held += scratch.len();
        match self.pieces.back_mut() {
            Some(Piece::Encoded(text)) => text.extend_from_slice(scratch),
            _ => self
                .pieces
                .push_back(Piece::Encoded(BytesMut::from(&scratch[..]))),
        }
        scratch.clear();
    }

    /// Writes what waits and then `scratch`; what the socket does not take waits.
    pub(crate) fn flush_with(&mut self, scratch: &mut BytesMut) -> io::Result<()> {
        if self.pieces.is_empty() && self.fetching.is_none() {
            if let Some(socket) = &self.socket {
                while !scratch.is_empty() {
                    match socket.try_write(scratch) {
                        Ok(count) => {
                            self.moved |= count > 0;
                            scratch.advance(count);
                        }
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
    pub(crate) fn flush(&mut self) -> io::Result<()> {
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
        let Some(Piece::Owing(owing, held)) = self.pieces.front() else {
            return !self.pieces.is_empty();
        };
        let (Some(reply), bytes, held) = (owing.ready(), owing.bytes(), *held) else {
            return false;
        };
        self.pieces.pop_front();
        self.bytes -= bytes;
        self.held -= held;
        let mut text = BytesMut::new();
        if let Some(body) = replies::encode(&reply, &mut text) {
            self.unshift(Piece::Encoded(BytesMut::from(&b"\r\n"[..])));
            self.unshift(Piece::Body(body));
        }
        self.unshift(Piece::Encoded(text));
        true
    }

    fn unshift(&mut self, piece: Piece) {
        self.bytes += piece.bytes();
        self.held += piece.held();
        self.pieces.push_front(piece);
    }

    /// Takes `written` bytes off the front.
    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        self.held -= written;
        self.moved |= written > 0;
        while let Some(front) = self.pieces.front_mut() {
            let length = front.bytes();
            if length > written {
                match front {
                    Piece::Encoded(text) => text.advance(written),
                    Piece::Body(body) => body.advance(written),
                    Piece::Owing(..) => {}
                }
                return;
            }
            if matches!(front, Piece::Owing(..)) {
                return;
            }
            written -= length;
            self.pieces.pop_front();
        }
    }

    /// What has to happen now that [`Self::flush`] has written what it could.
    pub(crate) fn next(&mut self) -> Next {
        match self.pieces.front() {
            Some(Piece::Owing(..)) => Next::Fetch(self.take_owing()),
            Some(_) => Next::Wait,
            None => Next::Nothing,
        }
    }

    /// Puts what was fetched where it was taken from.
    pub(crate) fn fetched(&mut self, pieces: Vec<Piece>) {
        self.bytes -= self.fetching.take().unwrap_or(0);
        self.admitted = false;
        // It is the client's turn now; how long the disk took is not its doing.
        self.moved = true;
        pieces
            .into_iter()
            .rev()
            .for_each(|piece| self.unshift(piece));
    }

    /// Takes a portion of owed bodies off the front; [`Self::fetching`] until it is back.
    fn take_owing(&mut self) -> Vec<Owing> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(Piece::Owing(owing, held)) = self.pieces.front() {
            if bytes > 0 && bytes + owing.bytes() > FETCH_BYTES {
                break;
            }
            bytes += owing.bytes();
            self.held -= held;
            if let Some(Piece::Owing(owing, _)) = self.pieces.pop_front() {
                taken.push(owing);
            }
        }
        self.fetching = Some(bytes);
        taken
    }
}
