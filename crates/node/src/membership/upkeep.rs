//! What keeps a member in shape: snapshots, purging, room on disk, and handing over when its
//! disk or its apply stands still.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{Fuse, FusedFuture},
};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};
use trellis_consensus::{Consensus, Position, blocking, fail_stop};
use trellis_queue::{LeaderCommand, Setting};
use trellis_types::NodeId;

use super::{
    DiskSpace, DiskWatch, LOG_KEPT_BYTES_MAX, LogView, Progress, SnapshotPolicy, Stage,
    StallVerdict, StallWatch, Standing,
    changes::{self, REPORT_COUNTS_FOR},
};

const PACE: Duration = Duration::from_millis(250);

/// The house-keeper of one node. Never returns.
///
/// The watch for what stands still does not wait for the rest, which writes and proposes: on a disk
/// that hangs, that would hold it up just then.
pub(crate) async fn keep_up(standing: Arc<Standing>, consensus: Consensus) {
    tokio::join!(
        watch_stalls(&standing, &consensus),
        keep_house(Arc::clone(&standing), consensus.clone())
    );
}

async fn watch_stalls(standing: &Standing, consensus: &Consensus) {
    let mut watch = StallWatch::default();
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Handing over takes seconds if it does not work. The looks go on meanwhile: one that comes late
    // says that the process stood still.
    let mut giving_up = pin!(Fuse::terminated());
    loop {
        tokio::select! {
            biased;
            () = &mut giving_up => continue,
            _ = ticks.tick() => {}
        }
        if *standing.stage.borrow() != Stage::Running {
            continue;
        }
        if let Some(what) = look(&mut watch, standing, consensus)
            && giving_up.is_terminated()
        {
            giving_up.set(give_up(what, standing, consensus).fuse());
        }
    }
}

async fn keep_house(standing: Arc<Standing>, consensus: Consensus) {
    let mut keeper = Keeper {
        policy: SnapshotPolicy::default(),
        disks: DiskWatch::default(),
        short: false,
        noted: None,
        standing,
        consensus,
    };
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        *keeper.standing.heartbeat.lock() = crate::now();
        if *keeper.standing.stage.borrow() != Stage::Running {
            continue;
        }
        keeper.leave_office().await;
        keeper.watch_disks().await;
        keeper.save_and_purge().await;
        keeper.note_members().await;
    }
}

/// What stands still, so that this node should not lead.
fn look(
    watch: &mut StallWatch,
    standing: &Standing,
    consensus: &Consensus,
) -> Option<&'static str> {
    let metrics = consensus.metrics();
    let progress = Progress {
        submitted: metrics.last_log.unwrap_or_default(),
        written: consensus.written().map_or(0, |position| position.index),
        committed: consensus.committed(),
        applied: metrics.applied.unwrap_or_default(),
        oldest_write: standing.disk.oldest_write(),
    };
    let what = match watch.look(crate::since(standing.started), progress) {
        StallVerdict::Fatal => {
            fail_stop("a log write has been outstanding for 10 s and counts as failed");
            return None;
        }
        StallVerdict::HandOver(what) => Some(what),
        StallVerdict::Moving => None,
    };
    standing.stalled.store(what.is_some(), Ordering::Relaxed);
    consensus.may_stand(what.is_none() && standing.is_willing());
    what
}

/// Hands leadership over, if this node has it and there is somebody to take it.
async fn give_up(what: &'static str, standing: &Standing, consensus: &Consensus) {
    if consensus.role().borrow().leads().is_none() {
        return;
    }
    let council = changes::council(standing, consensus);
    match council.successor(None) {
        Some(to) => {
            error!(what, %to, "does not move: handing leadership over");
            if let Err(refused) = changes::hand_over(standing, consensus, to).await {
                warn!(%refused, "still leading");
            }
        }
        None => warn!(what, "does not move, and no other voter is present"),
    }
}

struct Keeper {
    policy: SnapshotPolicy,
    disks: DiskWatch,
    /// Whether the own disk is below its mark.
    short: bool,
    /// Where the membership stands that the folder's list was made from.
    noted: Option<Position>,
    standing: Arc<Standing>,
    consensus: Consensus,
}

impl Keeper {
    /// Keeps the list of members in the folder up to date.
    async fn note_members(&mut self) {
        let membership = self.standing.membership();
        if membership.position.is_none() || membership.position == self.noted {
            return;
        }
        self.noted = membership.position;
        let (disk, own) = (self.standing.disk.clone(), self.standing.id());
        let noted = blocking(move || disk.note_members(&membership, own)).await;
        if let Err(error) = noted {
            // The next change is noted again; what matters stands in the log.
            warn!(%error, "the list of members can't be written");
        }
    }

    /// A leader whose state turned out to be wrong hands over as soon as somebody can take over.
    /// Until then it goes on ordering the log: for that its state is not asked.
    async fn leave_office(&mut self) {
        let Self {
            standing,
            consensus,
            ..
        } = self;
        if standing.quarantined.get().is_none() || consensus.role().borrow().leads().is_none() {
            return;
        }
        let council = changes::council(standing, consensus);
        if let Some(to) = council.successor(None)
            && let Err(refused) = changes::hand_over(standing, consensus, to).await
        {
            warn!(%refused, "quarantined, and still leading");
        }
    }

    /// The leader keeps "puts refused" equal to "some present voter is short of disk".
    async fn watch_disks(&mut self) {
        let Self {
            standing,
            consensus,
            disks,
            ..
        } = self;
        let own = standing.table.get(standing.id()).map(|(seen, _)| seen.disk);
        self.short = standing
            .disk_mark
            .is_short(own.unwrap_or_default(), self.short);
        if standing.leads().is_none() {
            return;
        }
        let membership = consensus.membership();
        let present: Vec<(String, DiskSpace)> = membership
            .all_voters()
            .iter()
            .filter_map(|id| {
                let (seen, age) = standing.table.get(*id)?;
                let name = &membership.members.get(id)?.name;
                (age <= REPORT_COUNTS_FOR).then(|| (name.clone(), seen.disk))
            })
            .collect();
        let present = present.iter().map(|(name, space)| (name.as_str(), *space));
        if let Some(short) = disks.look(standing.disk_mark, present) {
            let names: Vec<String> = short.iter().cloned().collect();
            if names.is_empty() {
                info!("room on disk again on every node");
            } else {
                warn!(nodes = names.join(", "), "short of disk: puts are refused");
            }
            *standing.short_of_disk.lock() = names;
        }
        let wanted = disks.refuse();
        let set = consensus.with_machine(|machine| machine.server().puts_refused);
        if wanted != set {
            let command = vec![LeaderCommand::Set(Setting::PutsRefused(wanted))];
            if let Err(error) = changes::propose(standing, command).await {
                warn!(error, wanted, "puts refused: not set yet");
            }
        }
    }

    async fn save_and_purge(&mut self) {
        let view = self.view();
        if self.policy.due(&view) {
            info!(
                applied = view.applied,
                short_of_disk = view.short_of_disk,
                "taking a snapshot"
            );
            self.consensus.snapshot().await;
            if view.short_of_disk {
                let disk = self.standing.disk.clone();
                tokio::spawn(async move {
                    if let Err(error) = blocking(move || disk.compact()).await {
                        warn!(%error, "compaction failed");
                    }
                });
            }
        }
        if let Some(upto) = self.policy.purge_to(&view) {
            info!(upto, "purging the log behind the snapshot");
            self.consensus.purge(upto).await;
        }
    }

    fn view(&self) -> LogView {
        let Self {
            standing,
            consensus,
            short,
            ..
        } = self;
        let metrics = consensus.metrics();
        let membership = consensus.membership();
        // The leader knows what each has; others know it from the leader's table.
        let living = |id: &&NodeId| {
            let age = standing.table.get(**id).map(|(_, age)| age);
            **id != standing.id() && age.is_some_and(|age| age <= REPORT_COUNTS_FOR)
        };
        let matched = membership.members.keys().filter(living).map(|id| {
            let peer = metrics.peers.iter().find(|peer| peer.node == *id);
            let matched = peer.and_then(|peer| peer.matched);
            matched.unwrap_or_else(|| standing.table.known(*id).flushed)
        });
        let snapshot = metrics.snapshot.map(|position| position.index);
        LogView {
            now: crate::since(standing.started),
            grown: standing.disk.log_bytes_after(snapshot),
            keeping: standing.disk.log_index_keeping(LOG_KEPT_BYTES_MAX),
            state: standing.disk.state_bytes(),
            applied: metrics.applied.unwrap_or_default(),
            snapshot: snapshot.unwrap_or_default(),
            matched: matched.min(),
            short_of_disk: *short,
        }
    }
}
