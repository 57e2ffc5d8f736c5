//! etcd's driver: its gRPC needs HTTP/2, so unlike the others it is no dialect on a plain socket.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{cell::RefCell, str::FromStr};

use anyhow::Context;
use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::tally::{Step, Tally};
use super::thread::{body, thread_cpu};
use super::{Times, nanos};
use crate::plan::{Mix, Plan};

/// `etcdserverpb.PutRequest`, as far as it is used.
#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// `etcdserverpb.PutResponse`: that it came is enough.
#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

/// `etcdserverpb.DeleteRangeRequest` of one key.
#[derive(Clone, PartialEq, prost::Message)]
struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
}

/// `etcdserverpb.DeleteRangeResponse`, as far as it is used.
#[derive(Clone, PartialEq, prost::Message)]
struct DeleteRangeResponse {
    #[prost(int64, tag = "2")]
    deleted: i64,
}

/// A thread's share of the connections, each a channel of its own.
#[derive(Debug)]
pub(super) struct EtcdThread {
    runtime: tokio::runtime::Runtime,
    channels: Vec<(usize, Channel)>,
    mix: Mix,
    depth: usize,
    body: Bytes,
    run: String,
    times: Times,
}

impl EtcdThread {
    /// Opens the connections of thread number `index`. The keys are named after `run`.
    pub(super) fn connect(
        plan: &Plan,
        run: &str,
        index: usize,
        times: Times,
    ) -> anyhow::Result<Self> {
        let load = &plan.load;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut channels = Vec::new();
        for number in (index..load.connections).step_by(load.threads) {
            let target = plan.targets[number % plan.targets.len()];
            channels.push((number, runtime.block_on(channel(target))?));
        }
        Ok(Self {
            runtime,
            channels,
            mix: load.mix,
            depth: load.depth,
            body: body(load.body_bytes),
            run: run.to_owned(),
            times,
        })
    }

    /// Drives until the time is over and everything is answered.
    pub(super) fn run(self) -> anyhow::Result<Tally> {
        let base = Instant::now();
        let tally = Rc::new(RefCell::new(Tally::new()));
        let all = tokio::task::LocalSet::new();
        for (number, channel) in &self.channels {
            for place in 0..self.depth {
                let client = Client {
                    grpc: tonic::client::Grpc::new(channel.clone()),
                    name: format!("bench-{}-{number}-{place}-", self.run),
                    mix: self.mix,
                    body: self.body.clone(),
                    times: self.times,
                    base,
                    tally: Rc::clone(&tally),
                };
                all.spawn_local(client.drive());
            }
        }
        let times = self.times;
        let cpu = all.spawn_local(async move {
            let wait_until = |moment: u64| {
                tokio::time::sleep_until((base + Duration::from_nanos(moment)).into())
            };
            wait_until(times.measured_from).await;
            let before = thread_cpu();
            wait_until(times.until).await;
            thread_cpu().saturating_sub(before)
        });
        let cpu = self.runtime.block_on(async {
            all.await;
            cpu.await
        })?;
        drop(self.channels);
        let mut tally = Rc::try_unwrap(tally)
            .ok()
            .context("a client is still running")?
            .into_inner();
        tally.cpu = cpu;
        Ok(tally)
    }
}

async fn channel(target: SocketAddr) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{target}"))?
        .tcp_nodelay(true)
        .connect_timeout(Duration::from_secs(10));
    endpoint
        .connect()
        .await
        .with_context(|| format!("can't connect to {target}"))
}

/// Finds out whether a member takes a key, within `patience`.
pub(super) fn prove(target: SocketAddr, patience: Duration) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let times = Times {
        measured_from: 0,
        until: 0,
        patience: nanos(patience),
    };
    runtime.block_on(async {
        let mut client = Client {
            grpc: tonic::client::Grpc::new(channel(target).await?),
            name: String::new(),
            mix: Mix::Cycle,
            body: Bytes::from_static(b"proof"),
            times,
            base: Instant::now(),
            tally: Rc::new(RefCell::new(Tally::new())),
        };
        let key = Bytes::from_static(b"bench-proof");
        tokio::time::timeout(patience, client.operation(key)).await?
    })
}

/// One that has one operation under way at a time.
struct Client {
    grpc: tonic::client::Grpc<Channel>,
    name: String,
    mix: Mix,
    body: Bytes,
    times: Times,
    base: Instant,
    tally: Rc<RefCell<Tally>>,
}

impl Client {
    async fn drive(mut self) {
        let mut number = 0u64;
        let patience = Duration::from_nanos(self.times.patience);
        while nanos(self.base.elapsed()) < self.times.until {
            number += 1;
            let key = Bytes::from(format!("{}{number}", self.name));
            let done = tokio::time::timeout(patience, self.operation(key)).await;
            let why = match done {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("no reply came for {} s", patience.as_secs()),
            };
            self.tally.borrow_mut().fail(|| why);
            return;
        }
    }

    async fn operation(&mut self, key: Bytes) -> anyhow::Result<()> {
        let begun = nanos(self.base.elapsed());
        let put = PutRequest {
            key: key.clone(),
            value: self.body.clone(),
        };
        let _: PutResponse = self.call("/etcdserverpb.KV/Put", put).await?;
        let mut now = self.record(Step::Put, begun);
        if self.mix == Mix::Cycle {
            let answer: DeleteRangeResponse = self
                .call("/etcdserverpb.KV/DeleteRange", DeleteRangeRequest { key })
                .await?;
            anyhow::ensure!(answer.deleted == 1, "{} keys deleted", answer.deleted);
            self.record(Step::Delete, now);
            now = self.record(Step::Cycle, begun);
        }
        if self.counts(now) {
            self.tally.borrow_mut().operations += 1;
        }
        Ok(())
    }

    fn counts(&self, moment: u64) -> bool {
        (self.times.measured_from..self.times.until).contains(&moment)
    }

    fn record(&self, step: Step, since: u64) -> u64 {
        let now = nanos(self.base.elapsed());
        if self.counts(now) {
            self.tally.borrow_mut().record(step, now - since);
        }
        now
    }

    async fn call<Q, A>(&mut self, path: &str, request: Q) -> anyhow::Result<A>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.grpc.ready().await?;
        let path = PathAndQuery::from_str(path)?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = self
            .grpc
            .unary(tonic::Request::new(request), path, codec)
            .await?;
        Ok(answer.into_inner())
    }
}
