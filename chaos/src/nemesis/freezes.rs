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
    /// With it frozen there is to be another leader: it led, and the two others are in touch.
    replaced: bool,
}

impl Freeze {
    pub(super) fn leader(seconds: u64) -> Self {
        Self {
            leader: true,
            seconds,
            victim: None,
            replaced: false,
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
        let led = arena.leading().is_some_and(|claim| claim.0 == victim);
        self.replaced = led && arena.can_spare(victim);
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
        let other = if self.replaced {
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
