use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};

use super::peer::Peer;
use crate::plan::{Load, Mix};

/// A load as it is asked for: `mix:connections` or `mix:connections:depth`, as `put:256` and `put:1:1000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) mix: Mix,
    pub(crate) connections: usize,
    pub(crate) depth: usize,
}

impl Task {
    /// True if `peer` can be asked for this.
    pub(crate) fn suits(self, peer: Peer) -> bool {
        peer != Peer::Etcd || self.mix != Mix::Delivery
    }

    /// What to do, in the peer's words or (without one) in Trellis'.
    pub(crate) fn load(self, peer: Option<Peer>, shape: &Shape) -> Load {
        Load {
            dialect: peer.map(Peer::tongue).unwrap_or_default(),
            mix: self.mix,
            connections: self.connections,
            depth: self.depth,
            body_bytes: shape.body_bytes,
            tubes: 1,
            roam: 0,
            rate: None,
            warm_up: shape.warm_up,
            seconds: shape.seconds,
            threads: shape.threads,
            patience: 30.0,
        }
    }
}

/// What all loads have alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) body_bytes: usize,
    pub(crate) warm_up: f64,
    pub(crate) seconds: f64,
    pub(crate) threads: usize,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.mix {
            Mix::Put => "put",
            Mix::Cycle => "cycle",
            Mix::Delivery => "delivery",
        };
        write!(f, "{what}:{}", self.connections)?;
        if self.depth > 1 {
            write!(f, ":{}", self.depth)?;
        }
        Ok(())
    }
}

impl FromStr for Task {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut parts = text.split(':');
        let mix = match parts.next() {
            Some("put") => Mix::Put,
            Some("cycle") => Mix::Cycle,
            Some("delivery") => Mix::Delivery,
            _ => bail!("'{text}' is no load: it begins with put, cycle or delivery"),
        };
        let mut number = |default: Option<usize>| match parts.next() {
            Some(part) => part
                .parse()
                .ok()
                .filter(|it| *it > 0)
                .with_context(|| format!("'{text}' is no load: '{part}' is not a count")),
            None => default.with_context(|| format!("'{text}' is no load: how many connections?")),
        };
        Ok(Self {
            mix,
            connections: number(None)?,
            depth: number(Some(1))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_written_as_it_is_read() {
        for text in ["put:256", "put:1:1000", "cycle:64", "delivery:1"] {
            let task: Task = text.parse().expect("sound");
            assert_eq!(task.to_string(), text);
        }
        for text in ["", "put", "push:1", "put:0", "put:x", "put:1:0"] {
            assert!(text.parse::<Task>().is_err(), "{text}");
        }
    }
}
