use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt, future, stream, stream::BoxStream};
use openraft::{
    Raft,
    errors::Fatal,
    raft::{
        AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderRequest,
        VoteRequest, VoteResponse,
    },
};
use parking_lot::Mutex;
use tonic::Status;
use trellis_rpc::pb::{self, append_reply::Reply};
use trellis_types::NodeId;

use crate::{
    Position, StateStore,
    clocks::Clocks,
    raft::{Entry, LogId, StateMachine, TypeConfig, log_id_from, log_id_to, vote_from, vote_to},
    reception::{self, Broken},
};

/// Answers Raft's messages, whatever carries them. Cheap to clone.
#[derive(Clone)]
pub struct Front(Arc<Inner>);

struct Inner {
    me: NodeId,
    raft: Raft<TypeConfig, StateMachine>,
    store: Arc<dyn StateStore>,
    clocks: Arc<Clocks>,
    running: AtomicBool,
    /// See [`Consensus::distrust_state`](crate::Consensus::distrust_state).
    distrusted: Arc<AtomicBool>,
    snapshot_stall: Duration,
    /// One snapshot at a time; what an earlier transfer has brought before it broke.
    receiving: Arc<tokio::sync::Mutex<Option<Broken>>>,
}

impl Front {
    pub(crate) fn new(
        me: NodeId,
        raft: Raft<TypeConfig, StateMachine>,
        store: Arc<dyn StateStore>,
        clocks: Arc<Clocks>,
        distrusted: Arc<AtomicBool>,
        snapshot_stall: Duration,
    ) -> Self {
        Self(Arc::new(Inner {
            me,
            raft,
            store,
            clocks,
            running: AtomicBool::new(false),
            distrusted,
            snapshot_stall,
            receiving: Arc::default(),
        }))
    }

    /// Whether both answer for the same run of a node.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn set_running(&self, running: bool) {
        self.0.running.store(running, Ordering::Release);
    }

    /// Before a node has heard that it may, it takes no part: neither votes nor appends.
    fn taking_part(&self) -> Result<&Raft<TypeConfig, StateMachine>, Status> {
        match self.0.running.load(Ordering::Acquire) {
            true => Ok(&self.0.raft),
            false => Err(Status::unavailable("this node does not take part in Raft")),
        }
    }

    /// Log entries, pipelined.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE if this node does not take part in Raft; INVALID_ARGUMENT in the stream for what
    /// is no request.
    pub fn append(
        &self,
        requests: impl Stream<Item = Result<pb::AppendRequest, Status>> + Send + 'static,
    ) -> Result<BoxStream<'static, Result<pb::AppendReply, Status>>, Status> {
        let raft = self.taking_part()?;
        // openraft's stream carries no errors inwards: the first one ends it, and is told behind
        // the replies to what came before.
        let broken = Arc::new(Mutex::new(None));
        let slot = broken.clone();
        let requests = requests
            .map(|request| request.and_then(append_request))
            .scan((), move |(), request| {
                future::ready(match request {
                    Ok(request) => Some(request),
                    Err(status) => {
                        *slot.lock() = Some(status);
                        None
                    }
                })
            });
        let replies = raft.stream_append(requests).map(|result| match result {
            Ok(result) => Ok(append_reply(result)),
            Err(fatal) => Err(stopped(fatal)),
        });
        let tail = stream::once(async move { broken.lock().take() })
            .filter_map(|status| future::ready(status.map(Err)));
        Ok(replies.chain(tail).boxed())
    }

    /// A heartbeat, or any single append.
    ///
    /// openraft answers it behind every write that is outstanding. A heartbeat asks whether this
    /// process still follows, and a busy disk is no answer to that: a few huge entries would cost a
    /// leader its quorum while everybody hears it. So one that carries nothing is answered as soon as
    /// Raft has taken it in. That promises nothing of the disk: `matched` is what the leader has
    /// learned before from an append.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE if this node does not take part in Raft; INVALID_ARGUMENT for nonsense.
    pub async fn heartbeat(&self, request: pb::AppendRequest) -> Result<pb::AppendReply, Status> {
        let raft = self.taking_part()?;
        let request = append_request(request)?;
        let (vote, previous) = (request.vote, request.prev_log_id);
        let carries_nothing = request.entries.is_empty();
        let last = request
            .entries
            .last()
            .map(|entry| entry.position().into())
            .or(previous);
        let answered = raft.append_entries(request);
        let followed = raft.with_raft_state(move |state| {
            // Handled behind the heartbeat itself. What has another answer gets it at once.
            let holds = |previous: LogId| state.log_ids.get(previous.index) == Some(previous);
            *state.vote_ref() == vote && previous.is_none_or(holds)
        });
        let mut answered = std::pin::pin!(answered);
        let early = tokio::select! {
            // Asked first, so that its message is the first in the queue.
            biased;
            response = &mut answered => Some(response),
            followed = followed, if carries_nothing => match followed.map_err(stopped)? {
                true => return Ok(append_reply(Ok(previous))),
                false => None,
            },
        };
        let response = match early {
            Some(response) => response,
            None => answered.await,
        };
        let response = response
            .map_err(|error| Status::unavailable(format!("raft does not answer: {error}")))?;
        if response.is_conflict() && previous.is_none() {
            return Err(Status::internal("nothing cannot conflict"));
        }
        Ok(append_reply(response.into_stream_result(previous, last)))
    }

    /// Asks for this node's vote.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE if this node does not take part in Raft; INVALID_ARGUMENT for nonsense.
    pub async fn vote(&self, request: pb::VoteRequest) -> Result<pb::VoteReply, Status> {
        let raft = self.taking_part()?;
        let response = raft.vote(vote_request(request)?).await;
        Ok(self.vote_reply(response.map_err(stopped)?))
    }

    /// Asks whether this node would vote so.
    ///
    /// # Errors
    ///
    /// As [`Self::vote`].
    pub async fn pre_vote(&self, request: pb::VoteRequest) -> Result<pb::VoteReply, Status> {
        let raft = self.taking_part()?;
        let response = raft.pre_vote(vote_request(request)?).await;
        Ok(self.vote_reply(response.map_err(stopped)?))
    }

    fn vote_reply(&self, response: VoteResponse<TypeConfig>) -> pb::VoteReply {
        pb::VoteReply {
            vote: Some(vote_to(response.vote)),
            granted: response.vote_granted,
            last_log: log_id_to(response.last_log_id),
            clock: self.0.clocks.tell(),
        }
    }

    /// The leader hands over.
    ///
    /// # Errors
    ///
    /// As [`Self::vote`].
    pub async fn transfer_leader(
        &self,
        request: pb::TransferRequest,
    ) -> Result<pb::TransferReply, Status> {
        let raft = self.taking_part()?;
        // The leader may not know yet; openraft would stand for election whether it may or not.
        if NodeId(request.to) == self.0.me && self.0.distrusted.load(Ordering::Relaxed) {
            return Ok(pb::TransferReply {
                refused: Some("this node does not trust its own state".to_owned()),
            });
        }
        let request = TransferLeaderRequest::new(
            vote_from(request.from_leader.ok_or_else(|| missing("vote"))?),
            NodeId(request.to),
            log_id_from(request.last_log),
        );
        let response = raft
            .handle_transfer_leader(request)
            .await
            .map_err(stopped)?;
        Ok(pb::TransferReply {
            refused: response.err().map(|refused| refused.to_string()),
        })
    }

    /// A snapshot in parts. The first reply says from where the sender is to send, the last one is
    /// this node's vote: the snapshot is installed, or the sender leads no more. A transfer that
    /// breaks is taken up again by the next one of the same snapshot.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE if this node does not take part in Raft or another snapshot is on its way;
    /// in the stream DATA_LOSS if it arrived damaged, INVALID_ARGUMENT for nonsense.
    pub fn snapshot(
        &self,
        parts: impl Stream<Item = Result<pb::SnapshotPart, Status>> + Send + 'static,
    ) -> Result<BoxStream<'static, Result<pb::SnapshotReply, Status>>, Status> {
        let raft = self.taking_part()?;
        let begun = self.0.receiving.clone().try_lock_owned();
        let broken = begun.map_err(|_| Status::unavailable("another snapshot is on its way"))?;
        Ok(reception::receive(
            raft.clone(),
            self.0.store.clone(),
            broken,
            parts.boxed(),
            self.0.snapshot_stall,
        ))
    }
}

fn append_request(request: pb::AppendRequest) -> Result<AppendEntriesRequest<TypeConfig>, Status> {
    let entries: Result<Vec<Entry>, _> = request.entries.into_iter().map(Entry::decode).collect();
    let entries = entries
        .map_err(|error: crate::raft::BadEntry| Status::invalid_argument(error.to_string()))?;
    let prev_log_id = log_id_from(request.previous);
    // openraft looks at this in debug builds only. With a gap, an old tail of this log would stay in
    // the middle of the leader's entries and count as theirs.
    let first = prev_log_id.map_or(0, |previous| previous.index.saturating_add(1));
    let indexes = entries.iter().map(|entry| entry.position().index);
    if let Some((found, index)) = indexes.zip(first..).find(|(found, index)| found != index) {
        return Err(Status::invalid_argument(format!(
            "entry {found} stands where entry {index} belongs"
        )));
    }
    Ok(AppendEntriesRequest {
        vote: vote_from(request.vote.ok_or_else(|| missing("vote"))?),
        prev_log_id,
        entries,
        leader_commit: log_id_from(request.committed),
    })
}

fn append_reply(result: StreamAppendResult<TypeConfig>) -> pb::AppendReply {
    let reply = match result {
        Ok(matched) => Reply::Accepted(pb::append_reply::Accepted {
            matched: log_id_to(matched),
        }),
        Err(StreamAppendError::Conflict(at)) => Reply::Conflict(Position::from(at).into()),
        Err(StreamAppendError::HigherVote(vote)) => Reply::HigherVote(vote_to(vote)),
    };
    pb::AppendReply { reply: Some(reply) }
}

fn vote_request(request: pb::VoteRequest) -> Result<VoteRequest<TypeConfig>, Status> {
    let vote = vote_from(request.vote.ok_or_else(|| missing("vote"))?);
    let mut decoded = VoteRequest::new(vote, log_id_from(request.last_log));
    decoded.leadership_transfer = request.leadership_transfer;
    Ok(decoded)
}

pub(crate) fn missing(what: &str) -> Status {
    Status::invalid_argument(format!("a request without {what}"))
}

pub(crate) fn stopped(error: impl Into<AnyStop>) -> Status {
    Status::unavailable(format!("raft has stopped: {}", error.into().0))
}

/// openraft wraps the same end of its life in several types.
pub(crate) struct AnyStop(String);

impl From<Fatal<TypeConfig>> for AnyStop {
    fn from(error: Fatal<TypeConfig>) -> Self {
        Self(error.to_string())
    }
}

impl From<openraft::errors::RaftError<TypeConfig>> for AnyStop {
    fn from(error: openraft::errors::RaftError<TypeConfig>) -> Self {
        Self(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use openraft::{EntryPayload, entry::RaftEntry, vote::RaftLeaderId};

    use super::*;
    use crate::raft::LeaderId;

    /// Found on paper: a leader that reads while its log is purged could send entries with a gap before
    /// them. A follower with an old tail would have kept that tail in the gap and applied it.
    #[test]
    fn entries_with_a_gap_are_refused() {
        let at = |index| LogId::new(LeaderId::new(1, NodeId(1)).to_committed(), index);
        let entry = |index| {
            let mut entry = Entry::new(at(index), EntryPayload::Blank);
            entry.seal();
            entry.to_bytes()
        };
        let request = |previous: u64, indexes: &[u64]| pb::AppendRequest {
            vote: Some(pb::Vote {
                term: 1,
                node: 1,
                committed: true,
            }),
            previous: log_id_to(Some(at(previous))),
            committed: None,
            entries: indexes.iter().copied().map(entry).collect(),
        };
        assert!(append_request(request(4, &[5, 6, 7])).is_ok());
        assert!(append_request(request(4, &[])).is_ok());
        for gap in [&[7, 8][..], &[5, 7], &[4, 5], &[6, 5]] {
            let refused = append_request(request(4, gap)).expect_err("a gap");
            assert!(refused.message().contains("belongs"), "{refused}");
        }
    }
}
