use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};

use super::peer::Peer;
use crate::comparison::Comparison;
use crate::plan::{Load, Mix};

/// A load as it is asked for: `mix:connections`, `mix:connections:depth` or `mix:connections:depth:bytes`, as `put:256`,
/// `put:1:1000` and `put:64:1:8192`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) mix: Mix,
    pub(crate) connections: usize,
    pub(crate) depth: usize,
    /// Of a body; `None` for as many as all loads have.
    pub(crate) body_bytes: Option<usize>,
}

impl Task {
    /// True if `peer` can be asked for this.
    pub(crate) fn suits(self, peer: Peer) -> bool {
        peer != Peer::Etcd || self.mix != Mix::Delivery
    }

    /// What to do, in the peer's words or (without one) in Trellis'.
    pub(crate) fn load(self, peer: Option<Peer>, comparison: &Comparison) -> Load {
        let load = comparison.load(self.mix, self.connections, self.depth);
        Load {
            dialect: peer.map(Peer::tongue).unwrap_or_default(),
            body_bytes: self.body_bytes.unwrap_or(load.body_bytes),
            ..load
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.mix {
            Mix::Put => "put",
            Mix::Cycle => "cycle",
            Mix::Delivery => "delivery",
        };
        write!(f, "{what}:{}", self.connections)?;
        if self.depth > 1 || self.body_bytes.is_some() {
            write!(f, ":{}", self.depth)?;
        }
        if let Some(bytes) = self.body_bytes {
            write!(f, ":{bytes}")?;
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
        let mut number = || {
            let part = parts.next()?;
            let number = part.parse().ok().filter(|it| *it > 0);
            Some(number.with_context(|| format!("'{text}' is no load: '{part}' is not a count")))
        };
        let task = Self {
            mix,
            connections: number()
                .with_context(|| format!("'{text}' is no load: how many connections?"))??,
            depth: number().unwrap_or(Ok(1))?,
            body_bytes: number().transpose()?,
        };
        match parts.next() {
            None => Ok(task),
            Some(more) => bail!("'{text}' is no load: '{more}' is too much"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_written_as_it_is_read() {
        for text in ["put:256", "put:1:1000", "cycle:64:1:8192", "delivery:1"] {
            let task: Task = text.parse().expect("sound");
            assert_eq!(task.to_string(), text);
        }
        for text in [
            "",
            "put",
            "push:1",
            "put:0",
            "put:x",
            "put:1:0",
            "put:1:1:1:1",
        ] {
            assert!(text.parse::<Task>().is_err(), "{text}");
        }
    }
}
