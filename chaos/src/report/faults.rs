//! The list of faults: what each is, which tests try it beside chaos, simulation and disk
//! stories, and why one can't occur here.

/// A fault of the list.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its number.
    pub(super) number: u32,
    /// In a few words.
    pub(super) what: &'static str,
    /// Tests that try it, by their functions' names.
    pub(super) tests: &'static [&'static str],
    /// Why it can't occur, or what of it can't be tried.
    pub(super) but: Option<&'static str>,
}

const fn tried(number: u32, what: &'static str, tests: &'static [&'static str]) -> Entry {
    Entry {
        number,
        what,
        tests,
        but: None,
    }
}

const fn partly(
    number: u32,
    what: &'static str,
    tests: &'static [&'static str],
    but: &'static str,
) -> Entry {
    Entry {
        number,
        what,
        tests,
        but: Some(but),
    }
}

/// All of them, by number.
#[rustfmt::skip]
pub(super) const FAULTS: &[Entry] = &[
    tried(1, "kill -9 of the leader", &["the_leader_dies_and_clients_of_the_others_see_a_pause"]),
    tried(2, "kill -9 of the leader, faster than recovery", &["acknowledged_jobs_survive_random_faults_exactly_once"]),
    tried(3, "kill -9 of a follower, then of the leader", &["nodes_are_killed_one_after_the_other_and_no_promise_is_broken"]),
    tried(4, "kill -9 of all at once, restarted in any order", &["all_nodes_die_at_once_and_nothing_acknowledged_is_missing"]),
    tried(5, "kill -9 of two of three", &["two_nodes_and_then_all_are_killed_and_no_promise_is_broken", "without_a_majority_commands_are_told_so_and_the_node_fences_itself"]),
    tried(6, "leader stopped past the election time-out", &["a_node_is_frozen_while_another_is_killed_and_no_promise_is_broken"]),
    tried(7, "follower stopped, also during a snapshot install", &["a_broken_transfer_goes_on_where_it_broke"]),
    tried(8, "SIGTERM is a drain", &["a_planned_transfer_under_load_loses_and_doubles_nothing", "a_node_that_stops_lets_its_clients_go_in_good_order"]),
    tried(9, "killed while a snapshot is built, or a huge batch applied", &["a_crash_leaves_no_halves_behind", "one_huge_entry_is_in_flight_at_a_time"]),
    partly(10, "panic inside apply", &["a_panic_in_any_thread_ends_the_process_and_says_so", "what_no_leader_should_have_let_pass_is_refused_by_all_equally"], "a panic ends the process (exit code 70), so to the others it is fault 1 or 3; an entry that can't be understood is a refusal on every node"),
    tried(11, "crash at each point between append and applied index", &["what_was_acknowledged_is_there_after_a_crash", "a_window_waits_until_the_log_is_on_disk", "a_purge_beyond_the_durable_state_stops_the_node", "a_crash_right_after_an_install_is_no_damage"]),
    tried(12, "symmetric partition", &["the_leader_falls_silent_and_clients_of_the_others_see_a_pause"]),
    tried(13, "asymmetric partition", &["a_leader_that_talks_but_does_not_hear_is_replaced"]),
    tried(14, "bridge: two of three do not hear each other", &[]),
    tried(15, "peer links cut, client links alive", &["a_leader_that_lost_its_majority_serves_nobody"]),
    tried(16, "client links cut, peer links alive", &["a_client_that_hangs_up_gives_its_jobs_back_and_what_it_sent_is_carried_out"]),
    partly(17, "loss, delay, jitter, duplication, reordering", &[], "between real processes TCP hides duplication and reordering; the simulation has them"),
    tried(18, "narrow link, cut in the middle of a snapshot", &["a_broken_transfer_goes_on_where_it_broke"]),
    partly(19, "half-open TCP", &["a_client_that_vanishes_is_noticed_while_nothing_of_it_is_read"], "there are no webhooks"),
    partly(20, "load balancer: each new connection to another node", &["a_held_job_is_nobody_elses"], "the protocol has no token; a hold belongs to its connection, as beanstalkd's does"),
    tried(21, "replayed and delayed messages of a former term", &["a_proposal_on_condition_of_a_former_term_is_refused", "a_batch_sent_again_changes_nothing", "words_that_name_another_run_do_nothing"]),
    tried(22, "a node's address changes", &["a_member_that_moved_is_found_at_its_new_address"]),
    tried(23, "the leader's clock stepped by an hour", &["a_stepped_wall_clock_expires_and_stretches_nothing"]),
    tried(24, "failover to a node with another clock", &["all_nodes_restart_and_time_goes_on"]),
    partly(25, "strobing clock, leap second, paused machine", &["a_leader_that_slept_blames_nobody"], "a monotonic clock that stands still needs a hypervisor: the process is stopped instead, and its wall clock set 5 minutes ahead"),
    partly(26, "cron across daylight saving time", &[], "there is no cron"),
    tried(27, "fsync fails once", &["a_failed_sync_stops_the_node_once_and_nothing_is_acknowledged_after_it"]),
    tried(28, "fsync hangs", &["a_write_that_hangs_for_ten_seconds_has_failed", "a_leader_whose_log_stands_still_hands_over_and_does_not_come_back_before_it_moves"]),
    tried(29, "a disk a hundred times slower", &["slow_disks_cost_no_leader_its_office_and_nothing_is_acknowledged_unsynced"]),
    tried(30, "no space", &["one_voter_short_of_disk_refuses_puts_until_there_is_a_quarter_more", "while_puts_are_refused_the_queue_can_be_drained"]),
    tried(31, "power cut", &["a_power_cut_of_all_loses_nothing_that_was_acknowledged"]),
    tried(32, "torn last record", &["a_torn_tail_costs_only_what_was_not_acknowledged"]),
    tried(33, "bit flip in the middle of the log", &["a_flipped_bit_in_the_middle_of_the_log_is_refused"]),
    tried(34, "bit flip in state files", &["a_flipped_bit_in_the_rows_is_found_when_they_are_loaded", "one_flipped_bit_anywhere_is_harmless_or_found"]),
    tried(35, "bit flip in a snapshot, on disk and in transfer", &["a_snapshot_damaged_on_its_way_is_refused", "a_snapshot_damaged_on_the_senders_disk_is_refused"]),
    tried(36, "misdirected or lost write", &[]),
    tried(37, "stale disk", &["an_older_copy_of_the_folder_stops_whoever_notices_and_whatever_gives_it_away"]),
    partly(38, "vote lost or corrupt", &["one_flipped_bit_anywhere_is_harmless_or_found", "an_older_copy_of_the_folder_stops_even_if_it_is_tried_again_and_again"], "the vote has no file of its own: it is a row of the log, so this is fault 33 or 37"),
    tried(39, "read error while a laggard is fed", &["a_leader_that_cannot_read_its_log_stops_and_another_feeds_the_laggard", "an_append_with_a_hole_is_refused_and_stops_the_node"]),
    tried(40, "members added, removed, replaced under load", &["a_leader_that_dies_while_a_member_is_replaced_changes_nothing_in_the_end", "a_leader_that_finds_a_joint_membership_completes_it", "a_newcomer_and_a_replacement_do_not_wait_for_each_other", "two_disks_lost_of_five_are_replaced_one_after_the_other"]),
    tried(41, "a removed node comes back", &["a_removed_node_is_told_so_and_stops"]),
    tried(42, "a wiped node comes back", &["an_empty_disk_comes_back_under_a_new_id_in_place_of_the_dead_one"]),
    tried(43, "rolling restart", &["a_cluster_survives_the_restart_of_any_and_of_all"]),
    partly(44, "rolling upgrade and mixed versions", &["the_level_is_raised_when_all_understand_it_and_nobody_is_on_its_way", "the_feature_level_is_never_lowered"], "there is one feature level so far, so no older version to mix with"),
    tried(45, "snapshot install under load, purge racing with it", &["a_node_that_was_away_too_long_gets_a_snapshot_and_keeps_it", "a_snapshot_made_under_load_lets_the_log_be_purged_up_to_it"]),
    tried(46, "empty or wrong peers at a restart", &["an_empty_node_never_initialises_beside_a_cluster_that_exists", "configurations_that_differ_form_nothing"]),
    partly(47, "backup restored into a new cluster", &["a_folder_of_another_cluster_is_refused_with_both_ids"], "there is no restore into a new cluster"),
    tried(48, "a storm of TTRs during failover", &["an_entry_lets_only_so_much_fall_due"]),
    partly(49, "worker dies around a delivery", &["an_owed_body_outlives_its_job", "a_client_that_hangs_up_gives_its_jobs_back_and_what_it_sent_is_carried_out"], "the protocol has no token to ask again by"),
    partly(50, "a client retries what did happen", &["after_a_doubt_the_same_bytes_are_sent_again_and_take_effect_once"], "between nodes nothing happens twice; the protocol has no key by which a client's own retry could be known"),
    partly(51, "mass commands while the leader dies", &["a_large_kick_is_carried_out_in_portions_and_answered_once", "a_large_kick_that_finds_no_leader_for_the_rest_says_what_it_has_done"], "of these the protocol has pause-tube and kick only"),
    tried(52, "slow consumers, many waiters, large bodies, random bytes", &["a_client_that_never_reads_blocks_only_itself", "garbage_gets_the_protocols_words_and_the_connection_goes_on", "those_who_never_read_make_room_for_one_who_does"]),
];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Every line of Rust in the repository that begins a function.
    fn functions(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                functions(&path, found);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                let names = text.lines().filter_map(|line| {
                    let (_, rest) = line.split_once("fn ")?;
                    Some(rest.split('(').next()?.to_owned())
                });
                found.extend(names);
            }
        }
    }

    #[test]
    fn all_52_are_there_and_each_is_tried_or_cannot_occur() {
        let numbers: Vec<u32> = FAULTS.iter().map(|fault| fault.number).collect();
        assert_eq!(numbers, (1..=52).collect::<Vec<_>>());
        // Tried by chaos or the disk stories only.
        let elsewhere = [14, 17, 36];
        for fault in FAULTS {
            let somewhere = !fault.tests.is_empty() || fault.but.is_some();
            assert!(
                somewhere || elsewhere.contains(&fault.number),
                "{}",
                fault.number
            );
        }
    }

    #[test]
    fn every_test_that_is_named_exists() {
        let root = Path::new("..");
        let mut found = BTreeSet::new();
        for folder in ["crates", "tests", "chaos"] {
            functions(&root.join(folder), &mut found);
        }
        for fault in FAULTS {
            for test in fault.tests {
                assert!(found.contains(*test), "{}: {test}", fault.number);
            }
        }
    }
}
