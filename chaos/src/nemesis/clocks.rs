use std::{thread, time::Duration};

use anyhow::Result;
use rand::{Rng, rngs::StdRng};

use super::{Broken, Incident, Nemesis};
use crate::arena::{Arena, name};

/// Ten minutes.
const SKEW_S: i64 = 600;

/// The leader's wall clock is stepped under load. Each step is read back from the node.
#[derive(Debug)]
pub(super) struct Steps;

impl Incident for Steps {
    fn happen(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<Broken> {
        let leader = arena.leader()?;
        for step in [3_600, -3_600, 0] {
            arena.set_clock(leader, step)?;
            thread::sleep(Duration::from_secs(2));
        }
        let seen = format!("{} told +1 h, -1 h and the right time", name(leader));
        Ok(Broken::new([leader], seen))
    }
}

/// The leader dies, and whoever follows it has a wrong wall clock.
#[derive(Debug, Default)]
pub(super) struct Failover {
    victim: Option<usize>,
}

impl Nemesis for Failover {
    fn begin(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<Broken> {
        let leader = arena.leader()?;
        let others = arena.living().into_iter().filter(|node| *node != leader);
        for (node, skew) in others.zip([-SKEW_S, SKEW_S]).collect::<Vec<_>>() {
            arena.set_clock(node, skew)?;
        }
        arena.kill(leader)?;
        self.victim = Some(leader);
        let next = arena.another_leads(leader)?;
        let seen = format!("{} led, now {} does", name(leader), name(next));
        Ok(Broken::new([leader, next], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        if let Some(victim) = self.victim.take() {
            arena.start(victim)?;
        }
        for node in arena.living() {
            arena.set_clock_unseen(node, 0)?;
        }
        Ok(())
    }
}

/// A wall clock that jumps.
#[derive(Debug, Default)]
pub(super) struct Strobe {
    node: Option<usize>,
}

impl Nemesis for Strobe {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.leader_or_any(random)?;
        self.node = Some(node);
        arena.set_clock(node, 30)?;
        for jump in 0..20 {
            let ahead = if jump % 2 == 0 { -30 } else { 30 };
            arena.set_clock_unseen(node, ahead)?;
            thread::sleep(Duration::from_millis(random.random_range(50..400)));
        }
        Ok(Broken::new(
            [node],
            format!("{} told +30 s, then 20 jumps", name(node)),
        ))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        self.node
            .take()
            .map_or(Ok(()), |node| arena.set_clock(node, 0))
    }

    fn hold(&self) -> Duration {
        Duration::ZERO
    }
}

/// As a virtual machine that was paused: the process stood still, the wall clock went on.
#[derive(Debug, Default)]
pub(super) struct Pause {
    node: Option<usize>,
}

impl Nemesis for Pause {
    fn begin(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<Broken> {
        let leader = arena.leader()?;
        arena.freeze(leader)?;
        arena.set_clock_unseen(leader, 300)?;
        self.node = Some(leader);
        Ok(Broken::new(
            [leader],
            format!("{} is stopped", name(leader)),
        ))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        arena.thaw(node)?;
        // It is seen to wake with the new time before that is taken back.
        arena.set_clock(node, 300)?;
        thread::sleep(Duration::from_secs(2));
        arena.set_clock(node, 0)
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(6)
    }
}
