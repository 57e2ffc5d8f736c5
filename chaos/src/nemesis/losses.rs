use std::time::Duration;

use anyhow::{Result, bail};
use rand::{Rng, rngs::StdRng};
use trellis_testkit::network::{Filter, Hook};

use super::{Broken, Nemesis};
use crate::arena::{Arena, host, wait};

/// At every node a part of what arrives is lost, by chance.
#[derive(Debug, Default)]
pub(super) struct Loss {
    filters: Vec<Filter>,
}

impl Nemesis for Loss {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let percent = random.random_range(5..=30);
        let share = format!("0.{percent:02}");
        let rule = [
            "!",
            "-i",
            "lo",
            "-p",
            "tcp",
            "!",
            "--dport",
            "11302",
            "-m",
            "statistic",
            "--mode",
            "random",
            "--probability",
            &share,
            "-j",
            "DROP",
        ];
        let rule: Vec<_> = rule.map(str::to_owned).into();
        let members = arena.members().to_vec();
        for node in &members {
            let rules = [rule.clone()];
            let filter = Filter::lay(arena.network(), host(*node), Hook::Input, "loss", &rules)?;
            self.filters.push(filter);
        }
        let met = wait(Duration::from_secs(5), "packets are lost", || {
            let mut met = 0;
            for filter in &self.filters {
                met += filter.met(arena.network())?;
            }
            if met < 20 {
                bail!("only {met} were");
            }
            Ok(met)
        })?;
        let seen = format!("{percent} %: {met} packets lost so far");
        Ok(Broken::new(members, seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        for filter in self.filters.drain(..) {
            filter.lift(arena.network())?;
        }
        Ok(())
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(6)
    }
}
