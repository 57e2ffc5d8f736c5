//! openraft's own tests of log and state, over a real data folder.

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use trellis_consensus::raft::StateMachine;

use super::*;
use crate::failure::Failure;
use crate::gate::Gate;
use crate::log::RocksLog;
use crate::{LogOptions, LogStore, StateMirror, StateOptions};

/// The suite moves log and state apart as no node does (a state without a log, a log that begins
/// anywhere), so nothing couples them here.
struct Uncoupled;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, tempfile::TempDir> for Uncoupled {
    async fn build(
        &self,
    ) -> Result<(tempfile::TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let failure = Failure::new(
            &crate::StoreOptions {
                fail_stop: Arc::new(|reason| panic!("{reason}")),
                ..crate::StoreOptions::default()
            },
            None,
        );
        let gate = Arc::new(Gate::open());
        let options = LogOptions {
            any_start: true,
            memtable_bytes: 1024 * 1024,
            ..LogOptions::default()
        };
        let engine = RocksLog::open(&dir.path().join("log"), &options).unwrap();
        let log = LogStore::open(Arc::new(engine), options, failure.clone(), gate.clone()).unwrap();
        let (state, snapshots) = (dir.path().join("state"), dir.path().join("snapshots"));
        let options = StateOptions {
            memtable_bytes: 1024 * 1024,
            ..StateOptions::default()
        };
        let state = StateMirror::open(&state, &snapshots, options, failure, gate).unwrap();
        let machine = StateMachine::open(Arc::new(state), Box::new(())).unwrap();
        Ok((dir, log, machine))
    }
}

type Tests = Suite<TypeConfig, LogStore, StateMachine, Uncoupled, tempfile::TempDir>;

/// Runs tests of the suite, each over a folder of its own.
macro_rules! run {
    ($($test:ident),* $(,)?) => {
        $(
            let (_dir, log, machine) = Uncoupled.build().await.unwrap();
            let passed = Tests::$test(log, machine).await;
            assert!(passed.is_ok(), "{}: {passed:?}", stringify!($test));
        )*
    };
}

/// All of them but those that make a snapshot with members whose id is not theirs, which does not
/// survive protobuf: `snapshot_meta`, `transfer_snapshot` and those that begin with
/// `get_initial_state_membership_from_`. The stories of snapshots tell the same with sound members.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_and_state_on_disk_pass_openrafts_suite() {
    run!(
        last_membership_in_log_initial,
        last_membership_in_log,
        last_membership_in_log_multi_step,
        get_membership_initial,
        get_membership_from_log_and_empty_sm,
        get_membership_from_empty_log_and_sm,
        get_membership_from_log_le_sm_last_applied,
        get_membership_from_log_gt_sm_last_applied_1,
        get_membership_from_log_gt_sm_last_applied_2,
        get_initial_state_without_init,
        get_initial_state_with_state,
        get_initial_state_last_log_gt_sm,
        get_initial_state_last_log_lt_sm,
        get_initial_state_inverted_log_order,
        get_initial_state_conflict_at_same_index,
        get_initial_state_log_ids,
        get_initial_state_re_apply_committed,
        save_vote,
        get_log_entries,
        limited_get_log_entries,
        leader_bounded_stream,
        entries_stream,
        try_get_log_entry,
        log_reader_reads_new_entries,
        initial_logs,
        get_log_state,
        get_log_id,
        last_id_in_log,
        last_applied_state,
        purge_logs_upto_0,
        purge_logs_upto_5,
        purge_logs_upto_20,
        delete_logs_after_11,
        delete_logs_after_5,
        delete_logs_after_0,
        delete_logs_after_none,
        append_to_log,
        snapshot_meta_optional,
        apply_single,
        apply_multiple,
    );
}
