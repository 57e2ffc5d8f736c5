use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rand::{Rng, rngs::StdRng};
use trellis_checker::history::NodeEvent;
use trellis_store::tamper::tear_the_log;

use super::{Broken, Nemesis};
use crate::arena::{Arena, name};

/// "Belongs to another cluster, is stale or removed."
pub(super) const FOREIGN: i32 = 76;

/// How long a node may take to learn from the others that it must not take part.
pub(super) const REFUSED_MAX: Duration = Duration::from_secs(40);

/// All files under a folder, in order.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for file in files(from)? {
        let at = to.join(file.strip_prefix(from)?);
        if let Some(folder) = at.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&file, &at)?;
    }
    Ok(())
}

/// Waits until a started node has ended by itself because its folder must not be used.
pub(super) fn is_refused(arena: &mut Arena, node: usize) -> Result<()> {
    arena.node(node).wait_for_end(REFUSED_MAX)?;
    arena.note(node, NodeEvent::Killed);
    let code = arena.node(node).exit_code();
    if code != Some(FOREIGN) {
        let words = arena.node(node).last_words(10);
        bail!(
            "{} ended with {code:?}, not {FOREIGN}:\n{words}",
            name(node)
        );
    }
    Ok(())
}

/// An older copy of a node's folder is put in its place. The node must not start with it; with an
/// empty folder it may come back.
#[derive(Debug, Default)]
pub(super) struct Stale {
    node: Option<usize>,
}

impl Nemesis for Stale {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.follower(random)?;
        let data = arena.data_dir(node);
        let copied = arena.folder().join("older-copy");
        arena.kill(node)?;
        copy(&data, &copied)?;
        arena.start(node)?;
        thread::sleep(Duration::from_secs(4));
        arena.kill(node)?;
        fs::remove_dir_all(&data)?;
        // The node may have a disk of its own, from which nothing can be moved here and back.
        copy(&copied, &data)?;
        fs::remove_dir_all(&copied)?;
        arena.start(node)?;
        is_refused(arena, node)?;
        self.node = Some(node);
        let seen = format!("{} refuses its older folder", name(node));
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        fs::remove_dir_all(arena.data_dir(node))?;
        arena.start(node)
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// A node's folder is deleted. It comes back under a new id.
#[derive(Debug, Default)]
pub(super) struct Deleted {
    node: Option<(usize, String)>,
}

impl Nemesis for Deleted {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.leader_or_any(random)?;
        let id = arena.status(node)?["node"].to_string();
        arena.kill(node)?;
        fs::remove_dir_all(arena.data_dir(node))?;
        let seen = format!("{} ({id}) has nothing left", name(node));
        self.node = Some((node, id));
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some((node, before)) = self.node.take() else {
            return Ok(());
        };
        arena.start(node)?;
        arena.settle(crate::arena::READY_MAX)?;
        let after = arena.status(node)?["node"].to_string();
        if after == before {
            bail!(
                "{} came back under the id that it lost: {after}",
                name(node)
            );
        }
        Ok(())
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(2)
    }
}

/// The log of a killed node gets some sectors of a further write at its end, as a power cut leaves
/// them.
#[derive(Debug, Default)]
pub(super) struct Torn {
    node: Option<usize>,
}

impl Nemesis for Torn {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.follower(random)?;
        arena.kill(node)?;
        let sectors = random.random_range(2..40);
        let mut written: Vec<bool> = (0..sectors).map(|_| random.random()).collect();
        // Never all of them: that would be a write.
        written[random.random_range(0..sectors)] = false;
        tear_the_log(&arena.data_dir(node), &written)?;
        self.node = Some(node);
        let seen = format!(
            "{}: {} of {sectors} sectors of a write behind the log",
            name(node),
            written.iter().filter(|it| **it).count()
        );
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        arena.start(node)
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(1)
    }
}
