use trellis_types::seeded::Bug;

use super::instrument::Instrument::{
    self, Consensus, Disks, Machine, Model, Node, NodeUnits, Processes, Simulation, Store,
};

/// The story that was made to show a bug, and who tells it.
#[rustfmt::skip]
pub(super) fn story(bug: Bug) -> (Instrument, &'static str) {
    match bug {
        Bug::DedupeNotInSnapshot => (Machine, "what_was_carried_out_before_a_restart_is_not_carried_out_again_behind_it"),
        Bug::IdCounterNotInSnapshot => (Machine, "the_id_of_a_deleted_job_does_not_come_back_behind_a_restart"),
        Bug::MapOrderInApply => (Machine, "what_a_closed_session_held_goes_out_in_the_order_of_reservation"),
        Bug::GrantToDeadSession => (Machine, "who_hung_up_gets_nothing_any_more"),
        Bug::HoldsBeforeWaits => (Machine, "when_an_origin_ends_its_holds_return_to_the_others"),
        Bug::SuspendedWaitsOffered => (Machine, "the_waiters_of_a_suspended_origin_are_passed_over"),
        Bug::ResumeOffersNothing => (Machine, "a_resume_hands_out_the_best_jobs_of_all_tubes_that_are_waited_for"),
        Bug::StaleOwnerSettles => (Machine, "only_the_holder_can_release_bury_or_touch"),
        Bug::TtrNotInSnapshot => (Machine, "a_ttr_ends_behind_a_restart_as_it_would_have_before"),
        Bug::BatchHoleAccepted => (Machine, "a_batch_that_would_leave_a_hole_is_refused_whole"),
        Bug::AcknowledgedBeforeFsync => (Store, "nothing_is_acknowledged_before_it_is_on_disk"),
        Bug::FsyncSkipped => (Store, "every_write_is_synced_before_it_returns"),
        Bug::FsyncErrorTrusted => (Store, "a_write_that_failed_is_not_done_again"),
        Bug::VoteNotPersisted => (Store, "a_vote_is_on_disk_before_it_is_given"),
        Bug::AppliedIndexNotAtomic => (Store, "a_flush_nobody_asked_for_is_of_one_moment"),
        Bug::LogHoleAccepted => (Store, "an_append_with_a_hole_is_refused_and_stops_the_node"),
        Bug::TornTailInTheMiddle => (Store, "a_flipped_bit_in_the_middle_of_the_log_is_refused"),
        Bug::PurgeBeforeDurable => (Store, "a_purge_beyond_the_durable_state_stops_the_node"),
        Bug::StateAheadOfLog => (Store, "a_window_waits_until_the_log_is_on_disk"),
        Bug::SnapshotNotChecked => (Store, "a_snapshot_damaged_on_its_way_is_refused"),
        Bug::RemovedMemberVotes => (Consensus, "who_was_removed_counts_for_nobody_even_when_all_restart"),
        Bug::WallClockOfLeader => (NodeUnits, "a_new_leader_who_knows_the_clock_does_not_look_at_the_wall"),
        Bug::IsolatedLeaderServes => (Node, "a_leader_that_lost_its_majority_serves_nobody"),
        Bug::SleepingLeaderExpires => (NodeUnits, "a_leader_that_slept_blames_nobody"),
        Bug::ReadWithoutIndex => (Node, "what_one_node_has_acknowledged_every_node_shows"),
        Bug::DeleteBeforeCommit => (NodeUnits, "a_delete_is_answered_when_it_is_carried_out_and_not_before"),
        Bug::TtrLostAtFailover => (Node, "a_ttr_runs_on_through_an_election_and_ends_neither_early_nor_late"),
        Bug::StaleDiskVotes => (NodeUnits, "an_older_copy_of_the_folder_stops_whoever_notices_and_whatever_gives_it_away"),
    }
}

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
        // No disk here forgets pages after a failed sync, so only an engine made for it shows it.
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
