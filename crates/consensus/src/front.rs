use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt, future, stream, stream::BoxStream};
use openraft::{
    Raft, SnapshotMeta,
    errors::Fatal,
    raft::{
        AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderRequest,
        VoteRequest, VoteResponse,
    },
};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::timeout};
use tonic::Status;
use trellis_rpc::pb::{self, append_reply::Reply, snapshot_part::Part};
use trellis_types::NodeId;

use crate::{
    Membership, Position, SnapshotFile, SnapshotReceiver, StateStore,
    clocks::Clocks,
    fail_stop,
    raft::{
        Entry, RaftSnapshot, SnapshotTransfer, StateMachine, TypeConfig, blocking, log_id_from,
        log_id_to, vote_from, vote_to,
    },
};

/// Parts of a snapshot that wait for the disk.
const PARTS_AHEAD: usize = 4;

/// Answers Raft's messages, whatever carries them. Cheap to clone.
#[derive(Clone)]
pub struct Front(Arc<Inner>);

struct Inner {
    raft: Raft<TypeConfig, StateMachine>,
    store: Arc<dyn StateStore>,
    clocks: Arc<Clocks>,
    running: AtomicBool,
    snapshot_stall: Duration,
    /// One snapshot at a time.
    receiving: tokio::sync::Mutex<()>,
}

impl Front {
    pub(crate) fn new(
        raft: Raft<TypeConfig, StateMachine>,
        store: Arc<dyn StateStore>,
        clocks: Arc<Clocks>,
        snapshot_stall: Duration,
    ) -> Self {
        Self(Arc::new(Inner {
            raft,
            store,
            clocks,
            running: AtomicBool::new(false),
            snapshot_stall,
            receiving: tokio::sync::Mutex::default(),
        }))
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
    /// # Errors
    ///
    /// UNAVAILABLE if this node does not take part in Raft; INVALID_ARGUMENT for nonsense.
    pub async fn heartbeat(&self, request: pb::AppendRequest) -> Result<pb::AppendReply, Status> {
        let raft = self.taking_part()?;
        let request = append_request(request)?;
        let previous = request.prev_log_id;
        let last = request
            .entries
            .last()
            .map(|entry| entry.position().into())
            .or(previous);
        let response = raft
            .append_entries(request)
            .await
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

    /// A snapshot in parts; done when it is installed, or when the leader turns out to be none.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE if this node does not take part in Raft or another snapshot is on its way;
    /// DATA_LOSS if it arrived damaged; INVALID_ARGUMENT for nonsense.
    pub async fn snapshot(
        &self,
        parts: impl Stream<Item = Result<pb::SnapshotPart, Status>> + Send,
    ) -> Result<pb::SnapshotReply, Status> {
        let raft = self.taking_part()?;
        let _only = self
            .0
            .receiving
            .try_lock()
            .map_err(|_| Status::unavailable("another snapshot is on its way"))?;
        let mut parts = std::pin::pin!(parts);
        let stall = self.0.snapshot_stall;
        let Some(Part::Manifest(manifest)) = next_part(&mut parts, stall).await? else {
            return Err(Status::invalid_argument(
                "a snapshot starts with its manifest",
            ));
        };
        let vote = vote_from(manifest.vote.ok_or_else(|| missing("vote"))?);
        let known = {
            use openraft::async_runtime::watch::WatchReceiver;
            raft.server_metrics().borrow_watched().vote
        };
        if vote < known {
            return Ok(pb::SnapshotReply {
                vote: Some(vote_to(known)),
            });
        }
        let position = Position::from(manifest.position.ok_or_else(|| missing("position"))?);
        let membership =
            Membership::from(manifest.membership.ok_or_else(|| missing("membership"))?);
        let last_membership = membership.to_stored().map_err(Status::invalid_argument)?;
        tracing::info!(%position, files = manifest.files.len(), "a snapshot arrives");

        let store = self.0.store.clone();
        let receiver = blocking(move || store.receive_snapshot())
            .await
            .map_err(disk)?;
        let receiver = receive(receiver, manifest.files, &mut parts, stall).await?;

        let snapshot = RaftSnapshot {
            meta: SnapshotMeta {
                last_log_id: Some(position.into()),
                last_membership,
            },
            snapshot: SnapshotTransfer::Received(receiver),
        };
        let response = raft
            .install_full_snapshot(vote, snapshot)
            .await
            .map_err(stopped)?;
        Ok(pb::SnapshotReply {
            vote: Some(vote_to(response.vote)),
        })
    }
}

async fn next_part(
    parts: &mut (impl Stream<Item = Result<pb::SnapshotPart, Status>> + Unpin),
    stall: Duration,
) -> Result<Option<Part>, Status> {
    let part = timeout(stall, parts.next())
        .await
        .map_err(|_| Status::deadline_exceeded("the snapshot has stalled"))?;
    Ok(part.transpose()?.and_then(|part| part.part))
}

/// Hands the chunks to a thread that may block, and gives the finished receiver back.
async fn receive(
    mut receiver: Box<dyn SnapshotReceiver>,
    files: Vec<pb::SnapshotFile>,
    parts: &mut (impl Stream<Item = Result<pb::SnapshotPart, Status>> + Unpin),
    stall: Duration,
) -> Result<Box<dyn SnapshotReceiver>, Status> {
    let (sender, mut chunks) = mpsc::channel::<pb::SnapshotChunk>(PARTS_AHEAD);
    let writer = tokio::task::spawn_blocking(move || {
        let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        for (number, file) in files.into_iter().enumerate() {
            receiver.begin(&SnapshotFile {
                name: file.name,
                len: file.len,
                crc32c: file.crc,
            })?;
            let mut offset = 0;
            while offset < file.len {
                let chunk = chunks
                    .blocking_recv()
                    .ok_or_else(|| damaged("it ends too early"))?;
                if chunk.file as usize != number || chunk.offset != offset || chunk.data.is_empty()
                {
                    return Err(damaged("a chunk is missing"));
                }
                if crc32c::crc32c(&chunk.data) != chunk.crc {
                    return Err(damaged("a chunk has a wrong checksum"));
                }
                offset += chunk.data.len() as u64;
                if offset > file.len {
                    return Err(damaged("a file is longer than announced"));
                }
                receiver.write(&chunk.data)?;
            }
        }
        receiver.finish()?;
        Ok(receiver)
    });
    loop {
        match next_part(parts, stall).await? {
            None => break,
            Some(Part::Manifest(_)) => return Err(Status::invalid_argument("a second manifest")),
            Some(Part::Chunk(chunk)) => {
                // A writer that is gone has the reason.
                if sender.send(chunk).await.is_err() {
                    break;
                }
            }
        }
    }
    drop(sender);
    writer
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(disk)
}

/// Bad data is the sender's fault; every other error is a failed disk.
fn disk(error: io::Error) -> Status {
    if error.kind() == io::ErrorKind::InvalidData {
        tracing::warn!(%error, "a snapshot is refused");
        return Status::data_loss(error.to_string());
    }
    fail_stop(format_args!("receiving a snapshot: {error}"));
    Status::internal(error.to_string())
}

fn append_request(request: pb::AppendRequest) -> Result<AppendEntriesRequest<TypeConfig>, Status> {
    let entries: Result<_, _> = request.entries.into_iter().map(Entry::decode).collect();
    Ok(AppendEntriesRequest {
        vote: vote_from(request.vote.ok_or_else(|| missing("vote"))?),
        prev_log_id: log_id_from(request.previous),
        entries: entries
            .map_err(|error: crate::raft::BadEntry| Status::invalid_argument(error.to_string()))?,
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

fn missing(what: &str) -> Status {
    Status::invalid_argument(format!("a request without {what}"))
}

fn stopped(error: impl Into<AnyStop>) -> Status {
    Status::unavailable(format!("raft has stopped: {}", error.into().0))
}

/// openraft wraps the same end of its life in several types.
struct AnyStop(String);

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
