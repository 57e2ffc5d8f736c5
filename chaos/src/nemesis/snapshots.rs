use std::{thread, time::Duration};

use anyhow::{Context as _, Result, bail};
use rand::{Rng, rngs::StdRng};
use trellis_testkit::admin::ask;

use super::{Broken, Incident, Nemesis};
use crate::arena::{Arena, Manner, READY_MAX, name, wait};

/// How long making a snapshot and purging the log may take.
const SAVED_MAX: Duration = Duration::from_secs(30);

/// Kills a follower and makes all others save and purge what it lacks, so that only a snapshot
/// can bring it back.
fn leave_behind(arena: &mut Arena, random: &mut StdRng) -> Result<usize> {
    let node = arena.follower(random)?;
    let had = arena.status(node)?["flushed"].as_u64().unwrap_or_default();
    arena.kill(node)?;
    // The others take it for dead, and have gone on without it.
    thread::sleep(Duration::from_secs(3));
    for other in arena.living() {
        let answer = arena.order(other, "POST", "/v1/snapshot", "{}", SAVED_MAX)?;
        if answer.status != 200 {
            bail!("snapshot: {} {}", answer.status, answer.body);
        }
    }
    let living = arena.living();
    wait(SAVED_MAX, "the log is purged beyond what it has", || {
        for other in &living {
            let status = arena.status(*other)?;
            let purged = status["purged"].as_u64().unwrap_or_default();
            if purged <= had {
                bail!("{} has purged up to {purged}; it has {had}", name(*other));
            }
        }
        Ok(())
    })?;
    Ok(node)
}

/// Waits until the node has a snapshot newer than `had`: one was sent to it.
fn was_sent_one(arena: &mut Arena, node: usize) -> Result<()> {
    wait(READY_MAX, "it has caught up", || {
        if !arena.is_ready(node) {
            bail!("{} is not ready: {:?}", name(node), arena.status(node));
        }
        Ok(())
    })?;
    let status = arena.status(node)?;
    if status["snapshot"].as_u64().unwrap_or_default() == 0 {
        bail!("{} has caught up without a snapshot: {status}", name(node));
    }
    Ok(())
}

/// A follower that needs a snapshot gets one.
#[derive(Debug)]
pub(super) struct Install {
    frozen: bool,
    node: Option<usize>,
}

impl Install {
    pub(super) fn plain() -> Self {
        Self {
            frozen: false,
            node: None,
        }
    }

    pub(super) fn frozen() -> Self {
        Self {
            frozen: true,
            node: None,
        }
    }
}

impl Nemesis for Install {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = leave_behind(arena, random)?;
        self.node = Some(node);
        let seen = format!("the others have purged what {} lacks", name(node));
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        arena.start(node)?;
        if self.frozen {
            // From its first words on, at any moment of what follows.
            thread::sleep(Duration::from_millis(random.random_range(50..900)));
            arena.freeze(node)?;
            thread::sleep(Duration::from_secs(4));
            arena.thaw(node)?;
        }
        was_sent_one(arena, node)
    }

    fn hold(&self) -> Duration {
        Duration::ZERO
    }
}

/// The same over a narrow link that is cut in the middle.
#[derive(Debug, Default)]
pub(super) struct Narrow {
    node: Option<usize>,
}

impl Nemesis for Narrow {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = leave_behind(arena, random)?;
        let others = arena.living();
        let narrow = Manner {
            bytes_per_second: Some(random.random_range(100_000..400_000)),
            ..Manner::default()
        };
        let links = arena.links()?;
        for other in &others {
            links.set(node, *other, narrow);
        }
        self.node = Some(node);
        arena.start(node)?;
        let links = arena.links()?;
        let before: u64 = others.iter().map(|it| links.bytes(node, *it)).sum();
        let cut = wait(READY_MAX, "much goes to it over the link", || {
            let bytes: u64 = others.iter().map(|it| links.bytes(node, *it)).sum();
            if bytes < before + 200_000 {
                bail!("{} bytes went", bytes - before);
            }
            Ok(others.iter().map(|it| links.cut(node, *it)).sum::<u64>())
        })?;
        if cut == 0 {
            bail!("there was no stream to cut");
        }
        let limit = narrow.bytes_per_second.unwrap_or_default();
        let seen = format!("{}: {limit} bytes a second, {cut} streams cut", name(node));
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        for other in arena.members().to_vec() {
            if other != node {
                arena.links()?.set(node, other, Manner::default());
            }
        }
        was_sent_one(arena, node)
    }
}

/// kill -9 while a snapshot is being made.
#[derive(Debug)]
pub(super) struct KillSaving;

impl Incident for KillSaving {
    fn happen(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            let node = arena.leader()?;
            let admin = arena.node(node).admin();
            let asked = thread::spawn(move || {
                ask(admin, "POST", "/v1/snapshot", "{}", SAVED_MAX).map(|answer| answer.status)
            });
            thread::sleep(Duration::from_millis(random.random_range(0..60)));
            arena.kill(node)?;
            let _ = asked.join();
            arena.start(node)?;
            nodes.push(node);
            arena.leader().context("after a kill")?;
            thread::sleep(Duration::from_millis(500));
        }
        let seen = format!("{} killed, a snapshot asked for just before", nodes.len());
        nodes.sort_unstable();
        nodes.dedup();
        Ok(Broken::new(nodes, seen))
    }
}
