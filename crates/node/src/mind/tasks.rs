use std::{io, sync::Arc};

use tracing::{info, warn};
use trellis_consensus::{blocking, fail_stop};
use trellis_types::{OriginId, Run};

use super::{FENCE_LOOK, IDLE_LOOK_INTERVAL, Inner, LOOK_INTERVAL};
use crate::{CloseReason, origin::Phase};

/// Draws a run whenever there is no origin: at the start, and after every fence.
pub(super) async fn draw_runs(
    core: Arc<Inner>,
    next_run: Arc<dyn Fn() -> io::Result<Run> + Send + Sync>,
) {
    let mut phase = core.phase.subscribe();
    let mut shut = core.shut.subscribe();
    loop {
        let fenced = *phase.borrow_and_update() == Phase::Fenced;
        let open = shut.borrow_and_update().is_none();
        if fenced && open && !core.is_stopping() {
            let next_run = next_run.clone();
            let run = match blocking(move || next_run()).await {
                Ok(run) => run,
                Err(error) => {
                    fail_stop(format_args!("the run counter could not be raised: {error}"));
                    return;
                }
            };
            let origin = OriginId { node: core.me, run };
            info!(%origin, "wants to open its origin");
            core.with_origin(|state| {
                if state.phase() == Phase::Fenced && core.shut.borrow().is_none() {
                    state.opening(origin);
                }
            });
        }
        // The senders live as long as the core.
        tokio::select! {
            changed = phase.changed() => if changed.is_err() { return },
            changed = shut.changed() => if changed.is_err() { return },
        }
    }
}

/// Fences when no leader is heard, and tells clients whose commands have waited too long.
pub(super) async fn look_after(core: Arc<Inner>) {
    let fence_after = core.settings.fence_after();
    // A command that comes in between is looked at long before it is overdue.
    let idle = (core.settings.commit_timeout / 2).clamp(LOOK_INTERVAL, IDLE_LOOK_INTERVAL);
    let mut pause = LOOK_INTERVAL;
    loop {
        // Whatever comes first.
        let _ = tokio::time::timeout(pause, core.look.notified()).await;
        let now = crate::now();
        let heard = *core.heard.lock();
        let mut rest = None;
        let waits = core.with_origin(|origin| {
            let silent =
                heard.is_none_or(|heard| now.saturating_duration_since(heard) > fence_after);
            if silent && matches!(origin.phase(), Phase::Open(_)) {
                warn!("no leader heard for too long: sessions are given up");
                origin.fence(CloseReason::Fenced);
            }
            origin.overdue(now);
            rest = origin.rested(now);
            origin.waits_for_a_leader()
        });
        pause = if waits { LOOK_INTERVAL } else { idle };
        if let Some(heard) = heard {
            // Not later than the moment at which it has to be fenced.
            let left = fence_after.saturating_sub(crate::since(heard));
            pause = pause.min((left + FENCE_LOOK).max(FENCE_LOOK));
        }
        if let Some(rest) = rest {
            pause = pause.min(rest.saturating_duration_since(crate::now()));
        }
    }
}
