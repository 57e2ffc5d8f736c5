use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;

use super::{Broken, Nemesis};
use crate::arena::{Arena, name};

/// SIGSTOP of one node, SIGCONT at the end.
#[derive(Debug)]
pub(super) struct Freeze {
    leader: bool,
    seconds: u64,
    victim: Option<usize>,
    led: bool,
}

impl Freeze {
    pub(super) fn leader(seconds: u64) -> Self {
        Self {
            leader: true,
            seconds,
            victim: None,
            led: false,
        }
    }

    pub(super) fn follower(seconds: u64) -> Self {
        Self {
            leader: false,
            ..Self::leader(seconds)
        }
    }
}

impl Nemesis for Freeze {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let victim = if self.leader {
            arena.leader_or_any(random)?
        } else {
            arena.follower(random)?
        };
        self.led = arena.leading().is_some_and(|claim| claim.0 == victim);
        arena.freeze(victim)?;
        self.victim = Some(victim);
        Ok(Broken::new(
            [victim],
            format!("{} is stopped", name(victim)),
        ))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(victim) = self.victim.take() else {
            return Ok(());
        };
        // With a majority awake there is another leader by now.
        let other = if self.led && arena.living().len() >= 2 {
            Some(arena.another_leads(victim).context("while it is stopped"))
        } else {
            None
        };
        arena.thaw(victim)?;
        other.transpose()?;
        Ok(())
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}
