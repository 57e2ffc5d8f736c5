/// Why a line, or a put and its body, is no request.
///
/// Source: protocol specification, 3.2 and 5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too long, holds a NUL, or a known word with bad arguments.
    BadFormat,
    /// No command word matches.
    UnknownCommand,
    /// The two bytes after a body are not CRLF; body and both bytes are gone.
    ExpectedCrlf,
    /// The announced body is longer than allowed; it has been read and thrown away.
    JobTooBig,
}

impl Refusal {
    /// Whether the connection counts among `current-producers` from now on: its put line was fully
    /// valid and not too big, only the trailer was wrong (protocol specification, 4.6).
    pub const fn makes_producer(self) -> bool {
        matches!(self, Self::ExpectedCrlf)
    }
}
