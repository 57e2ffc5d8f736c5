use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rand::rngs::StdRng;
use trellis_checker::history::NodeEvent;
use trellis_testkit::network::{Filter, Hook};

use super::{Broken, Nemesis, files::is_refused};
use crate::arena::{Arena, READY_MAX, host, name, peer_name, wait};

/// How long one change of membership may take with a node dead.
const CHANGE_MAX: Duration = Duration::from_secs(60);

/// Makes the node in that place start as one that joins.
fn make_joining(arena: &mut Arena, node: usize) {
    let known: Vec<_> = arena.members().iter().map(|it| peer_name(*it)).collect();
    let launch = arena.node(node).launch();
    launch.initial_members.clear();
    launch.flags = vec![
        "--peer-address".to_owned(),
        peer_name(node),
        "--join".to_owned(),
        known.join(","),
    ];
}

/// Removes a member by its name, asking again while the cluster says "not now".
fn remove(arena: &mut Arena, node: usize, force: bool) -> Result<()> {
    let path = format!("/v1/members/{}?force={force}", name(node));
    let until = Instant::now() + CHANGE_MAX;
    loop {
        let (leader, _) = wait(CHANGE_MAX, "somebody leads", || {
            arena.leading().context("nobody does")
        })?;
        let asked = if leader == node {
            // Whoever else: the request finds its way.
            let living = arena.living();
            living.into_iter().find(|it| *it != node).unwrap_or(leader)
        } else {
            leader
        };
        let answer = arena.order(asked, "DELETE", &path, "", Duration::from_secs(65));
        match answer {
            Ok(answer) if answer.status == 200 => break,
            // An earlier request was told nothing, and yet had its way.
            Ok(answer) if answer.body.contains("no member is called") => break,
            other if Instant::now() > until => bail!("{path}: {other:?}"),
            _ => std::thread::sleep(Duration::from_millis(200)),
        }
    }
    arena.set_member(node, false);
    Ok(())
}

/// The node in the fourth place joins; at the same time the leader is killed.
#[derive(Debug, Default)]
pub(super) struct Add {
    killed: Option<usize>,
    added: Option<usize>,
}

impl Nemesis for Add {
    fn begin(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<Broken> {
        let new = *arena.strangers().first().context("no place is free")?;
        make_joining(arena, new);
        arena.start(new)?;
        // It has called and is being led in.
        wait(READY_MAX, "it has found the cluster", || {
            let status = arena.status(new)?;
            if status["cluster"].is_null() {
                bail!("{status}");
            }
            Ok(())
        })?;
        let leader = arena.leader()?;
        arena.kill(leader)?;
        (self.killed, self.added) = (Some(leader), Some(new));
        let seen = format!("{} joins, {} is gone", name(new), name(leader));
        Ok(Broken::new([new, leader], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        if let Some(killed) = self.killed.take() {
            arena.start(killed)?;
        }
        let Some(added) = self.added.take() else {
            return Ok(());
        };
        arena.set_member(added, true);
        arena.settle(CHANGE_MAX)?;
        // Back to three, so that whatever comes next finds what it expects.
        remove(arena, added, false)?;
        is_refused(arena, added)?;
        fs::remove_dir_all(arena.data_dir(added))?;
        Ok(())
    }
}

/// A follower is removed while another can't be heard; then it joins again, with an empty folder.
#[derive(Debug)]
pub(super) struct Remove;

impl Nemesis for Remove {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let victim = arena.follower(random)?;
        let leader = arena.leader()?;
        let other = arena
            .living()
            .into_iter()
            .find(|node| *node != victim && *node != leader)
            .context("no third node")?;
        let filter = {
            let rules: Vec<Vec<String>> = arena
                .faces(other)
                .into_iter()
                .map(|face| {
                    ["-s", &face.to_string(), "-j", "DROP"]
                        .map(str::to_owned)
                        .into()
                })
                .collect();
            Filter::lay(arena.network(), host(leader), Hook::Input, "remove", &rules)?
        };
        // With the third unheard the change needs the very node that it removes, or a new leader.
        let path = format!("/v1/members/{}?force=true", name(victim));
        let first = arena.order(leader, "DELETE", &path, "", Duration::from_secs(4));
        let met = filter.met(arena.network())?;
        filter.lift(arena.network())?;
        if met == 0 {
            bail!("nothing was dropped");
        }
        let said = first.map_or_else(
            |it| it.to_string(),
            |it| format!("{} {}", it.status, it.body),
        );
        // Whatever it was told, the node is out when asked again.
        let is_out = |arena: &mut Arena| {
            let leader = arena.leading()?.0;
            let status = arena.status(leader).ok()?;
            let members = status["members"].as_array()?.clone();
            Some(!members.iter().any(|it| it["name"] == name(victim).as_str()))
        };
        if is_out(arena) == Some(true) {
            arena.set_member(victim, false);
        } else {
            remove(arena, victim, true)?;
        }
        is_refused(arena, victim)?;
        let data = arena.data_dir(victim);
        fs::remove_dir_all(&data)?;
        make_joining(arena, victim);
        arena.start(victim)?;
        arena.set_member(victim, true);
        let seen = format!("{met} packets dropped; removing {}: {said}", name(victim));
        Ok(Broken::new([victim, other], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        arena.settle(CHANGE_MAX).map(|_| ())
    }

    fn hold(&self) -> Duration {
        Duration::ZERO
    }
}

/// A node is removed while it is dead; it comes back with what it had.
#[derive(Debug, Default)]
pub(super) struct Returns {
    node: Option<usize>,
}

impl Nemesis for Returns {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.follower(random)?;
        arena.kill(node)?;
        remove(arena, node, true)?;
        arena.start(node)?;
        is_refused(arena, node)?;
        self.node = Some(node);
        let seen = format!("{} was removed, came back and was sent away", name(node));
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        fs::remove_dir_all(arena.data_dir(node))?;
        make_joining(arena, node);
        arena.note(node, NodeEvent::Started);
        arena.start(node)?;
        arena.set_member(node, true);
        arena.settle(CHANGE_MAX).map(|_| ())
    }
}
