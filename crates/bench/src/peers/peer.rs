use std::path::PathBuf;

use clap::ValueEnum;

use crate::drive::Tongue;
use crate::servers::{Launch, NatsSync, Server, version_of};

/// A queue (or, for a lower bound, a store) that Trellis is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Peer {
    /// beanstalkd without a log.
    Beanstalkd,
    /// beanstalkd with a log as it syncs it by default.
    BeanstalkdLog,
    /// beanstalkd with a log that is synced at every write.
    BeanstalkdF0,
    /// One Redis whose log is synced at every write.
    Redis,
    /// Three RabbitMQ nodes and a quorum queue.
    Rabbitmq,
    /// Three NATS servers that sync before they acknowledge.
    NatsAlways,
    /// Three NATS servers that sync as they do by default.
    Nats,
    /// Three etcd members.
    Etcd,
}

/// Where Debian's package puts the release's own scripts.
const RABBITMQ_RELEASES: &str = "/usr/lib/rabbitmq/lib";
const ERLANG_RELEASES: &str = "/usr/lib/erlang/releases";

impl Peer {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Beanstalkd => "beanstalkd, no log",
            Self::BeanstalkdLog => "beanstalkd -b",
            Self::BeanstalkdF0 => "beanstalkd -b -f0",
            Self::Redis => "Redis, AOF always",
            Self::Rabbitmq => "RabbitMQ, quorum queue",
            Self::NatsAlways => "NATS R3, sync always",
            Self::Nats => "NATS R3, default sync",
            Self::Etcd => "etcd, 3 members",
        }
    }

    /// How it was set, and what its acknowledgement means.
    pub(crate) fn settings(self) -> &'static str {
        match self {
            Self::Beanstalkd => "one process, in memory: a crash loses all",
            Self::BeanstalkdLog => "one process, -b: syncs every 50 ms, answers before",
            Self::BeanstalkdF0 => "one process, -b -f0: syncs before it answers",
            Self::Redis => {
                "one process, appendonly yes, appendfsync always, save \"\": syncs before it answers; put = LPUSH, \
                 reserve = BRPOPLPUSH to the worker's own list, delete = LREM"
            }
            Self::Rabbitmq => {
                "three nodes, one quorum queue, persistent messages, publisher confirms (a majority has synced); \
                 reserve = delivery to a consumer with prefetch = depth, delete = ack, which AMQP does not confirm"
            }
            Self::NatsAlways => {
                "three servers, work-queue stream of 3 replicas in files, sync_interval: always (a majority has synced); \
                 reserve = pull of one, delete = ack with the server's answer"
            }
            Self::Nats => {
                "the same with sync_interval as it is by default (2 min): acknowledges what no disk has yet"
            }
            Self::Etcd => {
                "three members, defaults but for the quota (8 GiB): a majority has synced; put = a new key, \
                 reserve = nothing, delete = delete the key"
            }
        }
    }

    /// What its clients speak.
    pub(crate) fn tongue(self) -> Tongue {
        match self {
            Self::Beanstalkd | Self::BeanstalkdLog | Self::BeanstalkdF0 => Tongue::Beanstalk,
            Self::Redis => Tongue::Redis,
            Self::Rabbitmq => Tongue::Amqp,
            Self::NatsAlways | Self::Nats => Tongue::Nats,
            Self::Etcd => Tongue::Etcd,
        }
    }

    /// True if starting it takes so long that one start has to do for all loads.
    pub(crate) fn starts_slowly(self) -> bool {
        self == Self::Rabbitmq
    }

    fn program_name(self) -> &'static str {
        match self {
            Self::Beanstalkd | Self::BeanstalkdLog | Self::BeanstalkdF0 => "beanstalkd",
            Self::Redis => "redis-server",
            Self::Rabbitmq => "rabbitmq-server",
            Self::NatsAlways | Self::Nats => "nats-server",
            Self::Etcd => "etcd",
        }
    }

    /// Its program; `None` if it is not installed.
    pub(crate) fn program(self) -> Option<PathBuf> {
        let name = self.program_name();
        if self == Self::Rabbitmq {
            let releases = std::fs::read_dir(RABBITMQ_RELEASES).ok()?;
            let mut scripts = releases
                .flatten()
                .map(|release| release.path().join("sbin").join(name));
            return scripts.find(|script| script.is_file());
        }
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|program| program.is_file())
    }

    /// In its own words.
    pub(crate) fn version(self) -> String {
        let Some(program) = self.program() else {
            return "not installed".to_owned();
        };
        let said = match self {
            Self::Beanstalkd | Self::BeanstalkdLog | Self::BeanstalkdF0 => {
                version_of(&program, "-v")
            }
            Self::Rabbitmq => {
                // Asking it starts a whole Erlang; its folder has the version in its name.
                let release = program.ancestors().nth(2);
                release
                    .and_then(|it| it.file_name())
                    .map(|it| format!("{}, Erlang {}", it.to_string_lossy(), erlang()))
            }
            _ => version_of(&program, "--version")
                .map(|said| said.split(" sha=").next().unwrap_or_default().to_owned()),
        };
        said.unwrap_or_else(|| "of unknown version".to_owned())
    }

    /// Starts it.
    pub(crate) fn start(self, launch: &Launch) -> anyhow::Result<Server> {
        let program = self
            .program()
            .ok_or_else(|| anyhow::anyhow!("{} is not installed", self.program_name()))?;
        match self {
            Self::Beanstalkd => Server::beanstalkd(&program, &[], launch),
            Self::BeanstalkdLog => Server::beanstalkd(&program, &["-b"], launch),
            Self::BeanstalkdF0 => Server::beanstalkd(&program, &["-b", "-f0"], launch),
            Self::Redis => Server::redis(&program, launch),
            Self::Rabbitmq => Server::rabbitmq(&program, launch),
            Self::NatsAlways => Server::nats(&program, NatsSync::Always, launch),
            Self::Nats => Server::nats(&program, NatsSync::Default, launch),
            Self::Etcd => Server::etcd(&program, launch),
        }
    }
}

/// The release of Erlang that is installed: a folder named by a number.
fn erlang() -> String {
    let releases = std::fs::read_dir(ERLANG_RELEASES).into_iter().flatten();
    releases
        .flatten()
        .map(|release| release.file_name().to_string_lossy().into_owned())
        .find(|name| name.parse::<u32>().is_ok())
        .unwrap_or_else(|| "of unknown release".to_owned())
}
