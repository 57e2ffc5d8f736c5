//! openraft's own tests of log and state, over a real data folder.

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use trellis_consensus::raft::StateMachine;

use super::*;
use crate::failure::Failure;
use crate::gate::Gate;
use crate::log::Segments;
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
            segment_bytes: 64 * 1024,
            ..LogOptions::default()
        };
        let engine = Segments::open(&dir.path().join("log"), &options).unwrap();
        let log = LogStore::open(Arc::new(engine), options, failure.clone(), gate.clone()).unwrap();
        let (state, snapshots) = (dir.path().join("state"), dir.path().join("snapshots"));
        let options = StateOptions {
            memtable_bytes: 1024 * 1024,
            ..StateOptions::default()
        };
        let state = StateMirror::open(&state, &snapshots, None, options, failure, gate).unwrap();
        let machine = StateMachine::open(Arc::new(state), Box::new(())).unwrap();
        Ok((dir, log, machine))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_and_state_on_disk_pass_openrafts_suite() {
    Suite::<TypeConfig, LogStore, StateMachine, Uncoupled, _>::test_all(Uncoupled)
        .await
        .expect("a sound store");
}
