use std::{
    io::{self, BufWriter, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Call, CloseSide, Header, Nanos, Record, Reply};

/// Writes a history while it happens. Shared by all clients of a run; it knows no clock, so
/// simulated time is as good as real.
pub struct Recorder {
    out: Mutex<Out>,
    connections: AtomicU64,
    ops: AtomicU64,
}

struct Out {
    file: BufWriter<Box<dyn Write + Send>>,
    /// The first failure; what comes after it would have a hole.
    failed: Option<io::Error>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    /// Begins with the header.
    pub fn new(out: Box<dyn Write + Send>, header: Header) -> Self {
        let recorder = Self {
            out: Mutex::new(Out {
                file: BufWriter::new(out),
                failed: None,
            }),
            connections: AtomicU64::new(1),
            ops: AtomicU64::new(1),
        };
        recorder.write(&Record::Header(header));
        recorder
    }

    /// Adds any record. A failure is kept and told by [`Recorder::finish`].
    pub fn write(&self, record: &Record) {
        let line = serde_json::to_vec(record);
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if out.failed.is_some() {
            return;
        }
        let written = line.map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            out.file.write_all(&line)
        });
        out.failed = written.err();
    }

    /// A connection stands; its number.
    pub fn opened(&self, t: Nanos, client: u32, node: &str) -> u64 {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        self.write(&Record::Opened {
            t,
            connection,
            client,
            node: node.to_owned(),
        });
        connection
    }

    /// A connection is over.
    pub fn closed(&self, t: Nanos, connection: u64, by: CloseSide) {
        self.write(&Record::Closed { t, connection, by });
    }

    /// A question is about to be sent; its number.
    pub fn invoked(&self, t: Nanos, connection: u64, call: Call) -> u64 {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        self.write(&Record::Invoked {
            t,
            op,
            connection,
            call,
        });
        op
    }

    /// Its answer has arrived.
    pub fn replied(&self, t: Nanos, op: u64, reply: Reply) {
        self.write(&Record::Replied { t, op, reply });
    }

    /// Its answer will not arrive.
    pub fn unknown(&self, t: Nanos, op: u64, why: &str) {
        self.write(&Record::Unknown {
            t,
            op,
            why: why.to_owned(),
        });
    }

    /// Everything is written.
    ///
    /// # Errors
    ///
    /// The first failure since the beginning.
    pub fn finish(&self) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        match out.failed.take() {
            Some(error) => Err(error),
            None => out.file.flush(),
        }
    }
}
