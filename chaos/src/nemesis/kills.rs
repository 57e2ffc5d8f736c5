use std::{thread, time::Duration};

use anyhow::Result;
use rand::{Rng, rngs::StdRng, seq::SliceRandom};

use super::{Broken, Incident, Nemesis};
use crate::arena::{Arena, name};

/// kill -9 of one node; it is started again at the end.
#[derive(Debug)]
pub(super) struct Kill {
    leader: bool,
    victim: Option<usize>,
}

impl Kill {
    pub(super) fn leader() -> Self {
        Self {
            leader: true,
            victim: None,
        }
    }

    pub(super) fn follower() -> Self {
        Self {
            leader: false,
            victim: None,
        }
    }
}

impl Nemesis for Kill {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let victim = if self.leader {
            arena.leader_or_any(random)?
        } else {
            arena.follower(random)?
        };
        arena.kill(victim)?;
        self.victim = Some(victim);
        Ok(Broken::new([victim], format!("{} is gone", name(victim))))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        self.victim.take().map_or(Ok(()), |node| arena.start(node))
    }
}

/// Whoever leads is killed and started at once, while the one before still comes back.
#[derive(Debug, Default)]
pub(super) struct Again {
    victims: Vec<usize>,
}

impl Incident for Again {
    fn happen(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        for _ in 0..5 {
            let victim = arena.leader_or_any(random)?;
            arena.kill(victim)?;
            arena.start(victim)?;
            self.victims.push(victim);
            thread::sleep(Duration::from_millis(random.random_range(200..1_200)));
        }
        let names: Vec<_> = self.victims.iter().map(|node| name(*node)).collect();
        let seen = format!("{} went in turn", names.join(", "));
        let mut nodes = self.victims.clone();
        nodes.sort_unstable();
        nodes.dedup();
        Ok(Broken::new(nodes, seen))
    }
}

/// A follower is killed; while it catches up the leader is.
#[derive(Debug)]
pub(super) struct Both;

impl Incident for Both {
    fn happen(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let follower = arena.follower(random)?;
        arena.kill(follower)?;
        // Something to catch up with.
        thread::sleep(Duration::from_secs(3));
        let leader = arena.leader()?;
        arena.start(follower)?;
        thread::sleep(Duration::from_millis(random.random_range(50..800)));
        arena.kill(leader)?;
        thread::sleep(Duration::from_secs(2));
        arena.start(leader)?;
        let seen = format!(
            "{} is gone, back, and {} is gone",
            name(follower),
            name(leader)
        );
        Ok(Broken::new([follower, leader], seen))
    }
}

/// Several are killed at once and come back one by one, in any order.
#[derive(Debug)]
pub(super) struct Several {
    count: usize,
    victims: Vec<usize>,
}

impl Several {
    pub(super) fn of(count: usize) -> Self {
        Self {
            count,
            victims: Vec::new(),
        }
    }
}

impl Nemesis for Several {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let mut victims = arena.living();
        victims.shuffle(random);
        victims.truncate(self.count);
        for victim in &victims {
            arena.kill(*victim)?;
        }
        self.victims.clone_from(&victims);
        victims.sort_unstable();
        let seen = format!("{} nodes are gone", victims.len());
        Ok(Broken::new(victims, seen))
    }

    fn end(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<()> {
        self.victims.shuffle(random);
        for victim in std::mem::take(&mut self.victims) {
            arena.start(victim)?;
            thread::sleep(Duration::from_millis(random.random_range(0..800)));
        }
        Ok(())
    }

    fn hold(&self) -> Duration {
        // With two of three gone the third has time to say so.
        Duration::from_secs(if self.count == 2 { 7 } else { 1 })
    }
}
