use trellis_types::seeded::Bug;

use super::instrument::Instrument::{
    self, Consensus, Disks, Machine, Model, Node, NodeUnits, Processes, Simulation, Store,
};

/// What should find a bug, the cheapest first.
pub(super) fn instruments(bug: Bug) -> &'static [Instrument] {
    match bug {
        Bug::DedupeNotInSnapshot
        | Bug::IdCounterNotInSnapshot
        | Bug::MapOrderInApply
        | Bug::TtrNotInSnapshot
        | Bug::StaleOwnerSettles => &[Machine, Node, Simulation, Processes],
        Bug::GrantToDeadSession
        | Bug::HoldsBeforeWaits
        | Bug::SuspendedWaitsOffered
        | Bug::ResumeOffersNothing
        | Bug::BatchHoleAccepted => &[Machine, Model, Node, Simulation, Processes],
        Bug::AcknowledgedBeforeFsync
        | Bug::FsyncSkipped
        | Bug::VoteNotPersisted
        | Bug::AppliedIndexNotAtomic
        | Bug::StateAheadOfLog => &[Store, Disks, Processes],
        // RocksDB takes nothing any more once a write failed, so only a lesser engine shows it.
        Bug::FsyncErrorTrusted => &[Store],
        Bug::LogHoleAccepted
        | Bug::TornTailInTheMiddle
        | Bug::PurgeBeforeDurable
        | Bug::SnapshotNotChecked => &[Store, Processes],
        Bug::RemovedMemberVotes => &[Consensus, Node, Simulation],
        Bug::WallClockOfLeader
        | Bug::SleepingLeaderExpires
        | Bug::StaleDiskVotes
        | Bug::DeleteBeforeCommit => &[NodeUnits, Node, Simulation, Processes],
        Bug::IsolatedLeaderServes | Bug::ReadWithoutIndex | Bug::TtrLostAtFailover => {
            &[Node, Simulation, Processes]
        }
    }
}
