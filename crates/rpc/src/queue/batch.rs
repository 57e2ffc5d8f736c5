use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{decode_varint, encode_varint};
use trellis_queue::{Batch, Item};
use trellis_types::{NodeId, OriginId, Run, limits};

use super::item;

/// The highest feature level that this binary understands (architecture, section 13).
pub const LEVEL: u32 = 1;

// The fixed head of a batch: protobuf fields 1 to 5, each a tag and a value of fixed width.
const CRC_TAG: u8 = 0x0d;
const LEVEL_TAG: u8 = 0x15;
const NODE_TAG: u8 = 0x19;
const RUN_TAG: u8 = 0x21;
const SEQ_TAG: u8 = 0x29;
const LEVEL_AT: usize = 5;
const NODE_AT: usize = 10;
const RUN_AT: usize = 19;
const SEQ_AT: usize = 28;
const HEAD_BYTES: usize = 37;
/// Tag of field 15, an item.
const ITEM_TAG: u8 = 0x7a;

/// Why some bytes are no batch, or no leader's command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// The head is not what a batch starts with, or an item goes past the end.
    #[error("not a batch: {0}")]
    Layout(&'static str),
    /// The bytes are not those that were encoded.
    #[error("checksum {found:08x} instead of {expected:08x}")]
    Checksum {
        /// As the frame says.
        expected: u32,
        /// As the bytes are.
        found: u32,
    },
    /// A newer binary made it.
    #[error("feature level {0} is not understood")]
    Level(u32),
    /// More items than a batch may have.
    #[error("{0} commands in one batch")]
    TooMany(usize),
    /// Not the protobuf message that it should be.
    #[error("undecodable: {0}")]
    Undecodable(String),
}

/// What a sound batch says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Whose it is.
    pub origin: OriginId,
    /// Its number among that origin's.
    pub seq: u64,
    /// How many commands it has.
    pub commands: usize,
}

/// Grows one batch in place: every command is encoded once, straight into the bytes that log and
/// wire will carry.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    buffer: BytesMut,
    commands: usize,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            commands: 0,
        }
    }

    /// Adds one command. Bounds are the caller's business ([`limits::BATCH_COMMANDS_MAX`],
    /// [`limits::BATCH_BYTES_MAX`]): a single larger command travels alone.
    pub fn push(&mut self, item: &Item) {
        if self.buffer.is_empty() {
            self.buffer.resize(HEAD_BYTES, 0);
        }
        let length = item::encoded_len(item);
        self.buffer.reserve(length + 6);
        self.buffer.put_u8(ITEM_TAG);
        encode_varint(length as u64, &mut self.buffer);
        item::encode_into(item, &mut self.buffer);
        self.commands += 1;
    }

    /// Bytes so far, head included.
    pub fn bytes(&self) -> usize {
        self.buffer.len().max(HEAD_BYTES)
    }

    /// Commands so far.
    pub fn commands(&self) -> usize {
        self.commands
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Seals the batch. From here on its bytes never change (architecture, section 5).
    pub fn finish(mut self, origin: OriginId, seq: u64) -> Bytes {
        if self.buffer.is_empty() {
            self.buffer.resize(HEAD_BYTES, 0);
        }
        let frame = &mut self.buffer[..];
        frame[LEVEL_AT] = LEVEL_TAG;
        frame[LEVEL_AT + 1..NODE_AT].copy_from_slice(&LEVEL.to_le_bytes());
        frame[NODE_AT] = NODE_TAG;
        frame[NODE_AT + 1..RUN_AT].copy_from_slice(&origin.node.0.to_le_bytes());
        frame[RUN_AT] = RUN_TAG;
        frame[RUN_AT + 1..SEQ_AT].copy_from_slice(&origin.run.0.to_le_bytes());
        frame[SEQ_AT] = SEQ_TAG;
        frame[SEQ_AT + 1..HEAD_BYTES].copy_from_slice(&seq.to_le_bytes());
        let crc = crc32c::crc32c(&frame[LEVEL_AT..]);
        frame[0] = CRC_TAG;
        frame[1..LEVEL_AT].copy_from_slice(&crc.to_le_bytes());
        self.buffer.freeze()
    }
}

/// The bytes of a whole batch.
pub fn encode_batch(batch: &Batch) -> Bytes {
    let mut builder = BatchBuilder::new();
    for item in &batch.items {
        builder.push(item);
    }
    builder.finish(batch.origin, batch.seq)
}

/// What a leader checks before it proposes a batch: frame, lengths, checksum, level. No item is
/// decoded.
///
/// # Errors
///
/// [`BadFrame`]; such a batch must not enter the log.
pub fn check_batch(frame: &Bytes) -> Result<Checked, BadFrame> {
    let (origin, seq) = head(frame)?;
    let expected = u32_at(frame, 1);
    let found = crc32c::crc32c(&frame[LEVEL_AT..]);
    if expected != found {
        return Err(BadFrame::Checksum { expected, found });
    }
    let level = u32_at(frame, LEVEL_AT + 1);
    if level > LEVEL {
        return Err(BadFrame::Level(level));
    }
    let mut items = Items {
        frame,
        at: HEAD_BYTES,
    };
    let mut count = 0;
    while items.next()?.is_some() {
        count += 1;
    }
    if count > limits::BATCH_COMMANDS_MAX {
        return Err(BadFrame::TooMany(count));
    }
    Ok(Checked {
        origin,
        seq,
        commands: count,
    })
}

/// The commands of a batch. Bodies are slices of `frame`, not copies. An item that cannot be
/// decoded becomes [`Command::Undecodable`](trellis_queue::Command::Undecodable): a refusal that
/// every node decides equally.
///
/// The checksum is not looked at again: the entry that carried the batch has its own.
///
/// # Errors
///
/// [`BadFrame::Layout`]; a leader's [`check_batch`] has refused such a batch before.
pub fn decode_batch(frame: Bytes) -> Result<Batch, BadFrame> {
    let (origin, seq) = head(&frame)?;
    let mut decoded = Vec::new();
    let mut items = Items {
        frame: &frame,
        at: HEAD_BYTES,
    };
    while let Some((from, to)) = items.next()? {
        decoded.push(item::decode(frame.slice(from..to)));
    }
    Ok(Batch {
        origin,
        seq,
        items: decoded,
    })
}

fn head(frame: &[u8]) -> Result<(OriginId, u64), BadFrame> {
    let tags = [
        (0, CRC_TAG),
        (LEVEL_AT, LEVEL_TAG),
        (NODE_AT, NODE_TAG),
        (RUN_AT, RUN_TAG),
        (SEQ_AT, SEQ_TAG),
    ];
    if frame.len() < HEAD_BYTES {
        return Err(BadFrame::Layout("shorter than its head"));
    }
    if tags.iter().any(|(at, tag)| frame[*at] != *tag) {
        return Err(BadFrame::Layout("its head has other fields"));
    }
    let origin = OriginId {
        node: NodeId(u64_at(frame, NODE_AT + 1)),
        run: Run(u64_at(frame, RUN_AT + 1)),
    };
    Ok((origin, u64_at(frame, SEQ_AT + 1)))
}

fn u32_at(frame: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&frame[at..at + 4]);
    u32::from_le_bytes(raw)
}

fn u64_at(frame: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&frame[at..at + 8]);
    u64::from_le_bytes(raw)
}

/// Walks over the items of a frame without looking into them.
struct Items<'a> {
    frame: &'a [u8],
    at: usize,
}

impl Items<'_> {
    /// From where to where the next item goes.
    fn next(&mut self) -> Result<Option<(usize, usize)>, BadFrame> {
        let Some(tag) = self.frame.get(self.at) else {
            return Ok(None);
        };
        if *tag != ITEM_TAG {
            return Err(BadFrame::Layout("a field that is not an item"));
        }
        let mut rest = &self.frame[self.at + 1..];
        let before = rest.len();
        let length = decode_varint(&mut rest)
            .ok()
            .and_then(|length| usize::try_from(length).ok())
            .filter(|length| *length <= rest.len())
            .ok_or(BadFrame::Layout("an item goes past the end"))?;
        let from = self.at + 1 + before - rest.len();
        self.at = from + length;
        Ok(Some((from, self.at)))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use trellis_queue::Command;
    use trellis_types::{ConnectionId, JobId, Priority, Seconds, TubeName};

    use super::*;
    use crate::pb;

    fn origin() -> OriginId {
        OriginId {
            node: NodeId(7),
            run: Run(3),
        }
    }

    fn put(body: &'static [u8]) -> Item {
        Item {
            connection: ConnectionId(12),
            command: Command::Put {
                tube: TubeName::default_tube(),
                priority: Priority(1024),
                delay: Seconds(0),
                ttr: Seconds(60),
                body: Bytes::from_static(body),
            },
        }
    }

    #[test]
    fn a_batch_grows_in_place_and_comes_back() {
        let mut builder = BatchBuilder::new();
        assert!(builder.is_empty());
        let items = vec![
            put(b"hello"),
            Item {
                connection: ConnectionId(0),
                command: Command::Delete {
                    job: JobId(u64::from(u32::MAX) + 5),
                },
            },
        ];
        for item in &items {
            builder.push(item);
        }
        assert_eq!(builder.commands(), 2);
        let bytes = builder.bytes();
        let frame = builder.finish(origin(), 41);
        assert_eq!(frame.len(), bytes);
        let checked = Checked {
            origin: origin(),
            seq: 41,
            commands: 2,
        };
        assert_eq!(check_batch(&frame), Ok(checked));
        assert_eq!(
            decode_batch(frame),
            Ok(Batch {
                origin: origin(),
                seq: 41,
                items
            })
        );
    }

    #[test]
    fn the_frame_is_plain_protobuf() {
        let frame = encode_batch(&Batch {
            origin: origin(),
            seq: 1,
            items: vec![put(b"x")],
        });
        let read = pb::Batch::decode(frame).expect("a protobuf decoder reads it");
        assert_eq!((read.origin_node, read.origin_run, read.seq), (7, 3, 1));
        assert_eq!((read.level, read.items.len()), (LEVEL, 1));
    }

    #[test]
    fn a_body_is_a_slice_of_the_frame() {
        let frame = encode_batch(&Batch {
            origin: origin(),
            seq: 1,
            items: vec![put(b"body")],
        });
        let span = frame.as_ptr_range();
        let batch = decode_batch(frame.clone()).expect("a sound frame");
        let Command::Put { body, .. } = &batch.items[0].command else {
            panic!("a put")
        };
        assert!(span.contains(&body.as_ptr()));
    }

    #[test]
    fn a_flipped_bit_is_noticed_wherever_it_is() {
        let sound = encode_batch(&Batch {
            origin: origin(),
            seq: 1,
            items: vec![put(b"abc")],
        });
        for bit in 0..sound.len() * 8 {
            let mut frame = sound.to_vec();
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(
                check_batch(&frame.into()).is_err(),
                "bit {bit} went unnoticed"
            );
        }
    }

    #[test]
    fn a_short_frame_is_refused_at_every_length() {
        let sound = encode_batch(&Batch {
            origin: origin(),
            seq: 1,
            items: vec![put(b"abc")],
        });
        for length in 0..sound.len() {
            let frame = sound.slice(..length);
            assert!(check_batch(&frame).is_err(), "{length} bytes passed");
            // A committed frame is sound; this only must not panic.
            let _ = decode_batch(frame);
        }
    }

    #[test]
    fn a_newer_level_is_refused() {
        let sound = encode_batch(&Batch {
            origin: origin(),
            seq: 1,
            items: vec![],
        });
        let mut frame = sound.to_vec();
        frame[LEVEL_AT + 1] = LEVEL as u8 + 1;
        let crc = crc32c::crc32c(&frame[LEVEL_AT..]);
        frame[1..LEVEL_AT].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(check_batch(&frame.into()), Err(BadFrame::Level(LEVEL + 1)));
    }

    #[test]
    fn an_item_that_cannot_be_decoded_is_a_refusal_in_its_place() {
        let mut frame = encode_batch(&Batch {
            origin: origin(),
            seq: 1,
            items: vec![put(b"a")],
        })
        .to_vec();
        // An item of connection 5 with an unknown command, and one of rubbish.
        frame.extend([ITEM_TAG, 4, 0x08, 5, 0xfa, 0x07]);
        frame.extend([ITEM_TAG, 3, 0xff, 0xff, 0xff]);
        let batch = decode_batch(frame.into()).expect("the frame is sound");
        assert_eq!(
            batch.items[1],
            Item {
                connection: ConnectionId(5),
                command: Command::Undecodable
            }
        );
        assert_eq!(
            batch.items[2],
            Item {
                connection: ConnectionId(0),
                command: Command::Undecodable
            }
        );
    }
}
