use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};
use trellis_checker::history::{NodeEvent, Record, Stage};
use trellis_types::Timestamp;

use super::{
    client::Shared,
    house::{self, Folder, House},
    net::{CLIENTS, HostId, Net},
};

/// How often the mirrors' windows are written, in milliseconds.
const WINDOW_MS: u64 = 200;

/// How often it is noted where each node stands, in milliseconds.
const SAMPLE_MS: u64 = 500;

/// All machines, and the time that they live in. One step is a millisecond; in it every machine
/// carries out what it has to do, one after the other, on one thread.
pub(super) struct World {
    pub(super) net: Net,
    pub(super) houses: Vec<House>,
    pub(super) shared: Arc<Shared>,
    pub(super) now: u64,
    /// What happened that never may.
    pub(super) wrong: Vec<String>,
    /// Machines whose process is expected to stop by itself.
    pub(super) may_stop: BTreeSet<HostId>,
    pub(super) random: StdRng,
    clients: Runtime,
    clients_begin: Instant,
    next_id: u64,
    lease: Duration,
}

/// Words that never stand in the reason why a process stops, whatever was done to its disk.
const NEVER: [&str; 2] = ["panic", "a bug"];

impl World {
    pub(super) fn new(
        seed: u64,
        net: Net,
        shared: Arc<Shared>,
        lease: Duration,
    ) -> Result<Self, String> {
        let clients = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|error| error.to_string())?;
        let clients_begin = clients.block_on(async { Instant::now() });
        net.power_on(CLIENTS, "clients");
        house::catch_fail_stops(&net);
        let mut world = Self {
            net,
            houses: Vec::new(),
            shared,
            now: 0,
            wrong: Vec::new(),
            may_stop: BTreeSet::new(),
            random: StdRng::seed_from_u64(seed ^ 0x776f_726c_6400),
            clients,
            clients_begin,
            next_id: 0,
            lease,
        };
        let names = world.shared.nodes.clone();
        for name in &names {
            world.build(name, names.clone(), Vec::new());
        }
        Ok(world)
    }

    /// A place for a node; nothing runs in it. Its index.
    pub(super) fn build(&mut self, name: &str, initial: Vec<String>, join: Vec<String>) -> usize {
        let id = self.fresh_id();
        let drift_ppm = self.random.random_range(-300..=300);
        let wall = self.random.random_range(-100..=100);
        let host = HostId::try_from(self.houses.len()).unwrap_or(0) + 1;
        self.houses.push(House {
            name: name.to_owned(),
            host,
            folder: Folder::empty(id),
            initial,
            join,
            lease: self.lease,
            drift_ppm,
            wall_offset: Arc::new(AtomicI64::new(wall)),
            frozen: false,
            life: None,
        });
        self.houses.len() - 1
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        0xA000 + self.next_id
    }

    /// The disk of a house without a process is replaced by an empty one.
    pub(super) fn wipe(&mut self, house: usize) {
        let id = self.fresh_id();
        self.houses[house].folder = Folder::empty(id);
    }

    pub(super) fn start(&mut self, house: usize) {
        let house = &mut self.houses[house];
        if house.life.is_some() {
            return;
        }
        if let Err(words) = house.start(&self.net) {
            self.wrong.push(words);
        }
        let name = house.name.clone();
        self.event(&name, NodeEvent::Started);
    }

    /// The process of a house is gone. With the power goes what was not synced, but for the first
    /// `kept` appends.
    pub(super) fn kill(&mut self, house: usize, power: bool, kept: usize) {
        let net = self.net.clone();
        let house = &mut self.houses[house];
        if house.life.is_none() {
            return;
        }
        house.kill(&net, power, kept);
        let name = house.name.clone();
        self.event(&name, NodeEvent::Killed);
    }

    fn event(&self, node: &str, event: NodeEvent) {
        self.shared.recorder.write(&Record::Node {
            t: self.shared.now(),
            node: node.to_owned(),
            event,
        });
    }

    /// From now on no sync of a house succeeds.
    pub(super) fn fail_disk(&mut self, house: usize) {
        self.houses[house].folder.log.fail_syncs();
        self.may_stop.insert(self.houses[house].host);
        let name = self.houses[house].name.clone();
        self.event(&name, NodeEvent::DiskFailed);
    }

    /// Says what is done to whom.
    pub(super) fn tell(
        &self,
        fault: u32,
        what: &str,
        houses: &[usize],
        stage: Stage,
        effect: bool,
    ) {
        self.shared.recorder.write(&Record::Nemesis {
            t: self.shared.now(),
            fault,
            what: what.to_owned(),
            nodes: houses
                .iter()
                .map(|house| self.houses[*house].name.clone())
                .collect(),
            stage,
            effect,
        });
    }

    /// Lets something happen on the clients' machine.
    pub(super) fn spawn_client(&self, act: impl Future<Output = ()> + Send + 'static) {
        self.clients.spawn(act);
    }

    /// One millisecond.
    pub(super) fn tick(&mut self) {
        self.now += 1;
        self.net.advance(self.now);
        for place in 0..self.houses.len() {
            self.houses[place].step(self.now);
            self.bury_fallen();
        }
        let until = self.clients_begin + Duration::from_millis(self.now);
        self.clients
            .block_on(async { tokio::time::sleep_until(until).await });
        if self.now.is_multiple_of(WINDOW_MS) {
            for house in &self.houses {
                house.folder.state.hold_windows(false);
                house.folder.state.hold_windows(true);
            }
        }
        if self.now.is_multiple_of(SAMPLE_MS) {
            self.look();
        }
    }

    /// Until `seen`, but for `bound_ms` at most. Whether it was.
    pub(super) fn run_until(
        &mut self,
        bound_ms: u64,
        mut seen: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let end = self.now + bound_ms;
        while self.now < end {
            // Looking costs more than a millisecond in which nothing happens.
            if self.now.is_multiple_of(10) && seen(self) {
                return true;
            }
            self.tick();
        }
        seen(self)
    }

    /// A process whose disk failed is gone.
    fn bury_fallen(&mut self) {
        for (host, reason) in house::fallen() {
            let Some(place) = self.houses.iter().position(|house| house.host == host) else {
                self.wrong.push(format!("a client stopped: {reason}"));
                continue;
            };
            let expected = self.may_stop.contains(&host);
            if !expected || NEVER.iter().any(|word| reason.contains(word)) {
                let name = &self.houses[place].name;
                self.wrong.push(format!("{name} stopped: {reason}"));
            }
            self.kill(place, true, 0);
        }
    }

    /// Notes where each node stands, and whether one has stopped for good.
    fn look(&mut self) {
        for place in 0..self.houses.len() {
            let house = &self.houses[place];
            if let Some(refused) = house.refused() {
                let words = format!("{} does not start: {refused}", house.name);
                self.wrong.push(words);
                self.kill(place, true, 0);
                continue;
            }
            let Some(status) = house.status().filter(|_| !house.frozen) else {
                continue;
            };
            if status.stage == "stopped" {
                if !self.may_stop.contains(&house.host) {
                    let why = status.waits_for.unwrap_or_default();
                    self.wrong.push(format!("{} stops: {why}", status.name));
                }
                self.kill(place, true, 0);
                continue;
            }
            let level = status.applied == status.committed && status.applied > 0;
            let digest = status.digest;
            self.shared.recorder.write(&Record::Sample {
                t: self.shared.now(),
                node: status.name,
                applied: status.applied,
                now: level.then_some(Timestamp(status.time_ms)),
                digest: digest.as_ref().map(|digest| digest.value.clone()),
                digest_at: digest.map(|digest| digest.index),
            });
            if status.digest_mismatches > 0 {
                let words = format!(
                    "{} found a replica with another digest",
                    self.houses[place].name
                );
                self.wrong.push(words);
            }
        }
    }

    /// The index of the house whose node leads, as it says itself.
    pub(super) fn leader(&self) -> Option<usize> {
        let leads = |house: &House| {
            let status = house.status()?;
            (status.role == "leader" && !house.frozen).then_some(status.term)
        };
        let leaders = self.houses.iter().enumerate();
        let newest = leaders.filter_map(|(place, house)| Some((leads(house)?, place)));
        newest.max().map(|(_, place)| place)
    }

    /// Houses with a process that is not stopped.
    pub(super) fn living(&self) -> Vec<usize> {
        let living = |house: &House| house.life.is_some() && !house.frozen;
        (0..self.houses.len())
            .filter(|place| living(&self.houses[*place]))
            .collect()
    }

    /// Every node's state in a line, for a person who reads a failed run.
    pub(super) fn picture(&self) -> String {
        let line = |house: &House| match house.status() {
            Some(status) => format!(
                "{}: {} {} of term {}, log {}, committed {}, applied {}, {}{}{}",
                house.name,
                status.stage,
                status.role,
                status.term,
                status.last_log,
                status.committed,
                status.applied,
                if status.doors_open { "open" } else { "closed" },
                if house.frozen { ", frozen" } else { "" },
                status
                    .waits_for
                    .map_or(String::new(), |why| format!(", {why}")),
            ),
            None => format!("{}: no process", house.name),
        };
        let lines: Vec<_> = self.houses.iter().map(line).collect();
        lines.join("\n")
    }

    /// Steps a wall clock.
    pub(super) fn step_wall(&self, house: usize, ms: i64) {
        self.houses[house]
            .wall_offset
            .fetch_add(ms, Ordering::Relaxed);
    }
}
