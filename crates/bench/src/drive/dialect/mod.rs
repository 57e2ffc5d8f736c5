//! How other servers are asked for the same: each dialect says beanstalkd's requests in its server's own words, and the
//! server's answers in beanstalkd's. So one driver, with one way of timing, loads them all.
//!
//! None of them knows a socket.

mod amqp;
mod beanstalk;
mod nats;
mod redis;
mod slots;

use std::fmt::Debug;

use bytes::BytesMut;
use clap::ValueEnum;
use trellis_wire::beanstalk::{Reply, Request};

use self::amqp::Amqp;
use self::beanstalk::Beanstalk;
use self::nats::Nats;
use self::redis::Redis;

/// What a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tongue {
    /// beanstalkd's protocol.
    #[default]
    Beanstalk,
    /// RESP: put is LPUSH, reserve BRPOPLPUSH to a list of the connection's own, delete LREM from that.
    Redis,
    /// NATS JetStream: a work-queue stream of three replicas, pulled one by one, each acknowledgement confirmed.
    Nats,
    /// AMQP 0-9-1: a quorum queue, publisher confirms, and acknowledgements, which the protocol does not confirm.
    Amqp,
    /// etcd's gRPC: put is a new key, reserve nothing, delete deletes the key.
    Etcd,
}

/// One connection's conversation.
pub(super) trait Dialect: Debug + Send {
    /// Appends to `out` what asks for `request`.
    fn ask(&mut self, request: &Request, out: &mut BytesMut);

    /// Takes bytes that the server sent.
    fn feed(&mut self, bytes: &[u8]);

    /// The next answer; answers come in the order of the requests. What the protocol wants said in between is appended
    /// to `out`. An error ends the connection.
    fn step(&mut self, out: &mut BytesMut) -> anyhow::Result<Option<Reply>>;
}

/// What a dialect may need to know of its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Different for each connection of the run.
    pub(super) number: usize,
    /// The first that uses its tube: it makes what the server wants to have made before.
    pub(super) founds_tube: bool,
    /// Operations that it has under way at once.
    pub(super) depth: usize,
}

/// A conversation in `tongue`; `None` if that one is not spoken over a plain socket.
pub(super) fn dialect(tongue: Tongue, place: Place) -> Option<Box<dyn Dialect>> {
    Some(match tongue {
        Tongue::Beanstalk => Box::new(Beanstalk::new()),
        Tongue::Redis => Box::new(Redis::new(place)),
        Tongue::Nats => Box::new(Nats::new(place)),
        Tongue::Amqp => Box::new(Amqp::new(place)),
        Tongue::Etcd => return None,
    })
}
