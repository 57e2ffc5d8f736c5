use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use rand::{Rng, rngs::StdRng};

use super::{Broken, Incident, Nemesis};
use crate::arena::{Arena, Manner};

/// All links between nodes.
fn pairs(arena: &Arena) -> Vec<(usize, usize)> {
    let members = arena.members();
    let all = members
        .iter()
        .flat_map(|one| members.iter().map(|other| (*one, *other)));
    all.filter(|(one, other)| one < other).collect()
}

/// Delay and jitter on all links between nodes.
#[derive(Debug)]
pub(super) struct Delay;

impl Nemesis for Delay {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let delay = Duration::from_millis(random.random_range(50..=200));
        let jitter = Duration::from_millis(random.random_range(0..=300));
        let manner = Manner {
            delay,
            jitter,
            bytes_per_second: None,
        };
        let pairs = pairs(arena);
        let links = arena.links()?;
        let bytes = || pairs.iter().map(|(a, b)| links.bytes(*a, *b)).sum::<u64>();
        let before = bytes();
        for (one, other) in &pairs {
            links.set(*one, *other, manner);
        }
        // What went through from now on went late: nothing else carries it.
        let until = Instant::now() + Duration::from_secs(5);
        while bytes() == before {
            if Instant::now() > until {
                bail!("nothing goes over the slow links");
            }
            thread::sleep(Duration::from_millis(20));
        }
        let seen = format!("all links: {delay:?} and up to {jitter:?} more");
        Ok(Broken::new(arena.members(), seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let pairs = pairs(arena);
        let links = arena.links()?;
        for (one, other) in pairs {
            links.set(one, other, Manner::default());
        }
        Ok(())
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(8)
    }
}

/// All streams on a link are reset, on one link after the other.
#[derive(Debug)]
pub(super) struct Cut;

impl Incident for Cut {
    fn happen(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let pairs = pairs(arena);
        let links = arena.links()?;
        let mut cut = 0;
        for _ in 0..8 {
            let (one, other) = pairs[random.random_range(0..pairs.len())];
            cut += links.cut(one, other);
            thread::sleep(Duration::from_millis(random.random_range(50..600)));
        }
        if cut == 0 {
            bail!("there was no stream to cut");
        }
        Ok(Broken::new(arena.members(), format!("{cut} streams cut")))
    }
}
