//! What it costs to read a client's bytes, to write its replies, and to write and read a batch, for each command.

use bytes::{Bytes, BytesMut};
use criterion::Criterion;
use trellis_queue::Command;
use trellis_rpc::queue::{BatchBuilder, decode_batch, encode_batch};
use trellis_types::{JobId, limits};
use trellis_wire::beanstalk::{Decoder, Reply, Step};

use crate::costs::{BATCH, BODY_BYTES, Cost, ORIGIN, batch, per_command, put, reserve};

/// Bytes that a socket gives at once.
const READ_BYTES: usize = 64 << 10;

/// Decodes `line` so often, as it comes from a socket.
fn decode(line: &[u8], count: u64) -> Cost {
    let bytes = line.repeat(usize::try_from(count).unwrap_or(0));
    let mut decoder = Decoder::new(limits::BODY_BYTES_DEFAULT);
    let (cost, requests) = Cost::of(|| {
        let mut requests = 0;
        for part in bytes.chunks(READ_BYTES) {
            decoder.feed(part);
            loop {
                match decoder.step() {
                    Step::Request(_) => requests += 1,
                    Step::Refuse { refusal, .. } => panic!("refused: {refusal:?}"),
                    Step::NeedMore => break,
                }
            }
        }
        requests
    });
    assert_eq!(requests, count);
    cost
}

pub(crate) fn wire(c: &mut Criterion) {
    let body = "x".repeat(BODY_BYTES);
    let put = format!("put 1024 0 60 {BODY_BYTES}\r\n{body}\r\n");
    per_command(c, "decode put, 256 bytes", |count| {
        decode(put.as_bytes(), count)
    });
    per_command(c, "decode reserve", |count| decode(b"reserve\r\n", count));
    per_command(c, "decode delete", |count| {
        decode(b"delete 1234567\r\n", count)
    });
    for (name, reply) in [
        ("encode INSERTED", Reply::Inserted(JobId(1_234_567))),
        (
            "encode RESERVED, 256 bytes",
            Reply::Reserved {
                job: JobId(1_234_567),
                body: Bytes::from(body.clone().into_bytes()),
            },
        ),
        ("encode DELETED", Reply::Deleted),
    ] {
        per_command(c, name, |count| {
            let mut out = BytesMut::with_capacity(READ_BYTES);
            Cost::of(|| {
                for _ in 0..count {
                    // As often as a socket takes them.
                    if out.len() > READ_BYTES / 2 {
                        out.clear();
                    }
                    reply.encode(&mut out);
                }
            })
            .0
        });
    }
}

pub(crate) fn batches(c: &mut Criterion) {
    let delete = || Command::Delete {
        job: JobId(1_234_567),
    };
    let kinds: [(&str, &dyn Fn() -> Command); 3] = [
        ("put, 256 bytes", &|| put(0)),
        ("reserve", &reserve),
        ("delete", &delete),
    ];
    for (name, command) in kinds {
        let whole = batch(1, &vec![(1, command()); BATCH]);
        per_command(c, &format!("batch: encode {name}"), |count| {
            Cost::of(|| {
                let mut builder = BatchBuilder::new();
                for number in 0..count {
                    builder.push(&whole.items[number as usize % BATCH]);
                    if builder.commands() == BATCH {
                        std::mem::take(&mut builder).finish(ORIGIN, 1);
                    }
                }
            })
            .0
        });
        let frame = encode_batch(&whole);
        per_command(c, &format!("batch: decode {name}"), |count| {
            let mut cost = Cost::default();
            for _ in 0..count.div_ceil(BATCH as u64) {
                let (one, decoded) = Cost::of(|| decode_batch(frame.clone()));
                assert!(decoded.is_ok());
                cost.add(one);
            }
            // A run is seldom a whole number of batches.
            let done = count.div_ceil(BATCH as u64) * BATCH as u64;
            cost.time = cost.time.mul_f64(count as f64 / done as f64);
            cost
        });
    }
}
