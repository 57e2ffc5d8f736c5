use std::collections::BTreeMap;

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use trellis_checker::history::Stage;

use self::old_disk::put_back;
use super::{
    doing::{Doing, Undo},
    fault::Fault,
    house::Folder,
    link::Weather,
    net::CLIENTS,
    world::World,
};

mod old_disk;

/// Milliseconds between two faults, at most.
const PAUSE_MAX: u64 = 3_500;

/// Breaks things, by seed, and mends them. Up to three faults are in effect at once.
pub(super) struct Nemesis {
    random: StdRng,
    next: u64,
    doing: Vec<Doing>,
    /// How many disks were lost.
    lost: usize,
    guest: Option<usize>,
    /// The only house whose wall clock may be far off: a cold start takes the lower median of those
    /// of a majority, and so bears one.
    wild: Option<usize>,
    /// Older disks of a house, of a moment when its process was killed.
    copies: BTreeMap<usize, Folder>,
    /// How often each fault took effect.
    pub(super) done: BTreeMap<u32, u64>,
}

impl Nemesis {
    pub(super) fn new(seed: u64, now: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x6e65_6d65_7369_7300);
        let next = now + random.random_range(300..2_500);
        Self {
            random,
            next,
            doing: Vec::new(),
            lost: 0,
            guest: None,
            wild: None,
            copies: BTreeMap::new(),
            done: BTreeMap::new(),
        }
    }

    /// One millisecond: ends what is to end, begins what is to begin.
    pub(super) fn act(&mut self, world: &mut World) {
        let ended: Vec<_> = self
            .doing
            .extract_if(.., |doing| doing.until <= world.now)
            .collect();
        for doing in ended {
            self.end(world, doing);
        }
        if world.now >= self.next {
            self.next = world.now + self.random.random_range(200..PAUSE_MAX);
            if self.doing.len() < 3 {
                self.begin(world);
            }
        }
    }

    /// Everything is mended at once, and every house has a process.
    pub(super) fn rest(&mut self, world: &mut World) {
        let mut doing = std::mem::take(&mut self.doing);
        // An old disk is thrown away before its node could start from it once more.
        doing.sort_by_key(|doing| doing.fault != Fault::Stale);
        for doing in doing {
            self.end(world, doing);
        }
        for place in 0..world.houses.len() {
            if self.guest == Some(place) {
                continue;
            }
            world.may_stop.remove(&world.houses[place].host);
            world.start(place);
        }
    }

    /// The house of a node that was added for a while.
    pub(super) fn guest(&self) -> Option<usize> {
        self.guest
    }

    fn is_busy(&self, place: usize) -> bool {
        self.doing.iter().any(|doing| doing.houses.contains(&place))
    }

    /// A house that lives and to which nothing is being done: often the leader's.
    fn victim(&mut self, world: &World) -> Option<usize> {
        let free: Vec<usize> = world
            .living()
            .into_iter()
            .filter(|place| !self.is_busy(*place) && self.guest != Some(*place))
            .collect();
        if let Some(leader) = world.leader().filter(|leader| free.contains(leader))
            && self.random.random_bool(0.5)
        {
            return Some(leader);
        }
        free.choose(&mut self.random).copied()
    }

    fn begin(&mut self, world: &mut World) {
        let fault = Fault::draw(&mut self.random);
        let Some(victim) = self.victim(world) else {
            return;
        };
        let all: Vec<usize> = (0..world.shared.nodes.len()).collect();
        let short = self.random.random_range(100..1_500);
        let long = self.random.random_range(1_000..9_000);
        let (houses, length, undo) = match fault {
            Fault::Kill => {
                // The kernel keeps what the process has written.
                let unsynced = world.houses[victim].folder.log.unsynced();
                let kept = self.random.random_range(0..=unsynced);
                world.kill(victim, true, kept);
                self.keep_copy(world, victim);
                let length = if self.random.random_bool(0.5) {
                    short
                } else {
                    long
                };
                (vec![victim], length, Undo::Start)
            }
            Fault::KillTwo => {
                let other = all.iter().copied().find(|place| {
                    *place != victim && !self.is_busy(*place) && world.houses[*place].life.is_some()
                });
                let Some(other) = other else { return };
                world.kill(victim, true, 0);
                world.kill(other, true, 0);
                (vec![victim, other], long.min(6_000), Undo::Start)
            }
            Fault::PowerCut => {
                let kept = self.torn(world, victim);
                world.kill(victim, false, kept);
                (vec![victim], long, Undo::Start)
            }
            Fault::PowerCutOfAll => {
                for place in &all {
                    let kept = self.torn(world, *place);
                    world.kill(*place, false, kept);
                }
                // They come back one after the other; this is when the first may.
                let mut order = all.clone();
                for at in (1..order.len()).rev() {
                    order.swap(at, self.random.random_range(0..=at));
                }
                for place in order {
                    let until = world.now + self.random.random_range(50..4_000);
                    self.note(world, fault, "power", vec![place], until, Undo::Start);
                }
                return;
            }
            Fault::Freeze => {
                world.houses[victim].frozen = true;
                let length = match self.random.random_range(0..4) {
                    0 => self.random.random_range(9_000..14_000),
                    1 => short,
                    _ => long,
                };
                (vec![victim], length, Undo::Thaw)
            }
            Fault::Isolate => {
                let mut links = Vec::new();
                for other in all.iter().filter(|other| **other != victim) {
                    links.push((victim, *other));
                    links.push((*other, victim));
                }
                (vec![victim], long, self.cut(world, links))
            }
            Fault::OneWay => {
                let mut links = Vec::new();
                let inwards = self.random.random_bool(0.5);
                let only = self.random.random_bool(0.5);
                for other in all.iter().filter(|other| **other != victim) {
                    links.push(if inwards {
                        (*other, victim)
                    } else {
                        (victim, *other)
                    });
                    if only {
                        break;
                    }
                }
                (vec![victim], long, self.cut(world, links))
            }
            Fault::Bridge => {
                let Some(other) = all.iter().copied().find(|other| *other != victim) else {
                    return;
                };
                let links = vec![(victim, other), (other, victim)];
                (vec![victim, other], long, self.cut(world, links))
            }
            Fault::ClientsCut => {
                let host = world.houses[victim].host;
                let links = match self.random.random_range(0..3) {
                    0 => vec![(CLIENTS, host)],
                    1 => vec![(host, CLIENTS)],
                    _ => vec![(CLIENTS, host), (host, CLIENTS)],
                };
                for (from, to) in &links {
                    world.net.cut(*from, *to);
                }
                (vec![victim], long, Undo::Links(links))
            }
            Fault::Weather => {
                let weather = Weather {
                    base_ms: self.random.random_range(1..60),
                    jitter_ms: self.random.random_range(0..250),
                    lost_permille: self.random.random_range(0..250),
                };
                let mut links = Vec::new();
                let some = self.random.random_bool(0.5);
                for from in &all {
                    for to in &all {
                        if from != to && (!some || *from == victim || *to == victim) {
                            links.push((world.houses[*from].host, world.houses[*to].host));
                        }
                    }
                }
                for (from, to) in &links {
                    world.net.set_weather(*from, *to, weather);
                }
                (vec![victim], long, Undo::Weather(links))
            }
            Fault::SlowDisk => {
                let delay = self.random.random_range(5..250);
                let delay = std::time::Duration::from_millis(delay);
                world.houses[victim].folder.log.delay_syncs(delay);
                (vec![victim], long, Undo::Disk)
            }
            Fault::HungDisk => {
                // Ten seconds are a failed write.
                world.may_stop.insert(world.houses[victim].host);
                world.houses[victim].folder.log.hold_syncs(true);
                let length = self.random.random_range(500..13_000);
                (vec![victim], length, Undo::Disk)
            }
            Fault::FailedSync => {
                world.fail_disk(victim);
                (vec![victim], long, Undo::Start)
            }
            Fault::FullDisk => {
                world.houses[victim].folder.disk.fill(true);
                (vec![victim], long, Undo::Disk)
            }
            Fault::WallStep => {
                let victim = *self.wild.get_or_insert(victim);
                // Forward only: one that is behind wins a cold start of two, as their lower median, and
                // time catches up in a jump at the next one. No clock of a majority could tell.
                let hours = [3_600_000, 30_000, 10_000, 600_000];
                let step = hours.choose(&mut self.random).copied().unwrap_or(1);
                world.step_wall(victim, step);
                (vec![victim], 0, Undo::Nothing)
            }
            Fault::Snapshots => {
                for place in &all {
                    let house = &world.houses[*place];
                    house.folder.disk.hurry(true);
                    if self.random.random_bool(0.6) {
                        house.spawn(|node| async move {
                            drop(node.members().snapshot().await);
                        });
                    }
                }
                (all.clone(), long, Undo::Hurry)
            }
            Fault::Transfer => {
                world.houses[victim].spawn(|node| async move {
                    drop(node.members().transfer_leader(None).await);
                });
                (vec![victim], 0, Undo::Nothing)
            }
            Fault::Drain => {
                // What SIGTERM does; the process ends a moment later.
                world.houses[victim].spawn(|node| async move {
                    node.members().drain().await;
                });
                let ends = world.now + self.random.random_range(300..2_500);
                self.note(world, fault, "drain", vec![victim], ends, Undo::Nothing);
                return;
            }
            Fault::Wipe => {
                if !self.may_lose(world) {
                    return;
                }
                self.lost += 1;
                world.kill(victim, false, 0);
                world.wipe(victim);
                self.copies.remove(&victim);
                (vec![victim], short, Undo::Start)
            }
            Fault::Guest => {
                if self.guest.is_some() {
                    return;
                }
                let join = world.shared.nodes.clone();
                let place = world.build("guest", Vec::new(), join);
                world.start(place);
                self.guest = Some(place);
                (vec![place], 1_000, Undo::Nothing)
            }
            Fault::RemoveGuest => {
                let Some(guest) = self.guest else { return };
                world.may_stop.insert(world.houses[guest].host);
                world.houses[victim].spawn(|node| async move {
                    drop(node.members().remove("guest", true).await);
                });
                (vec![guest], 0, Undo::Nothing)
            }
            Fault::Stale => {
                let Some(place) = self
                    .copies
                    .keys()
                    .copied()
                    .find(|place| !self.is_busy(*place))
                else {
                    return;
                };
                // Only while the others are there to tell it.
                if !self.may_lose(world) {
                    return;
                }
                let Some(copy) = self.copies.remove(&place) else {
                    return;
                };
                self.lost += 1;
                put_back(world, place, copy);
                // It has to stop by itself; then its disk is thrown away.
                (vec![place], 8_000, Undo::Start)
            }
        };
        let until = world.now + length;
        let what = fault.name();
        self.note(world, fault, what, houses, until, undo);
    }

    fn note(
        &mut self,
        world: &World,
        fault: Fault,
        what: &str,
        houses: Vec<usize>,
        until: u64,
        undo: Undo,
    ) {
        world.tell(fault.number(), what, &houses, Stage::Begin, false);
        self.doing.push(Doing {
            until,
            fault,
            what: what.to_owned(),
            houses,
            undo,
            hindered: world.net.hindered(),
        });
    }

    /// Whether one more disk may be lost for good: all are there, and most disks were never lost.
    fn may_lose(&self, world: &World) -> bool {
        let nodes = world.shared.nodes.len();
        let there = world.living().into_iter().filter(|place| *place < nodes);
        self.lost < (nodes - 1) / 2 && there.count() == nodes && self.doing.is_empty()
    }

    /// How many appends that were not synced a power cut leaves: usually none, sometimes some, so
    /// that the tail is torn.
    fn torn(&mut self, world: &World, place: usize) -> usize {
        let unsynced = world.houses[place].folder.log.unsynced();
        match self.random.random_bool(0.4) {
            true => self.random.random_range(0..=unsynced),
            false => 0,
        }
    }

    fn cut(&self, world: &World, links: Vec<(usize, usize)>) -> Undo {
        let host = |place: usize| world.houses[place].host;
        let links: Vec<_> = links
            .into_iter()
            .map(|(from, to)| (host(from), host(to)))
            .collect();
        for (from, to) in &links {
            world.net.cut(*from, *to);
        }
        Undo::Links(links)
    }

    fn end(&mut self, world: &mut World, doing: Doing) {
        let Doing {
            fault,
            what,
            houses,
            undo,
            hindered,
            ..
        } = doing;
        let mut effect = true;
        match undo {
            Undo::Start => {
                for place in &houses {
                    if fault == Fault::Stale {
                        effect = self.end_stale(world, *place);
                    }
                    if fault == Fault::FailedSync {
                        // One that had nothing to write may still live.
                        effect = world.houses[*place].life.is_none();
                        world.kill(*place, true, 0);
                    }
                    self.excuse_no_more(world, *place);
                    world.start(*place);
                }
            }
            Undo::Thaw => {
                for place in &houses {
                    world.houses[*place].thaw(world.now);
                }
            }
            Undo::Links(links) => {
                for (from, to) in links {
                    world.net.mend(from, to);
                }
                effect = world.net.hindered() > hindered;
            }
            Undo::Weather(links) => {
                for (from, to) in links {
                    world.net.set_weather(from, to, Weather::default());
                }
            }
            Undo::Disk => {
                for place in &houses {
                    let house = &world.houses[*place];
                    house.folder.log.delay_syncs(std::time::Duration::ZERO);
                    house.folder.log.hold_syncs(false);
                    house.folder.disk.fill(false);
                    // It may have stopped.
                    self.excuse_no_more(world, *place);
                    world.start(*place);
                }
            }
            Undo::Hurry => {
                for place in &houses {
                    world.houses[*place].folder.disk.hurry(false);
                }
            }
            Undo::Nothing => {
                if fault == Fault::Drain {
                    for place in &houses {
                        world.kill(*place, true, 0);
                        world.start(*place);
                    }
                }
            }
        }
        world.tell(fault.number(), &what, &houses, Stage::End, false);
        if effect {
            *self.done.entry(fault.number()).or_default() += 1;
            world.tell(fault.number(), "it took effect", &houses, Stage::Once, true);
        }
    }
}

#[cfg(test)]
mod tests;
