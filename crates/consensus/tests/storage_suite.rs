//! openraft's own tests of log and state, over those in memory.

use std::sync::Arc;

use openraft::{
    StorageError,
    testing::log::{StoreBuilder, Suite},
};
use trellis_consensus::{
    StateStore,
    memory::{MemoryLog, MemoryState},
    raft::{StateMachine, TypeConfig},
};

struct InMemory;

impl StoreBuilder<TypeConfig, MemoryLog, StateMachine> for InMemory {
    async fn build(&self) -> Result<((), MemoryLog, StateMachine), StorageError<TypeConfig>> {
        let state = MemoryState::new();
        // The suite applies entries that never were in the log.
        state.log_flushed(u64::MAX);
        let machine = StateMachine::open(Arc::new(state), Box::new(())).expect("an empty state");
        Ok(((), MemoryLog::new(), machine))
    }
}

#[tokio::test]
async fn log_and_state_in_memory_pass_openrafts_suite() {
    Suite::<TypeConfig, MemoryLog, StateMachine, InMemory, ()>::test_all(InMemory)
        .await
        .expect("a sound store");
}
