use trellis_types::seeded::Bug;

use super::instrument::Instrument::{
    self, Consensus, Machine, Model, Node, NodeUnits, Processes, Simulation, Store,
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
        | Bug::FsyncErrorTrusted
        | Bug::VoteNotPersisted
        | Bug::AppliedIndexNotAtomic
        | Bug::LogHoleAccepted
        | Bug::TornTailInTheMiddle
        | Bug::PurgeBeforeDurable
        | Bug::StateAheadOfLog
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
