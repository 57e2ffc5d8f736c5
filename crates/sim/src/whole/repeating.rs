use std::{cell::RefCell, sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream, stream::BoxStream};
use rand::{Rng, SeedableRng, rngs::StdRng};
use trellis_consensus::{Answered, Member, Transport};
use trellis_rpc::pb;

thread_local! {
    static CHANCE: RefCell<Option<(StdRng, u32)>> = const { RefCell::new(None) };
}

/// From now on, out of a thousand messages of Raft, so many are sent a second time, up to three
/// seconds later: behind newer ones, in a later term, to a process that was started meanwhile. TCP
/// does not do that by itself, but broken connections and tries of one's own do.
pub(super) fn repeat(seed: u64, permille: u32) {
    CHANCE.set(Some((
        StdRng::seed_from_u64(seed ^ 0x7265_7065_6174),
        permille,
    )));
}

/// How late this message comes a second time, if it does.
fn again() -> Option<Duration> {
    CHANCE.with_borrow_mut(|chance| {
        let (random, permille) = chance.as_mut()?;
        let repeats = random.random_range(0..1_000) < *permille;
        repeats.then(|| Duration::from_millis(random.random_range(1..3_000)))
    })
}

/// Sends some messages twice.
pub(super) struct Repeating(Arc<dyn Transport>);

impl Repeating {
    pub(super) fn between(transport: Arc<dyn Transport>) -> Arc<dyn Transport> {
        Arc::new(Self(transport))
    }
}

impl Transport for Repeating {
    fn append(
        &self,
        to: &Member,
        requests: BoxStream<'static, pb::AppendRequest>,
    ) -> BoxFuture<'static, Answered<BoxStream<'static, Answered<pb::AppendReply>>>> {
        let (inner, target) = (self.0.clone(), to.clone());
        let requests = requests.inspect(move |request| {
            if let Some(late) = again() {
                let (inner, target, request) = (inner.clone(), target.clone(), request.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    let once = stream::iter([request]).boxed();
                    if let Ok(mut replies) = inner.append(&target, once).await {
                        drop(replies.next().await);
                    }
                });
            }
        });
        self.0.append(to, requests.boxed())
    }

    fn heartbeat(
        &self,
        to: &Member,
        request: pb::AppendRequest,
    ) -> BoxFuture<'static, Answered<pb::AppendReply>> {
        if let Some(late) = again() {
            let (inner, target, request) = (self.0.clone(), to.clone(), request.clone());
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                drop(inner.heartbeat(&target, request).await);
            });
        }
        self.0.heartbeat(to, request)
    }

    fn vote(
        &self,
        to: &Member,
        request: pb::VoteRequest,
    ) -> BoxFuture<'static, Answered<pb::VoteReply>> {
        if let Some(late) = again() {
            let (inner, target) = (self.0.clone(), to.clone());
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                drop(inner.vote(&target, request).await);
            });
        }
        self.0.vote(to, request)
    }

    fn pre_vote(
        &self,
        to: &Member,
        request: pb::VoteRequest,
    ) -> BoxFuture<'static, Answered<pb::VoteReply>> {
        self.0.pre_vote(to, request)
    }

    fn snapshot(
        &self,
        to: &Member,
        parts: BoxStream<'static, pb::SnapshotPart>,
    ) -> BoxFuture<'static, Answered<BoxStream<'static, Answered<pb::SnapshotReply>>>> {
        self.0.snapshot(to, parts)
    }

    fn transfer_leader(
        &self,
        to: &Member,
        request: pb::TransferRequest,
    ) -> BoxFuture<'static, Answered<pb::TransferReply>> {
        self.0.transfer_leader(to, request)
    }
}
