use std::collections::BTreeMap;

use anyhow::{Context, bail};
use bytes::{Buf, Bytes, BytesMut};
use trellis_types::{JobId, TubeName};
use trellis_wire::beanstalk::{Reply, Request};

use super::slots::Slots;
use super::{Dialect, Place};

/// NATS' text protocol, and JetStream's requests on it. A tube is a work-queue stream of three replicas with one durable
/// pull consumer; a reserve pulls one message, a delete acknowledges it and waits for the server's word that it heard.
#[derive(Debug)]
pub(super) struct Nats {
    place: Place,
    tube: Option<TubeName>,
    greeted: bool,
    input: BytesMut,
    slots: Slots<Asked>,
    /// The last request's number; it stands in the subject to which its answer goes.
    last: u64,
    last_job: u64,
    /// Where a job that was taken is acknowledged.
    taken: BTreeMap<JobId, Bytes>,
}

/// What an answer is recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Ping,
    /// A request whose answer comes to an inbox of its own.
    Numbered(u64, Kind),
    /// A message comes under its stream's subject, so a pull is not told from another.
    Pull,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Founding,
    Put,
    Ack,
}

/// A pull waits so long, in nanoseconds: longer than the driver's patience.
const PULL_EXPIRES: u64 = 600_000_000_000;

impl Nats {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            tube: None,
            greeted: false,
            input: BytesMut::new(),
            slots: Slots::new(),
            last: 0,
            last_job: 0,
            taken: BTreeMap::new(),
        }
    }

    fn stream(&self) -> &str {
        self.tube.as_ref().map_or("default", TubeName::as_str)
    }

    fn publish(&mut self, subject: &[u8], kind: Kind, payload: &[u8], out: &mut BytesMut) {
        self.last += 1;
        out.extend_from_slice(b"PUB ");
        out.extend_from_slice(subject);
        let rest = format!(" {}{} {}\r\n", self.inbox(), self.last, payload.len());
        out.extend_from_slice(rest.as_bytes());
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
        self.slots.open(Asked::Numbered(self.last, kind));
    }

    fn inbox(&self) -> String {
        format!("_INBOX.bench{}.", self.place.number)
    }

    /// Where the next whole operation ends: the end of its line, its payload's length, and its words.
    fn operation(&self) -> anyhow::Result<Option<(usize, usize, Vec<String>)>> {
        let Some(end) = self.input.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        let line = std::str::from_utf8(&self.input[..end]).context("NATS says what is no text")?;
        let words: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
        let payload = match words.first().map(String::as_str) {
            Some("MSG" | "HMSG") => {
                let length = words.last().context("a message without a length")?;
                length.parse::<usize>()? + 2
            }
            _ => 0,
        };
        let whole = self.input.len() >= end + 2 + payload;
        Ok(whole.then_some((end, payload, words)))
    }

    fn message(&mut self, words: &[String], payload: &Bytes) -> anyhow::Result<()> {
        let subject = words.get(1).context("a message without a subject")?;
        if let Some(number) = subject.strip_prefix(&self.inbox()) {
            let number: u64 = number.parse()?;
            let text = String::from_utf8_lossy(payload);
            if text.contains("\"error\"") {
                bail!("JetStream says: {text}");
            }
            if words.first().is_some_and(|word| word == "HMSG") {
                bail!("NATS says: {}", text.trim());
            }
            for (kind, reply) in [
                (Kind::Founding, Reply::Watching(1)),
                (Kind::Put, Reply::Inserted(JobId(number))),
                (Kind::Ack, Reply::Deleted),
            ] {
                if self
                    .slots
                    .fill(|asked| asked == Asked::Numbered(number, kind), reply)
                {
                    return Ok(());
                }
            }
            bail!("an answer to request {number}, which waits for none");
        }
        // MSG subject sid ack-subject length
        let (Some(ack), 5) = (words.get(3), words.len()) else {
            bail!("a message that can't be acknowledged: {words:?}");
        };
        self.last_job += 1;
        let job = JobId(self.last_job);
        self.taken
            .insert(job, Bytes::from(ack.clone().into_bytes()));
        let body = payload.clone();
        if !self
            .slots
            .fill(|asked| asked == Asked::Pull, Reply::Reserved { job, body })
        {
            bail!("a message that was not asked for");
        }
        Ok(())
    }
}

impl Dialect for Nats {
    fn ask(&mut self, request: &Request, out: &mut BytesMut) {
        match request {
            Request::Put { body, .. } => {
                let subject = format!("put.{}", self.stream());
                self.publish(subject.as_bytes(), Kind::Put, body, out);
            }
            Request::Reserve | Request::ReserveWithTimeout(_) => {
                let payload = format!(r#"{{"batch":1,"expires":{PULL_EXPIRES}}}"#);
                let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.workers", self.stream());
                let inbox = format!("{}pull", self.inbox());
                let length = payload.len();
                out.extend_from_slice(
                    format!("PUB {subject} {inbox} {length}\r\n{payload}\r\n").as_bytes(),
                );
                self.slots.open(Asked::Pull);
            }
            Request::Delete(job) => {
                let subject = self.taken.remove(job).unwrap_or_default();
                self.publish(&subject, Kind::Ack, b"+ACK", out);
            }
            other => {
                if let Request::Use(tube) | Request::Watch(tube) = other {
                    self.tube = Some(tube.clone());
                }
                if !self.greeted {
                    self.greeted = true;
                    let inbox = self.inbox();
                    let hello = format!(
                        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\
                         \"no_responders\":true,\"lang\":\"bench\",\"version\":\"1\",\"protocol\":1}}\r\n\
                         SUB {inbox}* 1\r\n"
                    );
                    out.extend_from_slice(hello.as_bytes());
                }
                let stream = self.stream().to_owned();
                match other {
                    Request::Use(_) if self.place.founds_tube => {
                        let settings = format!(
                            r#"{{"name":"{stream}","subjects":["put.{stream}"],"retention":"workqueue","storage":"file","num_replicas":3}}"#
                        );
                        let subject = format!("$JS.API.STREAM.CREATE.{stream}");
                        self.publish(subject.as_bytes(), Kind::Founding, settings.as_bytes(), out);
                    }
                    Request::Watch(_) if self.place.founds_tube => {
                        let settings = format!(
                            r#"{{"stream_name":"{stream}","config":{{"durable_name":"workers","ack_policy":"explicit","ack_wait":{PULL_EXPIRES},"max_ack_pending":-1,"max_waiting":65536}}}}"#
                        );
                        let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.workers");
                        self.publish(subject.as_bytes(), Kind::Founding, settings.as_bytes(), out);
                    }
                    _ => {
                        out.extend_from_slice(b"PING\r\n");
                        self.slots.open(Asked::Ping);
                    }
                }
            }
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
            let Some((end, payload_length, words)) = self.operation()? else {
                return Ok(None);
            };
            self.input.advance(end + 2);
            let mut payload = self.input.split_to(payload_length).freeze();
            payload.truncate(payload_length.saturating_sub(2));
            match words.first().map(String::as_str) {
                Some("MSG" | "HMSG") => self.message(&words, &payload)?,
                Some("PING") => out.extend_from_slice(b"PONG\r\n"),
                Some("PONG") => {
                    self.slots
                        .fill(|asked| asked == Asked::Ping, Reply::Watching(1));
                }
                Some("INFO" | "+OK") => {}
                _ => bail!("NATS says: {}", words.join(" ")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_pulled_and_its_acknowledgement_confirmed() {
        let place = Place {
            number: 3,
            founds_tube: false,
            depth: 1,
        };
        let mut nats = Nats::new(place);
        let mut out = BytesMut::new();
        nats.ask(&Request::Reserve, &mut out);
        assert!(
            out.split()
                .starts_with(b"PUB $JS.API.CONSUMER.MSG.NEXT.default.workers _INBOX.bench3.pull ")
        );
        nats.feed(b"INFO {}\r\nPING\r\nMSG put.default 1 $JS.ACK.x.1 2\r\nhi\r");
        assert_eq!(nats.step(&mut out).expect("sound"), None);
        assert_eq!(out.split(), &b"PONG\r\n"[..]);
        nats.feed(b"\n");
        let reserved = Reply::Reserved {
            job: JobId(1),
            body: Bytes::from_static(b"hi"),
        };
        assert_eq!(nats.step(&mut out).expect("sound"), Some(reserved));
        nats.ask(&Request::Delete(JobId(1)), &mut out);
        assert_eq!(
            out.split(),
            &b"PUB $JS.ACK.x.1 _INBOX.bench3.1 4\r\n+ACK\r\n"[..]
        );
        nats.feed(b"MSG _INBOX.bench3.1 1 0\r\n\r\n");
        assert_eq!(nats.step(&mut out).expect("sound"), Some(Reply::Deleted));
    }

    #[test]
    fn nobody_there_is_an_error() {
        let place = Place {
            number: 0,
            founds_tube: false,
            depth: 1,
        };
        let mut nats = Nats::new(place);
        let mut out = BytesMut::new();
        nats.ask(&Request::Delete(JobId(1)), &mut out);
        nats.feed(b"HMSG _INBOX.bench0.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n");
        let error = nats.step(&mut out).expect_err("no responders");
        assert_eq!(error.to_string(), "NATS says: NATS/1.0 503");
    }
}
