use std::{net::TcpStream, time::Duration};

use anyhow::{Result, bail};
use rand::{Rng, rngs::StdRng};
use trellis_checker::history::NodeEvent;

use super::{Broken, Nemesis};
use crate::arena::{Arena, name, wait};

/// How long a rule may wait for somebody to run into it.
const STRUCK_MAX: Duration = Duration::from_secs(20);

/// The node says that its disk failed by this exit code.
const DISK_FAILED: i32 = 74;

/// One fsync of the log fails, and the next would succeed: the node must not try.
#[derive(Debug, Default)]
pub(super) struct SyncFails {
    node: Option<usize>,
}

impl Nemesis for SyncFails {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.leader_or_any(random)?;
        self.node = Some(node);
        arena
            .disk(node)?
            .tell("on sync fail EIO path=*log/* times=1")?;
        arena.node(node).wait_for_end(STRUCK_MAX)?;
        arena.note(node, NodeEvent::Killed);
        let code = arena.node(node).exit_code();
        let strikes = arena.disk(node)?.strikes()?;
        if code != Some(DISK_FAILED) || strikes != 1 {
            bail!("{} ended with {code:?} after {strikes} strikes", name(node));
        }
        let seen = format!("{} ended with exit code {DISK_FAILED}", name(node));
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        arena.disk(node)?.tell("off all")?;
        arena.start(node)
    }
}

/// Every fsync of the leader's log hangs.
#[derive(Debug, Default)]
pub(super) struct SyncHangs {
    node: Option<usize>,
}

impl Nemesis for SyncHangs {
    fn begin(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<Broken> {
        let leader = arena.leader()?;
        self.node = Some(leader);
        arena.disk(leader)?.tell("on sync hang 60 path=*log/*")?;
        let next = arena.another_leads(leader)?;
        let seen = format!(
            "{} syncs hang in {}; {} leads",
            arena.disk(leader)?.strikes()?,
            name(leader),
            name(next)
        );
        Ok(Broken::new([leader], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        // The node gives up by itself 10 s after a sync began to hang. Its process can't go before
        // the kernel has its answer, but nobody hears of it any more.
        wait(Duration::from_secs(30), "it gives up by itself", || {
            let admin = arena.node(node).admin();
            match TcpStream::connect_timeout(&admin, Duration::from_secs(1)) {
                Ok(_) => bail!("{} still answers", name(node)),
                Err(_) => Ok(()),
            }
        })?;
        arena.disk(node)?.tell("off all")?;
        arena.node(node).wait_for_end(STRUCK_MAX)?;
        arena.note(node, NodeEvent::Killed);
        let code = arena.node(node).exit_code();
        if code != Some(DISK_FAILED) {
            bail!("{} ended with {code:?}, not {DISK_FAILED}", name(node));
        }
        arena.start(node)
    }
}

/// A follower's disk takes a hundred times its time.
#[derive(Debug, Default)]
pub(super) struct Slow {
    node: Option<usize>,
}

impl Nemesis for Slow {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.follower(random)?;
        self.node = Some(node);
        let disk = arena.disk(node)?;
        disk.tell("on any slow 100")?;
        let strikes = wait(STRUCK_MAX, "the disk is used", || match disk.strikes()? {
            0 => bail!("nobody uses it"),
            strikes => Ok(strikes),
        })?;
        let seen = format!("{}: {strikes} slow operations so far", name(node));
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        if let Some(node) = self.node.take() {
            arena.disk(node)?.tell("off all")?;
        }
        Ok(())
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(8)
    }
}

/// The power of some nodes goes: the processes are gone, and what was not synced with them.
#[derive(Debug)]
pub(super) struct PowerCut {
    count: usize,
    victims: Vec<usize>,
}

impl PowerCut {
    pub(super) fn of(count: usize) -> Self {
        Self {
            count,
            victims: Vec::new(),
        }
    }
}

impl Nemesis for PowerCut {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let mut victims = arena.living();
        while victims.len() > self.count {
            victims.swap_remove(random.random_range(0..victims.len()));
        }
        // Frozen first, so that none of them syncs what the others' deaths bring about.
        for node in &victims {
            arena.freeze(*node)?;
        }
        let mut lost = Vec::new();
        for node in &victims {
            let keep = ["nothing", "prefix", "pages"][random.random_range(0..3)];
            let order = format!("cut keep={keep} seed={}", random.random_range(1..1_000));
            let answer = arena.disk(*node)?.tell(&order)?;
            lost.push(format!("{} ({keep}): {}", name(*node), answer["lost"]));
            arena.kill(*node)?;
        }
        self.victims.clone_from(&victims);
        Ok(Broken::new(victims, lost.join("; ")))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        for node in std::mem::take(&mut self.victims) {
            arena.start(node)?;
        }
        Ok(())
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(1)
    }
}
