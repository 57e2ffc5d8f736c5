use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rand::rngs::StdRng;
use trellis_checker::history::NodeEvent;

use super::{Broken, Nemesis};
use crate::arena::{Arena, name, wait};

/// The node says that its disk failed by this exit code.
const DISK_FAILED: i32 = 74;

/// Free bytes that are below the mark and yet enough to go on.
const LOW_BYTES: u64 = 48 << 20;

/// How long the cluster may take to see that a disk is low, or no longer.
const SEEN_MAX: Duration = Duration::from_secs(20);

/// Waits until the leader says that puts are refused, or that they are not.
fn puts_refused(arena: &mut Arena, wanted: bool) -> Result<()> {
    wait(SEEN_MAX, "the cluster sees the room on its disks", || {
        let (leader, _) = arena.leading().context("nobody leads")?;
        let status = arena.status(leader)?;
        if status["puts_refused"] != wanted {
            bail!("puts_refused is {}", status["puts_refused"]);
        }
        Ok(())
    })
}

/// A disk below its mark: puts are refused in the whole cluster, all else goes on.
#[derive(Debug, Default)]
pub(super) struct Low {
    node: Option<usize>,
}

impl Nemesis for Low {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.follower(random)?;
        arena.volume(node)?.fill(LOW_BYTES)?;
        self.node = Some(node);
        puts_refused(arena, true)?;
        let seen = format!(
            "{}: {} MiB left, puts are refused",
            name(node),
            arena.volume(node)?.free()? >> 20
        );
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        arena.volume(node)?.clear()?;
        puts_refused(arena, false)
    }
}

/// A disk that is full before anybody could see it coming: the node must stop by itself.
#[derive(Debug, Default)]
pub(super) struct Full {
    node: Option<usize>,
}

impl Nemesis for Full {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.leader_or_any(random)?;
        self.node = Some(node);
        let mut code = None;
        // Room comes back when files are compacted; it is taken, too, until the node gives up.
        wait(Duration::from_secs(40), "the node stops by itself", || {
            arena.volume(node)?.fill(0)?;
            if arena.node(node).is_alive() {
                bail!("{} still lives", name(node));
            }
            code = arena.node(node).exit_code();
            Ok(())
        })?;
        arena.note(node, NodeEvent::Killed);
        if code != Some(DISK_FAILED) {
            bail!(
                "{} ended with {code:?}, not {DISK_FAILED}; it said:\n{}",
                name(node),
                arena.node(node).last_words(10)
            );
        }
        let seen = format!("{} ended with exit code {DISK_FAILED}", name(node));
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        arena.volume(node)?.clear()?;
        arena.start(node)?;
        puts_refused(arena, false)
    }
}
