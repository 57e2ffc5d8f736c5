use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context, bail};
use bytes::{Buf, Bytes, BytesMut};
use trellis_types::{JobId, TubeName};
use trellis_wire::beanstalk::{Reply, Request};

use super::{Dialect, Place};

/// RESP, with the reliable queue of Redis' own documentation: a list, and for each worker a list of what it works on.
#[derive(Debug)]
pub(super) struct Redis {
    /// The connection's own list.
    taken_list: String,
    tube: Option<TubeName>,
    input: BytesMut,
    asked: VecDeque<Asked>,
    /// Jobs have no number there; these are given out here.
    last_job: u64,
    /// What was taken and not deleted: LREM wants the whole of it.
    taken: BTreeMap<JobId, Bytes>,
}

#[derive(Debug)]
enum Asked {
    /// A PING that stands for something Redis need not be told.
    Nothing(Reply),
    Put,
    Reserve,
    Delete,
}

/// A value of RESP, as far as these commands answer with one.
#[derive(Debug, PartialEq)]
enum Value {
    Line(String),
    Integer(i64),
    Bulk(Bytes),
    Nil,
}

impl Redis {
    pub(super) fn new(place: Place) -> Self {
        Self {
            taken_list: format!("taken-{}", place.number),
            tube: None,
            input: BytesMut::new(),
            asked: VecDeque::new(),
            last_job: 0,
            taken: BTreeMap::new(),
        }
    }

    /// The next whole value. An error that Redis reports is one here.
    fn value(&mut self) -> anyhow::Result<Option<Value>> {
        let Some(end) = self.input.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&self.input[1..end])
            .context("Redis says what is no text")?
            .to_owned();
        let value = match self.input[0] {
            b'+' => Value::Line(text),
            b'-' => bail!("Redis says: {text}"),
            b':' => Value::Integer(text.parse()?),
            b'$' | b'*' if text == "-1" => Value::Nil,
            b'$' => {
                let length: usize = text.parse()?;
                if self.input.len() < end + 2 + length + 2 {
                    return Ok(None);
                }
                self.input.advance(end + 2);
                let body = self.input.split_to(length).freeze();
                self.input.advance(2);
                return Ok(Some(Value::Bulk(body)));
            }
            other => bail!("Redis begins a value with {:?}", char::from(other)),
        };
        self.input.advance(end + 2);
        Ok(Some(value))
    }
}

impl Dialect for Redis {
    fn ask(&mut self, request: &Request, out: &mut BytesMut) {
        let list = self.tube.as_ref().map_or("default", TubeName::as_str);
        match request {
            Request::Put { body, .. } => {
                command(&[b"LPUSH", list.as_bytes(), body], out);
                self.asked.push_back(Asked::Put);
            }
            Request::Reserve | Request::ReserveWithTimeout(_) => {
                let words: [&[u8]; 4] = [
                    b"BRPOPLPUSH",
                    list.as_bytes(),
                    self.taken_list.as_bytes(),
                    b"0",
                ];
                command(&words, out);
                self.asked.push_back(Asked::Reserve);
            }
            Request::Delete(job) => {
                let body = self.taken.remove(job).unwrap_or_default();
                command(&[b"LREM", self.taken_list.as_bytes(), b"1", &body], out);
                self.asked.push_back(Asked::Delete);
            }
            other => {
                if let Request::Use(tube) | Request::Watch(tube) = other {
                    self.tube = Some(tube.clone());
                }
                command(&[b"PING"], out);
                self.asked.push_back(Asked::Nothing(Reply::Watching(1)));
            }
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    fn step(&mut self, _: &mut BytesMut) -> anyhow::Result<Option<Reply>> {
        let Some(value) = self.value()? else {
            return Ok(None);
        };
        let asked = self.asked.pop_front();
        Ok(Some(match (asked, value) {
            (Some(Asked::Nothing(reply)), Value::Line(_)) => reply,
            (Some(Asked::Put), Value::Integer(length)) => {
                Reply::Inserted(JobId(length.unsigned_abs()))
            }
            (Some(Asked::Reserve), Value::Bulk(body)) => {
                self.last_job += 1;
                let job = JobId(self.last_job);
                self.taken.insert(job, body.clone());
                Reply::Reserved { job, body }
            }
            (Some(Asked::Reserve), Value::Nil) => Reply::TimedOut,
            (Some(Asked::Delete), Value::Integer(1)) => Reply::Deleted,
            (Some(Asked::Delete), Value::Integer(_)) => Reply::NotFound,
            (asked, value) => bail!("Redis answers {asked:?} with {value:?}"),
        }))
    }
}

fn command(words: &[&[u8]], out: &mut BytesMut) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use trellis_types::{Priority, Seconds};

    use super::*;

    #[test]
    fn a_job_is_pushed_taken_and_removed() {
        let place = Place {
            number: 7,
            founds_tube: true,
            depth: 1,
        };
        let mut redis = Redis::new(place);
        let mut out = BytesMut::new();
        let put = Request::Put {
            priority: Priority(0),
            delay: Seconds(0),
            ttr: Seconds(1),
            body: Bytes::from_static(b"a\r\nb"),
        };
        redis.ask(&put, &mut out);
        assert_eq!(
            out.split(),
            &b"*3\r\n$5\r\nLPUSH\r\n$7\r\ndefault\r\n$4\r\na\r\nb\r\n"[..]
        );
        redis.ask(&Request::Reserve, &mut out);
        let mut replies = Vec::new();
        // However the bytes are cut.
        for byte in b":1\r\n$4\r\na\r\nb\r\n" {
            redis.feed(&[*byte]);
            replies.extend(redis.step(&mut out).expect("sound"));
        }
        let reserved = Reply::Reserved {
            job: JobId(1),
            body: Bytes::from_static(b"a\r\nb"),
        };
        assert_eq!(replies, [Reply::Inserted(JobId(1)), reserved]);
        out.clear();
        redis.ask(&Request::Delete(JobId(1)), &mut out);
        assert_eq!(
            out.split(),
            &b"*4\r\n$4\r\nLREM\r\n$7\r\ntaken-7\r\n$1\r\n1\r\n$4\r\na\r\nb\r\n"[..]
        );
        redis.feed(b":0\r\n-ERR no\r\n");
        assert_eq!(redis.step(&mut out).expect("sound"), Some(Reply::NotFound));
        let error = redis.step(&mut out).expect_err("Redis reported an error");
        assert_eq!(error.to_string(), "Redis says: ERR no");
    }
}
