use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};
use trellis_consensus::{Consensus, Role};
use trellis_queue::LeaderCommand;
use trellis_rpc::pb::forward_down::Down;
use trellis_types::{OriginId, Timestamp};

use super::term::TermOfOffice;
use crate::{
    clock::{OfficeClock, Start},
    mind::Inner,
};

/// Events of streams that wait for the leader.
pub(crate) const EVENTS_MAX: usize = 1_024;
/// Pings that wait in a stream: one that does not take them is a doubt.
pub(crate) const DOWN_MAX: usize = 64;

/// The way to this node's leading task, while it leads.
#[derive(Clone)]
pub(crate) struct Office {
    pub(crate) term: u64,
    pub(crate) events: mpsc::Sender<OfficeEvent>,
    shared: Arc<Shared>,
}

/// What others may look at without asking the task.
pub(super) struct Shared {
    pub(super) clock: OfficeClock,
    /// No majority acknowledges this leader: it answers neither pings nor reads.
    pub(super) silent: Mutex<bool>,
    pub(super) present: Mutex<Vec<OriginId>>,
}

/// What streams, and this node's other tasks, tell the leading task.
pub(crate) enum OfficeEvent {
    Open {
        stream: u64,
        origin: OriginId,
        down: mpsc::Sender<Down>,
    },
    Batch {
        stream: u64,
        origin: OriginId,
        seq: u64,
        commands: usize,
        bytes: Bytes,
    },
    Pong {
        stream: u64,
        number: u64,
        applied: u64,
    },
    Closed {
        stream: u64,
    },
    Lead {
        commands: Vec<LeaderCommand>,
        done: oneshot::Sender<Result<u64, String>>,
    },
}

impl Office {
    /// The leader's clock; `None` while no majority acknowledges it.
    pub(crate) fn clock(&self, now: Instant) -> Option<Timestamp> {
        (!*self.shared.silent.lock()).then(|| self.shared.clock.now(now))
    }

    pub(crate) fn present(&self) -> Vec<OriginId> {
        self.shared.present.lock().clone()
    }
}

/// Leads whenever this node is elected, until the process ends.
pub(crate) async fn watch_role(core: Arc<Inner>, consensus: Consensus) {
    let mut role = consensus.role();
    loop {
        let leads = role.borrow_and_update().leads();
        if let Some(term) = leads {
            lead(&core, &consensus, term).await;
            continue_if_over(&mut role, term).await;
        } else if role.changed().await.is_err() {
            return;
        }
    }
}

/// After a term in office: nothing more is done in it.
async fn continue_if_over(role: &mut watch::Receiver<Role>, term: u64) {
    while role.borrow_and_update().leads() == Some(term) {
        if role.changed().await.is_err() {
            return;
        }
    }
}

async fn lead(core: &Arc<Inner>, consensus: &Consensus, term: u64) {
    let mut role = consensus.role();
    // The first entry of the term is applied when a read index is: now all of the log is known.
    loop {
        if role.borrow_and_update().leads() != Some(term) {
            return;
        }
        if let Ok(index) = consensus.read_index().await
            && consensus
                .wait_applied(index, Duration::from_secs(1))
                .await
                .is_ok()
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if role.borrow_and_update().leads() != Some(term) {
        return;
    }
    for told in consensus.clocks_of_voters(term) {
        core.clocks
            .heard_at(told.node, told.clock.into(), told.heard);
    }
    let members = consensus.membership().members;
    core.clocks.retain(|node| members.contains_key(&node));
    let last = consensus.with_machine(|machine| machine.now());
    let now = crate::now();
    let (clock, start) = core
        .clocks
        .take_office(last, core.settings.max_downtime, now);
    match start {
        Start::Warm => info!(term, at = clock.now(now).0, "leading"),
        // The log says no time yet: nothing is set that stood differently.
        Start::Cold { .. } if last == Timestamp::default() => {
            info!(term, "leading a cluster without a past");
        }
        Start::Cold { step_ms } => warn!(
            term,
            at = clock.now(now).0,
            step_ms,
            "leading after a cold start: time was set from wall clocks"
        ),
    }
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let shared = Arc::new(Shared {
        clock,
        silent: Mutex::new(false),
        present: Mutex::default(),
    });
    *core.office.lock() = Some(Office {
        term,
        events: sender,
        shared: shared.clone(),
    });
    core.forward_wake.notify_one();
    TermOfOffice::new(core.clone(), consensus.clone(), term, shared, last, now)
        .serve(events, role)
        .await;
    *core.office.lock() = None;
    info!(term, "leads no more");
}
