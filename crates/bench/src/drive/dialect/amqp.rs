use std::collections::{BTreeSet, VecDeque};

use anyhow::{Context, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use trellis_types::{JobId, TubeName};
use trellis_wire::beanstalk::{Reply, Request};

use super::slots::Slots;
use super::{Dialect, Place};

/// AMQP 0-9-1 as RabbitMQ speaks it, on one channel: a put is a persistent message that the broker confirms, a reserve a
/// delivery to a consumer with as much prefetch as the connection has depth, a delete its acknowledgement. The protocol
/// does not confirm acknowledgements, so a delete is answered when it is sent.
#[derive(Debug)]
pub(super) struct Amqp {
    place: Place,
    tube: Option<TubeName>,
    input: BytesMut,
    slots: Slots<Asked>,
    /// Delivery tags of this connection's messages up to here are confirmed.
    confirmed: u64,
    /// Confirmed on their own above that.
    confirmed_alone: BTreeSet<u64>,
    /// What was delivered and not asked for yet.
    delivered: VecDeque<(JobId, Bytes)>,
    /// A message whose body has not come whole.
    arriving: Option<Arriving>,
}

#[derive(Debug)]
struct Arriving {
    tag: u64,
    length: Option<usize>,
    body: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The connection, the channel and the queue.
    Greeting,
    Put,
    Reserve,
    /// A consumer.
    Watch,
    Nothing,
}

/// Class and method, as one number.
const fn method(class: u16, method: u16) -> u32 {
    ((class as u32) << 16) | method as u32
}

const CONNECTION_START: u32 = method(10, 10);
const CONNECTION_START_OK: u32 = method(10, 11);
const CONNECTION_TUNE: u32 = method(10, 30);
const CONNECTION_TUNE_OK: u32 = method(10, 31);
const CONNECTION_OPEN: u32 = method(10, 40);
const CONNECTION_OPEN_OK: u32 = method(10, 41);
const CONNECTION_CLOSE: u32 = method(10, 50);
const CHANNEL_OPEN: u32 = method(20, 10);
const CHANNEL_OPEN_OK: u32 = method(20, 11);
const CHANNEL_CLOSE: u32 = method(20, 40);
const QUEUE_DECLARE: u32 = method(50, 10);
const QUEUE_DECLARE_OK: u32 = method(50, 11);
const BASIC_QOS: u32 = method(60, 10);
const BASIC_QOS_OK: u32 = method(60, 11);
const BASIC_CONSUME: u32 = method(60, 20);
const BASIC_CONSUME_OK: u32 = method(60, 21);
const BASIC_PUBLISH: u32 = method(60, 40);
const BASIC_DELIVER: u32 = method(60, 60);
const BASIC_ACK: u32 = method(60, 80);
const BASIC_REJECT: u32 = method(60, 90);
const CONFIRM_SELECT: u32 = method(85, 10);
const CONFIRM_SELECT_OK: u32 = method(85, 11);

/// Kinds of frames, and what ends each.
const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xce;
/// Type, channel, length, and the end.
const FRAME_AROUND: usize = 8;
/// The broker's default bound of a frame.
const FRAME_BYTES_MAX: usize = 131_072;
const CHANNEL: u16 = 1;

impl Amqp {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            tube: None,
            input: BytesMut::new(),
            slots: Slots::new(),
            confirmed: 0,
            confirmed_alone: BTreeSet::new(),
            delivered: VecDeque::new(),
            arriving: None,
        }
    }

    fn queue(&self) -> &str {
        self.tube.as_ref().map_or("default", TubeName::as_str)
    }

    fn on_method(&mut self, mut at: &[u8], out: &mut BytesMut) -> anyhow::Result<()> {
        ensure!(at.len() >= 4, "a method without a number");
        match at.get_u32() {
            CONNECTION_START => send(0, CONNECTION_START_OK, out, |out| {
                out.put_u32(0); // no properties of the client
                put_short("PLAIN", out);
                put_long(b"\0guest\0guest", out);
                put_short("en_US", out);
            }),
            CONNECTION_TUNE => {
                send(0, CONNECTION_TUNE_OK, out, |out| {
                    out.put_u16(8);
                    out.put_u32(FRAME_BYTES_MAX as u32);
                    out.put_u16(0); // no heartbeats: a run is short
                });
                send(0, CONNECTION_OPEN, out, |out| {
                    put_short("/", out);
                    put_short("", out);
                    out.put_u8(0);
                });
            }
            CONNECTION_OPEN_OK => send(CHANNEL, CHANNEL_OPEN, out, |out| put_short("", out)),
            CHANNEL_OPEN_OK => send(CHANNEL, CONFIRM_SELECT, out, |out| out.put_u8(0)),
            CONFIRM_SELECT_OK => {
                let queue = self.queue().to_owned();
                send(CHANNEL, QUEUE_DECLARE, out, |out| {
                    out.put_u16(0);
                    put_short(&queue, out);
                    out.put_u8(0b0000_0010); // durable
                    let mut arguments = BytesMut::new();
                    put_short("x-queue-type", &mut arguments);
                    arguments.put_u8(b'S');
                    put_long(b"quorum", &mut arguments);
                    put_long(&arguments, out);
                });
            }
            QUEUE_DECLARE_OK => {
                self.slots
                    .fill(|asked| asked == Asked::Greeting, Reply::Watching(1));
            }
            BASIC_QOS_OK => {
                let queue = self.queue().to_owned();
                send(CHANNEL, BASIC_CONSUME, out, |out| {
                    out.put_u16(0);
                    put_short(&queue, out);
                    put_short("", out);
                    out.put_u8(0);
                    out.put_u32(0);
                });
            }
            BASIC_CONSUME_OK => {
                self.slots
                    .fill(|asked| asked == Asked::Watch, Reply::Watching(1));
            }
            BASIC_ACK => {
                ensure!(at.len() >= 9, "a confirmation that is cut off");
                let (tag, several) = (at.get_u64(), at.get_u8() & 1 == 1);
                self.on_confirm(tag, several);
            }
            BASIC_DELIVER => {
                skip_short(&mut at)?;
                ensure!(at.len() >= 8, "a delivery that is cut off");
                self.arriving = Some(Arriving {
                    tag: at.get_u64(),
                    length: None,
                    body: BytesMut::new(),
                });
            }
            CONNECTION_CLOSE | CHANNEL_CLOSE => {
                ensure!(at.len() >= 2, "a farewell that is cut off");
                let code = at.get_u16();
                let text = String::from_utf8_lossy(at.get(1..).unwrap_or_default()).into_owned();
                bail!("RabbitMQ says: {code} {text}");
            }
            other => bail!("RabbitMQ calls method {}.{}", other >> 16, other & 0xffff),
        }
        Ok(())
    }

    /// Messages are confirmed one by one or all up to a tag, in any order; puts are answered in theirs.
    fn on_confirm(&mut self, tag: u64, several: bool) {
        if several {
            while self.confirmed < tag {
                self.confirm_next();
            }
        } else {
            self.confirmed_alone.insert(tag);
        }
        while self.confirmed_alone.remove(&(self.confirmed + 1)) {
            self.confirm_next();
        }
        // What came alone and then once more in a crowd.
        while self
            .confirmed_alone
            .first()
            .is_some_and(|tag| *tag <= self.confirmed)
        {
            self.confirmed_alone.pop_first();
        }
    }

    fn confirm_next(&mut self) {
        self.confirmed += 1;
        let reply = Reply::Inserted(JobId(self.confirmed));
        self.slots.fill(|asked| asked == Asked::Put, reply);
    }

    fn on_message(&mut self, tag: u64, body: Bytes, out: &mut BytesMut) {
        let job = JobId(tag);
        if self.slots.is_empty() {
            // Prefetched by one who has nothing left to do: others wait for it.
            send(CHANNEL, BASIC_REJECT, out, |out| {
                out.put_u64(tag);
                out.put_u8(1); // back into the queue
            });
            return;
        }
        let reply = Reply::Reserved {
            job,
            body: body.clone(),
        };
        if !self.slots.fill(|asked| asked == Asked::Reserve, reply) {
            self.delivered.push_back((job, body));
        }
    }

    /// Takes one frame. False if none is whole.
    fn frame(&mut self, out: &mut BytesMut) -> anyhow::Result<bool> {
        let Some(head) = self.input.first_chunk::<7>() else {
            return Ok(false);
        };
        let kind = head[0];
        let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
        ensure!(
            length <= FRAME_BYTES_MAX,
            "RabbitMQ says something that is no frame"
        );
        if self.input.len() < length + FRAME_AROUND {
            return Ok(false);
        }
        self.input.advance(7);
        let payload = self.input.split_to(length).freeze();
        ensure!(self.input.get_u8() == FRAME_END, "a frame without its end");
        match kind {
            METHOD => self.on_method(&payload, out)?,
            HEADER => {
                let mut at = payload.get(4..12).context("a header that is cut off")?;
                let length = usize::try_from(at.get_u64())?;
                if let Some(arriving) = &mut self.arriving {
                    arriving.length = Some(length);
                }
            }
            BODY => {
                if let Some(arriving) = &mut self.arriving {
                    arriving.body.extend_from_slice(&payload);
                }
            }
            HEARTBEAT => {}
            other => bail!("a frame of kind {other}"),
        }
        if let Some(whole) = self
            .arriving
            .take_if(|it| it.length.is_some_and(|length| it.body.len() >= length))
        {
            self.on_message(whole.tag, whole.body.freeze(), out);
        }
        Ok(true)
    }
}

impl Dialect for Amqp {
    fn ask(&mut self, request: &Request, out: &mut BytesMut) {
        match request {
            Request::Use(tube) => {
                self.tube = Some(tube.clone());
                out.extend_from_slice(b"AMQP\0\0\x09\x01");
                self.slots.open(Asked::Greeting);
            }
            // A worker says nothing else before.
            Request::Watch(tube) if self.tube.is_none() => {
                self.ask(&Request::Use(tube.clone()), out);
            }
            Request::Watch(_) => {
                self.slots.answered(Asked::Nothing, Reply::Watching(2));
            }
            Request::Ignore(_) => {
                let prefetch = u16::try_from(self.place.depth).unwrap_or(u16::MAX);
                send(CHANNEL, BASIC_QOS, out, |out| {
                    out.put_u32(0);
                    out.put_u16(prefetch);
                    out.put_u8(0);
                });
                self.slots.open(Asked::Watch);
            }
            Request::Put { body, .. } => {
                let queue = self.queue().to_owned();
                send(CHANNEL, BASIC_PUBLISH, out, |out| {
                    out.put_u16(0);
                    put_short("", out);
                    put_short(&queue, out);
                    out.put_u8(0);
                });
                frame(HEADER, CHANNEL, out, |out| {
                    out.put_u16(60);
                    out.put_u16(0);
                    out.put_u64(body.len() as u64);
                    out.put_u16(0x1000); // one property follows: the delivery mode
                    out.put_u8(2); // persistent
                });
                for part in body.chunks(FRAME_BYTES_MAX - FRAME_AROUND) {
                    frame(BODY, CHANNEL, out, |out| out.extend_from_slice(part));
                }
                self.slots.open(Asked::Put);
            }
            Request::Reserve | Request::ReserveWithTimeout(_) => match self.delivered.pop_front() {
                Some((job, body)) => self
                    .slots
                    .answered(Asked::Reserve, Reply::Reserved { job, body }),
                None => self.slots.open(Asked::Reserve),
            },
            Request::Delete(job) => {
                send(CHANNEL, BASIC_ACK, out, |out| {
                    out.put_u64(job.0);
                    out.put_u8(0);
                });
                self.slots.answered(Asked::Nothing, Reply::Deleted);
            }
            _ => self.slots.answered(Asked::Nothing, Reply::UnknownCommand),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    fn step(&mut self, out: &mut BytesMut) -> anyhow::Result<Option<Reply>> {
        loop {
            if let Some(reply) = self.slots.take() {
                return Ok(Some(reply));
            }
            if !self.frame(out)? {
                return Ok(None);
            }
        }
    }
}

fn frame(kind: u8, channel: u16, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(kind);
    out.put_u16(channel);
    let at = out.len();
    out.put_u32(0);
    write(out);
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    out.put_u8(FRAME_END);
}

fn send(channel: u16, method: u32, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    frame(METHOD, channel, out, |out| {
        out.put_u32(method);
        write(out);
    });
}

/// A string of at most 255 bytes; queues are named after tubes, which are shorter.
fn put_short(text: &str, out: &mut BytesMut) {
    out.put_u8(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

fn put_long(bytes: &[u8], out: &mut BytesMut) {
    out.put_u32(bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn skip_short(at: &mut &[u8]) -> anyhow::Result<()> {
    let length = usize::from(*at.first().context("a string that is cut off")?);
    *at = at.get(1 + length..).context("a string that is cut off")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use trellis_types::{Priority, Seconds};

    use super::*;

    fn amqp() -> Amqp {
        Amqp::new(Place {
            number: 0,
            founds_tube: true,
            depth: 2,
        })
    }

    fn put() -> Request {
        Request::Put {
            priority: Priority(0),
            delay: Seconds(0),
            ttr: Seconds(1),
            body: Bytes::from_static(b"hi"),
        }
    }

    fn confirm(tag: u64, several: bool) -> BytesMut {
        let mut bytes = BytesMut::new();
        send(CHANNEL, BASIC_ACK, &mut bytes, |out| {
            out.put_u64(tag);
            out.put_u8(u8::from(several));
        });
        bytes
    }

    #[test]
    fn confirmations_may_come_alone_out_of_order_or_together() {
        let (mut amqp, mut out) = (amqp(), BytesMut::new());
        for _ in 0..5 {
            amqp.ask(&put(), &mut out);
        }
        let mut answers = |bytes: BytesMut| {
            amqp.feed(&bytes);
            std::iter::from_fn(|| amqp.step(&mut out).expect("sound")).count()
        };
        assert_eq!(answers(confirm(2, false)), 0, "the first is not confirmed");
        assert_eq!(answers(confirm(1, false)), 2);
        assert_eq!(answers(confirm(4, true)), 2);
        assert_eq!(answers(confirm(5, false)), 1);
    }

    fn deliver(tag: u64) -> BytesMut {
        let mut bytes = BytesMut::new();
        send(CHANNEL, BASIC_DELIVER, &mut bytes, |out| {
            put_short("tag", out);
            out.put_u64(tag);
            out.put_u8(0);
            put_short("", out);
            put_short("q", out);
        });
        frame(HEADER, CHANNEL, &mut bytes, |out| {
            out.put_u16(60);
            out.put_u16(0);
            out.put_u64(2);
            out.put_u16(0);
        });
        frame(BODY, CHANNEL, &mut bytes, |out| {
            out.extend_from_slice(b"hi")
        });
        bytes
    }

    #[test]
    fn what_an_idle_consumer_prefetched_goes_back() {
        let (mut amqp, mut out) = (amqp(), BytesMut::new());
        amqp.feed(&deliver(1));
        assert_eq!(amqp.step(&mut out).expect("sound"), None);
        assert_eq!(out[7..11], BASIC_REJECT.to_be_bytes());
    }

    #[test]
    fn a_delivery_waits_for_who_is_about_to_ask() {
        let (mut amqp, mut out) = (amqp(), BytesMut::new());
        amqp.ask(&put(), &mut out);
        out.clear();
        amqp.feed(&deliver(9));
        assert_eq!(amqp.step(&mut out).expect("sound"), None);
        assert!(out.is_empty(), "it is kept");
        amqp.feed(&confirm(1, false));
        assert_eq!(
            amqp.step(&mut out).expect("sound"),
            Some(Reply::Inserted(JobId(1)))
        );
        amqp.ask(&Request::Reserve, &mut out);
        let reserved = Reply::Reserved {
            job: JobId(9),
            body: Bytes::from_static(b"hi"),
        };
        assert_eq!(amqp.step(&mut out).expect("sound"), Some(reserved));
    }
}
