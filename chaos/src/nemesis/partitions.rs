use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Result, bail};
use rand::rngs::StdRng;
use trellis_testkit::network::{Filter, Hook};

use super::{Broken, Nemesis};
use crate::arena::{Arena, host, name, wait};

/// How long packets may take to run into a filter that is meant for them.
const MET_MAX: Duration = Duration::from_secs(8);

/// The port at which clients connect.
const CLIENTS_PORT: &str = "11300";

/// Packets that go nowhere; nobody is told.
#[derive(Debug)]
pub(super) struct Cut {
    what: What,
    seconds: u64,
    filters: Vec<Filter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    LeaderAlone,
    FollowerAlone,
    DeafLeader,
    MuteFollower,
    Bridge,
    LeadersPeers,
    Clients,
}

impl Cut {
    fn of(what: What) -> Self {
        Self {
            what,
            seconds: 5,
            filters: Vec::new(),
        }
    }

    pub(super) fn leader_alone() -> Self {
        Self::of(What::LeaderAlone)
    }

    pub(super) fn follower_alone() -> Self {
        Self::of(What::FollowerAlone)
    }

    pub(super) fn deaf_leader() -> Self {
        Self::of(What::DeafLeader)
    }

    pub(super) fn mute_follower() -> Self {
        Self::of(What::MuteFollower)
    }

    pub(super) fn bridge() -> Self {
        Self::of(What::Bridge)
    }

    pub(super) fn leaders_peers() -> Self {
        Self::of(What::LeadersPeers)
    }

    pub(super) fn clients(seconds: u64) -> Self {
        Self {
            seconds,
            ..Self::of(What::Clients)
        }
    }

    /// What `from` sends does not reach `to`.
    fn peers(&mut self, arena: &Arena, from: usize, to: usize) -> Result<()> {
        let rules: Vec<_> = arena
            .faces(from)
            .into_iter()
            .map(|face| drop_from(face, &[]))
            .collect();
        self.lay(arena, to, Hook::Input, &format!("p{from}"), &rules)
    }

    /// No packet between the node and any client arrives, in either direction.
    fn cut_clients(&mut self, arena: &Arena, node: usize) -> Result<()> {
        let port = ["-p", "tcp", "--dport", CLIENTS_PORT];
        let rules: Vec<_> = arena
            .clients()
            .into_iter()
            .map(|client| drop_from(client, &port))
            .collect();
        self.lay(arena, node, Hook::Input, "cin", &rules)?;
        let answers = ["-p", "tcp", "--sport", CLIENTS_PORT, "-j", "DROP"];
        let answers = answers.map(str::to_owned).into();
        self.lay(arena, node, Hook::Output, "cout", &[answers])
    }

    fn lay(
        &mut self,
        arena: &Arena,
        node: usize,
        hook: Hook,
        name: &str,
        rules: &[Vec<String>],
    ) -> Result<()> {
        // Two of these may be in force at the same node.
        let name = format!("{name}-{:?}", self.what);
        let filter = Filter::lay(arena.network(), host(node), hook, &name, rules)?;
        self.filters.push(filter);
        Ok(())
    }
}

fn drop_from(address: Ipv4Addr, matching: &[&str]) -> Vec<String> {
    let mut rule = vec!["-s".to_owned(), address.to_string()];
    rule.extend(matching.iter().map(|word| (*word).to_owned()));
    rule.extend(["-j".to_owned(), "DROP".to_owned()]);
    rule
}

impl Nemesis for Cut {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = match self.what {
            What::FollowerAlone | What::MuteFollower => arena.follower(random)?,
            _ => arena.leader_or_any(random)?,
        };
        let others: Vec<_> = arena
            .members()
            .iter()
            .copied()
            .filter(|other| *other != node)
            .collect();
        let mut nodes = vec![node];
        match self.what {
            What::LeaderAlone | What::FollowerAlone | What::LeadersPeers => {
                for other in &others {
                    self.peers(arena, node, *other)?;
                    self.peers(arena, *other, node)?;
                }
                if self.what != What::LeadersPeers {
                    self.cut_clients(arena, node)?;
                }
            }
            What::DeafLeader => {
                for other in &others {
                    self.peers(arena, *other, node)?;
                }
            }
            What::MuteFollower => {
                for other in &others {
                    self.peers(arena, node, *other)?;
                }
            }
            What::Bridge => {
                let Some(other) = others.first() else {
                    bail!("there is nobody else");
                };
                self.peers(arena, node, *other)?;
                self.peers(arena, *other, node)?;
                nodes.push(*other);
            }
            What::Clients => self.cut_clients(arena, node)?,
        }
        let met = wait(MET_MAX, "packets run into the filters", || {
            let mut met = 0;
            for filter in &self.filters {
                met += filter.met(arena.network())?;
            }
            if met == 0 {
                bail!("none did");
            }
            Ok(met)
        })?;
        let names: Vec<_> = nodes.iter().map(|node| name(*node)).collect();
        let seen = format!("{}: {met} packets dropped so far", names.join(" and "));
        Ok(Broken::new(nodes, seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        for filter in self.filters.drain(..) {
            filter.lift(arena.network())?;
        }
        Ok(())
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}
