use std::{thread, time::Duration};

use anyhow::{Context as _, Result, bail};
use rand::rngs::StdRng;
use rustix::process::Signal;
use trellis_checker::history::NodeEvent;

use super::{Broken, Incident, Nemesis};
use crate::arena::{Arena, READY_MAX, name, wait};

/// How long a stop in good order may take: the drain's own bound and a little.
const STOP_MAX: Duration = Duration::from_secs(40);

/// SIGTERM, an end with exit code 0, and a new start.
fn restart(arena: &mut Arena, node: usize) -> Result<()> {
    arena.node(node).signal(Signal::TERM)?;
    arena.node(node).wait_for_end(STOP_MAX)?;
    let code = arena.node(node).exit_code();
    arena.note(node, NodeEvent::Killed);
    if code != Some(0) {
        bail!("{} ended with {code:?} after SIGTERM", name(node));
    }
    arena.start(node)
}

/// SIGTERM of the leader.
#[derive(Debug)]
pub(super) struct Terminate;

impl Incident for Terminate {
    fn happen(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<Broken> {
        let leader = arena.leader()?;
        restart(arena, leader)?;
        let next = arena.another_leads(leader)?;
        let seen = format!("{} ended in good order; {} leads", name(leader), name(next));
        Ok(Broken::new([leader], seen))
    }
}

/// The admin port's drain, then SIGTERM.
#[derive(Debug)]
pub(super) struct Drain;

impl Incident for Drain {
    fn happen(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<Broken> {
        let leader = arena.leader()?;
        let answer = arena.order(leader, "POST", "/v1/drain", "{}", STOP_MAX)?;
        if answer.status != 200 {
            bail!("drain: {} {}", answer.status, answer.body);
        }
        let next = arena.another_leads(leader).context("after the drain")?;
        if arena.is_ready(leader) {
            bail!("{} is ready although it was drained", name(leader));
        }
        restart(arena, leader)?;
        let seen = format!("{} drained; {} leads", name(leader), name(next));
        Ok(Broken::new([leader], seen))
    }
}

/// Every node, one after the other, each only when the one before is ready again.
#[derive(Debug)]
pub(super) struct Rolling;

impl Incident for Rolling {
    fn happen(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<Broken> {
        let members = arena.members().to_vec();
        for node in &members {
            restart(arena, *node)?;
            arena.settle(READY_MAX)?;
        }
        let seen = format!("{} restarted in good order", members.len());
        Ok(Broken::new(members, seen))
    }
}

/// A node comes back behind another address; its name follows.
#[derive(Debug, Default)]
pub(super) struct Moved {
    node: Option<usize>,
}

impl Nemesis for Moved {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.follower(random)?;
        arena.kill(node)?;
        let before = arena.faces(node);
        arena.move_peer_address(node)?;
        let after = arena.faces(node);
        self.node = Some(node);
        let seen = format!("{}: {before:?}, then {after:?}", name(node));
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        arena.start(node)?;
        wait(READY_MAX, "it is found at its new address", || {
            if !arena.is_ready(node) {
                bail!("{} is not ready", name(node));
            }
            Ok(())
        })?;
        // Others must call it, too, and not only be called: with another gone it is a majority.
        let other = arena.leader()?;
        if other != node {
            arena.kill(other)?;
            arena.another_leads(other)?;
            thread::sleep(Duration::from_secs(1));
            arena.start(other)?;
        }
        Ok(())
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(1)
    }
}
