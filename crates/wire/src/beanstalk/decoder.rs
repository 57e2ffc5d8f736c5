use bytes::{Buf, Bytes, BytesMut};
use trellis_types::limits::LINE_BYTES_MAX;

use super::{
    Counted, Refusal, Request,
    line::{self, Line, PutHead},
};

/// Bodies of at least this many bytes are handed out as a slice of the read buffer. Shorter ones
/// are copied: a few hundred bytes cost less to copy than a whole read buffer costs to pin.
pub const SHARED_BODY_BYTES_MIN: usize = 2_048;

/// Turns the bytes of one connection into requests. Knows nothing of sockets, tasks or time.
///
/// Holds no more than one command line, or one body, beyond what it was last given: an over-long
/// line and an over-long body are thrown away as they arrive, and the buffer grows only with bytes
/// that have arrived. The caller bounds how much it feeds before it steps.
///
/// Source: protocol specification, sections 1 and 2.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    state: State,
    body_bytes_max: u32,
}

/// What the next whole thing in the buffer is.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A well-formed command, with its body if it has one.
    Request(Request),
    /// Something that gets a word of refusal instead.
    Refuse {
        /// Which word; see also [`Refusal::makes_producer`].
        refusal: Refusal,
        /// The counter that it raises all the same.
        counts: Option<Counted>,
    },
    /// Nothing whole; feed more.
    NeedMore,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A command line; its first `scanned` bytes are known to end no line.
    Line { scanned: usize },
    /// The rest of a line that is too long; `after_cr` if the last byte thrown away was a CR.
    LongLine { after_cr: bool },
    /// A body and its CRLF.
    Body(PutHead),
    /// The rest of a body that is too big, its trailer included.
    Swallow { left: u64 },
}

impl Decoder {
    /// For a new connection. `body_bytes_max` is max-job-size, in bytes.
    pub fn new(body_bytes_max: u32) -> Self {
        Self {
            buffer: BytesMut::new(),
            state: State::Line { scanned: 0 },
            body_bytes_max,
        }
    }

    /// Appends what the client sent.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Where to read a socket straight into. Only append to it.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Bytes that have arrived and are not consumed yet.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes that are still to arrive of the body under way, its CRLF included; `None` outside a
    /// body. For admission: a body that will be thrown away is none. Valid after a step that said
    /// [`Step::NeedMore`].
    pub fn pending_body(&self) -> Option<usize> {
        match self.state {
            State::Body(head) => {
                Some((head.body_bytes as usize + 2).saturating_sub(self.buffer.len()))
            }
            _ => None,
        }
    }

    /// The length that the put under way announced, without its CRLF; `None` outside a body.
    pub fn body_announced(&self) -> Option<u32> {
        match self.state {
            State::Body(head) => Some(head.body_bytes),
            _ => None,
        }
    }

    /// Takes the next whole thing from the buffer. Call until it says [`Step::NeedMore`].
    pub fn step(&mut self) -> Step {
        loop {
            match self.state {
                State::Line { scanned } => {
                    let window = &self.buffer[..self.buffer.len().min(LINE_BYTES_MAX)];
                    let Some(length) = find_crlf(window, scanned) else {
                        if window.len() < LINE_BYTES_MAX {
                            self.state = State::Line {
                                scanned: window.len(),
                            };
                            return Step::NeedMore;
                        }
                        self.state = State::LongLine { after_cr: false };
                        continue;
                    };
                    let line = line::parse(&window[..length]);
                    self.buffer.advance(length + 2);
                    self.state = State::Line { scanned: 0 };
                    match line {
                        Ok(Line::Whole(request)) => return Step::Request(request),
                        Ok(Line::Put(head) | Line::PutWithTrail(head))
                            if head.body_bytes > self.body_bytes_max =>
                        {
                            self.state = State::Swallow {
                                left: u64::from(head.body_bytes) + 2,
                            };
                        }
                        Ok(Line::Put(head)) => self.state = State::Body(head),
                        Ok(Line::PutWithTrail(_)) => {
                            return Step::Refuse {
                                refusal: Refusal::BadFormat,
                                counts: Some(Counted::Put),
                            };
                        }
                        Err(refused) => {
                            return Step::Refuse {
                                refusal: refused.refusal,
                                counts: refused.counts,
                            };
                        }
                    }
                }
                State::LongLine { after_cr } => {
                    if let Some(length) = find_end(&self.buffer, after_cr) {
                        self.buffer.advance(length);
                        self.state = State::Line { scanned: 0 };
                        return Step::Refuse {
                            refusal: Refusal::BadFormat,
                            counts: None,
                        };
                    }
                    let after_cr = self.buffer.last().map_or(after_cr, |last| *last == b'\r');
                    self.buffer.clear();
                    self.state = State::LongLine { after_cr };
                    return Step::NeedMore;
                }
                State::Body(head) => {
                    let length = head.body_bytes as usize;
                    if self.buffer.len() < length + 2 {
                        return Step::NeedMore;
                    }
                    self.state = State::Line { scanned: 0 };
                    if &self.buffer[length..length + 2] != b"\r\n" {
                        self.buffer.advance(length + 2);
                        return Step::Refuse {
                            refusal: Refusal::ExpectedCrlf,
                            counts: Some(Counted::Put),
                        };
                    }
                    let body = self.take_body(length);
                    let PutHead {
                        priority,
                        delay,
                        ttr,
                        ..
                    } = head;
                    return Step::Request(Request::Put {
                        priority,
                        delay,
                        ttr,
                        body,
                    });
                }
                State::Swallow { left } => {
                    let here = self.buffer.len() as u64;
                    if here < left {
                        self.buffer.clear();
                        self.state = State::Swallow { left: left - here };
                        return Step::NeedMore;
                    }
                    // `left` is at most what is in the buffer, so it fits.
                    self.buffer.advance(left as usize);
                    self.state = State::Line { scanned: 0 };
                    return Step::Refuse {
                        refusal: Refusal::JobTooBig,
                        counts: Some(Counted::Put),
                    };
                }
            }
        }
    }

    fn take_body(&mut self, length: usize) -> Bytes {
        let body = if length < SHARED_BODY_BYTES_MIN {
            let body = Bytes::copy_from_slice(&self.buffer[..length]);
            self.buffer.advance(length);
            body
        } else {
            self.buffer.split_to(length).freeze()
        };
        self.buffer.advance(2);
        body
    }
}

/// How many bytes stand before the first CRLF of `bytes`, whose first `scanned` bytes hold none
/// (though the last of them may be its CR).
fn find_crlf(bytes: &[u8], scanned: usize) -> Option<usize> {
    let mut from = scanned;
    while let Some(found) = memchr::memchr(b'\n', &bytes[from..]) {
        let lf = from + found;
        if lf > 0 && bytes[lf - 1] == b'\r' {
            return Some(lf - 1);
        }
        from = lf + 1;
    }
    None
}

/// How many bytes of `bytes` belong to a line that began earlier, its CRLF included.
fn find_end(bytes: &[u8], after_cr: bool) -> Option<usize> {
    if after_cr && bytes.first() == Some(&b'\n') {
        return Some(1);
    }
    find_crlf(bytes, 0).map(|length| length + 2)
}
