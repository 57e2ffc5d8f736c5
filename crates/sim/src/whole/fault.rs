use rand::{Rng, rngs::StdRng};

/// What a nemesis does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// A process is killed, and started again.
    Kill,
    /// Two processes at once.
    KillTwo,
    /// The power of one machine goes, and with it what was not synced; the tail may be torn.
    PowerCut,
    /// That of all.
    PowerCutOfAll,
    /// A process is stopped for a while; its kernel goes on, its clock jumps.
    Freeze,
    /// A machine reaches no other.
    Isolate,
    /// Messages get through in one direction only.
    OneWay,
    /// Two machines do not reach each other, others reach both.
    Bridge,
    /// Clients and a machine do not reach each other, in one direction or both.
    ClientsCut,
    /// Links are slow, uneven, and lose.
    Weather,
    /// Syncs take long.
    SlowDisk,
    /// No sync ends for a while, perhaps for too long.
    HungDisk,
    /// A sync fails: the process must stop.
    FailedSync,
    /// A volume is nearly full.
    FullDisk,
    /// A wall clock jumps.
    WallStep,
    /// Everybody takes snapshots, and purges more than others have.
    Snapshots,
    /// Leadership is handed over.
    Transfer,
    /// A node drains and is started again.
    Drain,
    /// A disk is lost; its node comes back empty under the same name.
    Wipe,
    /// A further node joins.
    Guest,
    /// That node is removed, and its process must stop.
    RemoveGuest,
    /// A node comes back with an older disk: it must stop, and comes back empty.
    Stale,
}

/// How often each is drawn, and its number in the list of faults.
const FAULTS: [(Fault, u32, u32, &str); 22] = [
    (Fault::Kill, 10, 1, "kill"),
    (Fault::KillTwo, 2, 5, "kill two"),
    (Fault::PowerCut, 6, 32, "power cut"),
    (Fault::PowerCutOfAll, 3, 31, "power cut of all"),
    (Fault::Freeze, 8, 6, "freeze"),
    (Fault::Isolate, 8, 12, "isolate"),
    (Fault::OneWay, 7, 13, "one way"),
    (Fault::Bridge, 5, 14, "bridge"),
    (Fault::ClientsCut, 3, 16, "clients cut"),
    (Fault::Weather, 6, 17, "weather"),
    (Fault::SlowDisk, 5, 29, "slow disk"),
    (Fault::HungDisk, 4, 28, "hung disk"),
    (Fault::FailedSync, 4, 27, "failed sync"),
    (Fault::FullDisk, 2, 30, "full disk"),
    (Fault::WallStep, 4, 23, "wall clock step"),
    (Fault::Snapshots, 7, 45, "snapshots"),
    (Fault::Transfer, 4, 8, "transfer"),
    (Fault::Drain, 4, 43, "drain and restart"),
    (Fault::Wipe, 4, 42, "wipe"),
    (Fault::Guest, 3, 40, "a node joins"),
    (Fault::RemoveGuest, 4, 41, "the node is removed"),
    (Fault::Stale, 4, 37, "stale disk"),
];

impl Fault {
    pub(super) fn draw(random: &mut StdRng) -> Self {
        let all: u32 = FAULTS.iter().map(|(_, weight, ..)| weight).sum();
        let mut left = random.random_range(0..all);
        for (fault, weight, ..) in FAULTS {
            if left < weight {
                return fault;
            }
            left -= weight;
        }
        Self::Kill
    }

    fn row(self) -> (u32, &'static str) {
        let row = FAULTS.iter().find(|(fault, ..)| *fault == self);
        row.map_or((0, "?"), |(_, _, number, name)| (*number, name))
    }

    /// Its number in the list of faults.
    pub(super) fn number(self) -> u32 {
        self.row().0
    }

    pub(super) fn name(self) -> &'static str {
        self.row().1
    }
}
