//! A client that waits for its answers, for what must happen around a measurement rather than in it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::{Bytes, BytesMut};
use trellis_types::{JobId, Priority, Seconds, TubeName};
use trellis_wire::beanstalk::client::{ReplyDecoder, encode_request};
use trellis_wire::beanstalk::{Reply, Request};

use super::progress::Progress;

/// How long an answer may take: a kick of ten million is one.
const PATIENCE: Duration = Duration::from_secs(120);
/// Requests that are written before the answers of the portion before them are read.
const PORTION: usize = 256;

#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    decoder: ReplyDecoder,
}

impl Client {
    pub(super) fn open(target: &str) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(target).with_context(|| format!("can't connect to {target}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            decoder: ReplyDecoder::new(),
        })
    }

    pub(super) fn send(&mut self, requests: &[Request]) -> anyhow::Result<()> {
        let mut out = BytesMut::new();
        for request in requests {
            encode_request(request, &mut out);
        }
        self.stream.write_all(&out)?;
        Ok(())
    }

    pub(super) fn receive(&mut self) -> anyhow::Result<Reply> {
        let mut bytes = [0; 16 << 10];
        loop {
            if let Some(reply) = self.decoder.step() {
                return Ok(reply?);
            }
            match self.stream.read(&mut bytes)? {
                0 => bail!("the connection was closed"),
                count => self.decoder.feed(&bytes[..count]),
            }
        }
    }

    pub(super) fn ask(&mut self, request: Request) -> anyhow::Result<Reply> {
        self.send(&[request])?;
        self.receive()
    }

    /// Asks for all of it, a portion on its way while the answers of the one before are read.
    pub(super) fn ask_all(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
        take: impl FnMut(Reply) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.ask_all_and(requests, take, |_| {})
    }

    /// The same; `told` hears how many were answered after each portion.
    fn ask_all_and(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
        mut take: impl FnMut(Reply) -> anyhow::Result<()>,
        told: impl Fn(u64),
    ) -> anyhow::Result<()> {
        let mut requests = requests.into_iter();
        let mut under_way = 0;
        loop {
            let portion: Vec<Request> = requests.by_ref().take(PORTION).collect();
            self.send(&portion)?;
            for _ in 0..under_way {
                take(self.receive()?)?;
            }
            told(under_way as u64);
            under_way = portion.len();
            if portion.is_empty() {
                return Ok(());
            }
        }
    }

    /// A figure of `stats`, or with a tube of `stats-tube`; 0 if there is no such tube.
    pub(super) fn stat(&mut self, tube: Option<&TubeName>, key: &str) -> anyhow::Result<u64> {
        let request = tube.map_or(Request::Stats, |tube| Request::StatsTube(tube.clone()));
        match self.ask(request)? {
            Reply::Ok(yaml) => {
                let text = String::from_utf8_lossy(&yaml).into_owned();
                let line = text
                    .lines()
                    .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
                let value = line.with_context(|| format!("no {key} in the statistics"))?;
                Ok(value.parse()?)
            }
            Reply::NotFound => Ok(0),
            other => bail!("statistics are answered with {other:?}"),
        }
    }
}

/// A put into the used tube.
pub(super) fn put(delay: u32, body: &Bytes) -> Request {
    Request::Put {
        priority: Priority(1024),
        delay: Seconds(delay),
        ttr: Seconds(600),
        body: body.clone(),
    }
}

/// Puts `count` jobs into `tube`, over a connection to each target at once. `delay` is asked for each.
pub(super) fn put_many(
    targets: &[String],
    tube: &TubeName,
    count: u64,
    body: &Bytes,
    delay: impl Fn() -> u32 + Sync,
) -> anyhow::Result<Vec<Vec<JobId>>> {
    let progress = Progress::towards(count, "jobs put");
    each(targets, |index, client| {
        let using = client.ask(Request::Use(tube.clone()))?;
        ensure!(matches!(using, Reply::Using(_)), "use: {using:?}");
        let share = share(count, targets.len(), index);
        let mut ids = Vec::with_capacity(usize::try_from(share)?);
        let puts = (0..share).map(|_| put(delay(), body));
        let take = |reply| match reply {
            Reply::Inserted(id) => {
                ids.push(id);
                Ok(())
            }
            other => bail!("a put is answered with {other:?}"),
        };
        client.ask_all_and(puts, take, |count| progress.add(count))?;
        Ok(ids)
    })
}

/// Deletes what [`put_many`] put.
pub(super) fn delete_many(targets: &[String], jobs: &[Vec<JobId>]) -> anyhow::Result<()> {
    let count = jobs.iter().map(Vec::len).sum::<usize>() as u64;
    let progress = Progress::towards(count, "jobs deleted");
    each(targets, |index, client| {
        let own = jobs.get(index).map(Vec::as_slice).unwrap_or_default();
        let deletes = own.iter().map(|job| Request::Delete(*job));
        let take = |reply| {
            ensure!(
                reply == Reply::Deleted,
                "a delete is answered with {reply:?}"
            );
            Ok(())
        };
        client.ask_all_and(deletes, take, |count| progress.add(count))
    })?;
    Ok(())
}

/// Does something with a client of each target, all at once.
pub(super) fn each<T: Send>(
    targets: &[String],
    act: impl Fn(usize, &mut Client) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = targets
            .iter()
            .enumerate()
            .map(|(index, target)| scope.spawn(move || act(index, &mut Client::open(target)?)))
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(done) => done,
                Err(_) => bail!("a client's thread died"),
            })
            .collect()
    })
}

fn share(count: u64, among: usize, index: usize) -> u64 {
    let (among, index) = (among as u64, index as u64);
    count / among + u64::from(index < count % among)
}
