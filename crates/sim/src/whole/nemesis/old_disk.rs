use super::{
    super::{doing::Doing, fault::Fault, house::Folder, world::World},
    Nemesis,
};

impl Nemesis {
    /// Remembers the disk of a house without a process.
    pub(super) fn keep_copy(&mut self, world: &mut World, place: usize) {
        let folder = &mut world.houses[place].folder;
        let (copy, own) = (folder.after_crash(0), folder.after_crash(0));
        *folder = own;
        self.copies.entry(place).or_insert(copy.aged());
    }

    /// From now on the node must not stop by itself, unless its disk is still the old one.
    pub(super) fn excuse_no_more(&self, world: &mut World, place: usize) {
        let is_old = |doing: &Doing| doing.fault == Fault::Stale && doing.houses.contains(&place);
        if !self.doing.iter().any(is_old) {
            world.may_stop.remove(&world.houses[place].host);
        }
    }

    /// A node with an old disk has had its time, and may not stop from now on. Whether it stopped:
    /// without a process, or with one at which nobody has looked yet.
    pub(super) fn end_stale(&mut self, world: &mut World, place: usize) -> bool {
        let house = &world.houses[place];
        let stage = house.status().map(|status| status.stage);
        let stopped = house.life.is_none() || stage == Some("stopped");
        if stage == Some("running") {
            // Nobody may have known better: then it goes on like any other.
            return false;
        }
        // Nor may one that still asks be told so later, when faults end early.
        world.kill(place, true, 0);
        world.wipe(place);
        stopped
    }
}

/// The node of a house starts once more with an older disk.
pub(super) fn put_back(world: &mut World, place: usize, copy: Folder) {
    world.kill(place, false, 0);
    world.houses[place].folder = copy;
    world.may_stop.insert(world.houses[place].host);
    world.start(place);
}
