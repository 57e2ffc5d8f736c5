//! What breaks things. Each shows that what it broke is broken.

mod clocks;
mod disks;
mod files;
mod flips;
mod freezes;
mod kills;
mod losses;
mod members;
mod partitions;
mod restarts;
mod room;
mod slow;
mod snapshots;

use std::time::Duration;

use anyhow::Result;
use rand::rngs::StdRng;

use crate::arena::{Arena, Setup};

/// Breaks one thing and mends it.
pub trait Nemesis {
    /// Breaks. Returns when the effect was seen; not to have seen any is an error.
    ///
    /// # Errors
    ///
    /// Nothing broke, or something else than was meant to.
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken>;

    /// Mends. What is still needed after that is to wait until all nodes are ready, unless the
    /// nemesis has to see more itself.
    ///
    /// # Errors
    ///
    /// It can't be mended, or what should have shown meanwhile did not.
    fn end(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<()>;

    /// How long it stays broken.
    fn hold(&self) -> Duration {
        Duration::from_secs(4)
    }
}

/// A nemesis that mends itself before it is done: it leaves nothing to hold.
pub trait Incident {
    /// Breaks and mends. Returns what was seen of it; not to have seen any is an error.
    ///
    /// # Errors
    ///
    /// Nothing broke, or something else than was meant to.
    fn happen(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken>;
}

impl<I: Incident> Nemesis for I {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        self.happen(arena, random)
    }

    fn end(&mut self, _: &mut Arena, _: &mut StdRng) -> Result<()> {
        Ok(())
    }

    fn hold(&self) -> Duration {
        Duration::ZERO
    }
}

/// What is broken now.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The nodes concerned.
    pub nodes: Vec<usize>,
    /// What was seen of it, in words.
    pub seen: String,
}

impl Broken {
    /// Nodes, and what was seen of it.
    pub fn new(nodes: impl Into<Vec<usize>>, seen: impl Into<String>) -> Self {
        Self {
            nodes: nodes.into(),
            seen: seen.into(),
        }
    }
}

/// A sort of nemesis.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name, for people and for `--story`.
    pub name: &'static str,
    /// Its number in the list of faults.
    pub fault: u32,
    /// In a few words.
    pub what: &'static str,
    /// What it needs.
    pub setup: Setup,
    /// Whether nobody can be served meanwhile: then no operations are demanded of that time.
    pub outage: bool,
    /// Whether everybody is served, but slowly: no operations are demanded of that time either.
    pub slow: bool,
    /// Whether it may run inside another one: it mends itself whatever else is broken.
    pub light: bool,
    /// Whether processes die of it.
    pub kills: bool,
    /// Whether a process may not be killed meanwhile: it would not go before the kernel has an answer of its disk.
    pub unkillable: bool,
    /// Makes one.
    pub make: fn() -> Box<dyn Nemesis>,
}

const PLAIN: Setup = Setup {
    proxied: false,
    balanced: false,
    clocks: false,
    volumes: false,
    disks: false,
};

impl Kind {
    const fn new(
        name: &'static str,
        fault: u32,
        what: &'static str,
        make: fn() -> Box<dyn Nemesis>,
    ) -> Self {
        Self {
            name,
            fault,
            what,
            setup: PLAIN,
            outage: false,
            slow: false,
            light: false,
            kills: false,
            unkillable: false,
            make,
        }
    }

    const fn light(mut self) -> Self {
        self.light = true;
        self
    }

    const fn kills(mut self) -> Self {
        self.kills = true;
        self
    }

    const fn unkillable(mut self) -> Self {
        self.unkillable = true;
        self
    }

    const fn outage(mut self) -> Self {
        self.outage = true;
        self
    }

    const fn slow(mut self) -> Self {
        self.slow = true;
        self
    }

    const fn proxied(mut self) -> Self {
        self.setup.proxied = true;
        self
    }

    const fn clocks(mut self) -> Self {
        self.setup.clocks = true;
        self
    }

    const fn disks(mut self) -> Self {
        self.setup.disks = true;
        self
    }

    const fn volumes(mut self) -> Self {
        self.setup.volumes = true;
        self
    }

    /// The sort of that name.
    pub fn named(name: &str) -> Option<Self> {
        KINDS.iter().copied().find(|kind| kind.name == name)
    }
}

/// All sorts there are, by fault number.
#[rustfmt::skip]
pub const KINDS: &[Kind] = &[
    Kind::new("kill-leader", 1, "kill -9 of the leader", || Box::new(kills::Kill::leader())).light().kills(),
    Kind::new("kill-leaders", 2, "kill -9 of whoever leads, again and again, faster than recovery", || Box::new(kills::Again::default())).light().kills(),
    Kind::new("kill-follower", 3, "kill -9 of a follower", || Box::new(kills::Kill::follower())).light().kills(),
    Kind::new("kill-both", 3, "kill -9 of a follower, and of the leader while the follower catches up", || Box::new(kills::Both)).kills(),
    Kind::new("kill-all", 4, "kill -9 of all nodes at once, started again in any order", || Box::new(kills::Several::of(3))).outage().kills(),
    Kind::new("kill-two", 5, "kill -9 of two of three", || Box::new(kills::Several::of(2))).outage().kills(),
    Kind::new("freeze-leader", 6, "SIGSTOP of the leader past an election", || Box::new(freezes::Freeze::leader(4))).light(),
    Kind::new("freeze-leader-long", 6, "SIGSTOP of the leader past its lease", || Box::new(freezes::Freeze::leader(13))),
    Kind::new("freeze-follower", 7, "SIGSTOP of a follower", || Box::new(freezes::Freeze::follower(4))).light(),
    Kind::new("freeze-install", 7, "SIGSTOP of a follower while it is sent a snapshot", || Box::new(snapshots::Install::frozen())),
    Kind::new("terminate-leader", 8, "SIGTERM of the leader", || Box::new(restarts::Terminate)),
    Kind::new("drain", 8, "`drain` of the leader, which is then stopped", || Box::new(restarts::Drain)),
    Kind::new("kill-saving", 9, "kill -9 while a snapshot is being made", || Box::new(snapshots::KillSaving)).kills(),
    Kind::new("silence-leader", 12, "the leader's packets go nowhere", || Box::new(partitions::Cut::leader_alone())).light(),
    Kind::new("silence-follower", 12, "a follower's packets go nowhere", || Box::new(partitions::Cut::follower_alone())).light(),
    Kind::new("deaf-leader", 13, "nothing from the others reaches the leader; they hear it", || Box::new(partitions::Cut::deaf_leader())).light(),
    Kind::new("mute-follower", 13, "a follower hears the others and is not heard", || Box::new(partitions::Cut::mute_follower())).light(),
    Kind::new("bridge", 14, "the leader and one follower do not hear each other; the third hears both", || Box::new(partitions::Cut::bridge())).light(),
    Kind::new("peers-of-leader", 15, "the leader loses the other nodes and keeps its clients", || Box::new(partitions::Cut::leaders_peers())).light(),
    Kind::new("clients-of-node", 16, "a node loses its clients and keeps the other nodes", || Box::new(partitions::Cut::clients(6))).light(),
    Kind::new("loss", 17, "5 to 30 % of all packets are lost", || Box::new(losses::Loss::default())).light().slow(),
    Kind::new("delay", 17, "delay and jitter of 50 to 500 ms between nodes", || Box::new(slow::Delay)).proxied().slow(),
    Kind::new("narrow-install", 18, "a snapshot goes over a narrow link and is cut in the middle", || Box::new(snapshots::Narrow::default())).proxied(),
    Kind::new("cut", 18, "streams between nodes are cut, again and again", || Box::new(slow::Cut)).proxied(),
    Kind::new("half-open", 19, "clients vanish without a word: no packet of theirs arrives, and none of the node's", || Box::new(partitions::Cut::clients(15))),
    Kind::new("moved", 22, "a node comes back with another address behind its name", || Box::new(restarts::Moved::default())),
    Kind::new("clock-leader", 23, "the leader's wall clock is stepped by an hour, forth and back", || Box::new(clocks::Steps)).clocks(),
    Kind::new("clock-failover", 24, "the leader is killed; the others' wall clocks are 10 minutes behind and ahead", || Box::new(clocks::Failover::default())).clocks(),
    Kind::new("clock-strobe", 25, "a wall clock jumps by 30 s to and fro", || Box::new(clocks::Strobe::default())).clocks(),
    Kind::new("clock-pause", 25, "the leader is paused, and its wall clock is 5 minutes on when it wakes", || Box::new(clocks::Pause::default())).clocks(),
    Kind::new("sync-fails", 27, "one fsync of a leader's log fails", || Box::new(disks::SyncFails::default())).disks(),
    Kind::new("sync-hangs", 28, "fsync of the leader's log hangs", || Box::new(disks::SyncHangs::default())).disks().slow().unkillable(),
    Kind::new("disk-slow", 29, "a follower's disk is a hundred times slower", || Box::new(disks::Slow::default())).disks().slow(),
    Kind::new("disk-low", 30, "a node's disk falls below its mark", || Box::new(room::Low::default())).volumes().slow(),
    Kind::new("disk-full", 30, "a node's disk is full to the last byte", || Box::new(room::Full::default())).volumes().slow(),
    Kind::new("power-cut", 31, "the power of one node goes, and what it had not synced", || Box::new(disks::PowerCut::of(1))).disks(),
    Kind::new("power-cut-all", 31, "the power of all nodes goes at once", || Box::new(disks::PowerCut::of(3))).disks().outage(),
    Kind::new("torn-tail", 32, "the log of a killed node ends in half a record", || Box::new(files::Torn::default())),
    Kind::new("flip-log", 33, "a bit flips in the middle of a file of a node's log", || Box::new(flips::Flip::log())),
    Kind::new("flip-state", 34, "a bit flips in the middle of a file of a node's state", || Box::new(flips::Flip::state())),
    Kind::new("flip-snapshot", 35, "a bit flips in the middle of a file of a node's snapshot", || Box::new(flips::Flip::snapshot())),
    Kind::new("stale-disk", 37, "a node comes back with an older copy of its folder", || Box::new(files::Stale::default())),
    Kind::new("member-add", 40, "a fourth node joins while the leader is killed", || Box::new(members::Add::default())),
    Kind::new("member-remove", 40, "a node is removed while another is cut off", || Box::new(members::Remove)),
    Kind::new("member-returns", 41, "a removed node comes back with its old folder", || Box::new(members::Returns::default())),
    Kind::new("folder-deleted", 42, "a node comes back with an empty folder and the same name", || Box::new(files::Deleted::default())),
    Kind::new("rolling-restart", 43, "all nodes restarted one after the other, each when the one before is ready", || Box::new(restarts::Rolling)),
    Kind::new("install", 45, "a far-behind follower is sent a snapshot while the log is purged", || Box::new(snapshots::Install::plain())),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_faults_ascend() {
        for (before, kind) in KINDS.iter().zip(&KINDS[1..]) {
            assert!(before.fault <= kind.fault, "{}", kind.name);
        }
        for kind in KINDS {
            let same = KINDS.iter().filter(|other| other.name == kind.name);
            assert_eq!(same.count(), 1, "{}", kind.name);
        }
    }
}
