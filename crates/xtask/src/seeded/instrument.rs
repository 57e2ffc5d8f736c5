use std::time::Duration;

/// What can find a bug, the cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Instrument {
    /// The machine's own stories, its paper cluster and its twin.
    Machine,
    /// Small pure parts of a node, and the stories of an origin.
    NodeUnits,
    /// Random walks through the protocol as a small model.
    Model,
    /// The store over real folders: crashes, flipped bits, failing disks.
    Store,
    /// Raft of several nodes in one process.
    Consensus,
    /// Whole nodes in one process.
    Node,
    /// Whole nodes in simulated time, with faults; the checker's word on it.
    Simulation,
    /// Real processes on disks that lose what was not synced, as root; the checker's word on it.
    Disks,
    /// Real processes under a recorded load; the checker's word on it.
    Processes,
}

/// One run of one program.
pub(super) struct Step {
    /// Whose.
    pub(super) package: &'static str,
    pub(super) program: Program,
    /// Not before this is over is it given up.
    pub(super) bound: Duration,
}

/// What is run.
pub(super) enum Program {
    /// The tests in the package's library.
    UnitTests,
    /// The tests of a file in `tests/`; of all of them for `None`.
    Tests(Option<&'static str>),
    /// A binary, with arguments.
    Binary(&'static str, &'static [&'static str]),
}

const CUTS: &[&str] = &["story", "power-cut", "sync-error", "--rounds", "2"];
const SEEDS: &[&str] = &["whole", "--seeds", "1..12", "--jobs", "2"];
const WALKS: &[&str] = &["model", "walk", "--seed", "1", "--walks", "5000"];

const MINUTES: fn(u64) -> Duration = |minutes| Duration::from_secs(60 * minutes);

impl Instrument {
    pub(super) const ALL: &[Self] = &[
        Self::Machine,
        Self::NodeUnits,
        Self::Model,
        Self::Store,
        Self::Consensus,
        Self::Node,
        Self::Simulation,
        Self::Disks,
        Self::Processes,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::NodeUnits => "node-units",
            Self::Model => "model",
            Self::Store => "store",
            Self::Consensus => "consensus",
            Self::Node => "node",
            Self::Simulation => "simulation",
            Self::Disks => "disks",
            Self::Processes => "processes",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.name() == name)
    }

    pub(super) fn steps(self) -> Vec<Step> {
        let step = |package, program, bound| Step {
            package,
            program,
            bound,
        };
        let tests = |package, file| step(package, Program::Tests(Some(file)), MINUTES(5));
        match self {
            Self::Machine => vec![step("trellis-queue", Program::Tests(None), MINUTES(3))],
            Self::NodeUnits => vec![step("trellis-node", Program::UnitTests, MINUTES(3))],
            Self::Model => vec![step(
                "trellis-sim",
                Program::Binary("trellis-sim", WALKS),
                MINUTES(5),
            )],
            Self::Store => vec![step("trellis-store", Program::UnitTests, MINUTES(5))],
            Self::Consensus => vec![
                tests("trellis-consensus", "cluster"),
                tests("trellis-consensus", "broken_snapshot"),
                tests("trellis-consensus", "nemesis"),
            ],
            Self::Node => vec![
                tests("trellis-node", "serving"),
                tests("trellis-node", "failing_over"),
                tests("trellis-node", "membership"),
            ],
            Self::Simulation => vec![step(
                "trellis-sim",
                Program::Binary("trellis-sim", SEEDS),
                MINUTES(8),
            )],
            Self::Disks => vec![step(
                "trellis-chaos-disk",
                Program::Binary("trellis-chaos-disk", CUTS),
                MINUTES(8),
            )],
            Self::Processes => vec![
                tests("trellis-tests", "failover"),
                tests("trellis-tests", "checked"),
            ],
        }
    }

    /// Whether it starts processes of the product.
    pub(super) fn wants_product(self) -> bool {
        matches!(self, Self::Disks | Self::Processes)
    }

    /// Whether its run can be cut off when it has found something: not if it started processes of
    /// its own, which it ends itself.
    pub(super) fn can_be_cut_off(self) -> bool {
        !matches!(self, Self::Processes)
    }
}
