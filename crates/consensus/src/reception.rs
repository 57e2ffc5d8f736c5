use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream, stream::BoxStream};
use openraft::{Raft, SnapshotMeta, async_runtime::watch::WatchReceiver};
use tokio::{
    sync::{OwnedMutexGuard, mpsc},
    task::JoinHandle,
    time::timeout,
};
use tonic::Status;
use trellis_rpc::pb::{self, snapshot_part::Part, snapshot_reply::Reply};

use crate::{
    Membership, Position, SnapshotFile, SnapshotReceiver, StateStore, blocking, fail_stop,
    front::{missing, stopped},
    raft::{RaftSnapshot, SnapshotTransfer, StateMachine, TypeConfig, VoteOf, vote_from, vote_to},
};

/// Chunks that wait for the disk.
const CHUNKS_AHEAD: usize = 4;

type Parts = BoxStream<'static, Result<pb::SnapshotPart, Status>>;
type RaftHandle = Raft<TypeConfig, StateMachine>;
type Meta = SnapshotMeta<crate::raft::LeaderId, trellis_types::NodeId, crate::raft::Contact>;

/// What a transfer had brought when it broke.
pub(crate) struct Broken {
    manifest: Manifest,
    receiver: Box<dyn SnapshotReceiver>,
    at: At,
}

/// The place of broken transfers; holding it is the right to receive.
type Slot = OwnedMutexGuard<Option<Broken>>;

/// What tells one snapshot from another.
#[derive(PartialEq)]
struct Manifest {
    position: Position,
    files: Vec<pb::SnapshotFile>,
}

/// How far the files are written.
#[derive(Clone, Copy, Default)]
struct At {
    file: usize,
    offset: u64,
    /// Whether the receiver knows of the file.
    begun: bool,
}

/// Takes in one snapshot: manifest, chunks, installation. See [`Front::snapshot`].
///
/// [`Front::snapshot`]: crate::Front::snapshot
pub(crate) fn receive(
    raft: RaftHandle,
    store: Arc<dyn StateStore>,
    slot: Slot,
    parts: Parts,
    stall: Duration,
) -> BoxStream<'static, Result<pb::SnapshotReply, Status>> {
    let step = Step::Begin {
        raft,
        store,
        slot,
        parts,
        stall,
    };
    stream::unfold(Some(step), |step| async {
        match step?.take().await {
            Ok((reply, next)) => Some((Ok(pb::SnapshotReply { reply: Some(reply) }), next)),
            Err(status) => Some((Err(status), None)),
        }
    })
    .boxed()
}

enum Step {
    Begin {
        raft: RaftHandle,
        store: Arc<dyn StateStore>,
        slot: Slot,
        parts: Parts,
        stall: Duration,
    },
    Receive(Box<Reception>),
}

/// A transfer under way.
struct Reception {
    raft: RaftHandle,
    vote: VoteOf,
    meta: Meta,
    parts: Parts,
    stall: Duration,
    chunks: mpsc::Sender<pb::SnapshotChunk>,
    writer: JoinHandle<io::Result<(Box<dyn SnapshotReceiver>, Slot)>>,
}

impl Step {
    async fn take(self) -> Result<(Reply, Option<Self>), Status> {
        match self {
            Self::Begin {
                raft,
                store,
                slot,
                parts,
                stall,
            } => begin(raft, store, slot, parts, stall).await,
            Self::Receive(reception) => Ok((Reply::Vote(reception.run().await?), None)),
        }
    }
}

async fn begin(
    raft: RaftHandle,
    store: Arc<dyn StateStore>,
    mut slot: Slot,
    mut parts: Parts,
    stall: Duration,
) -> Result<(Reply, Option<Step>), Status> {
    let Some(Part::Manifest(manifest)) = next_part(&mut parts, stall).await? else {
        return Err(Status::invalid_argument(
            "a snapshot starts with its manifest",
        ));
    };
    let vote = vote_from(manifest.vote.ok_or_else(|| missing("vote"))?);
    // Spares a former leader and this disk the whole transfer; openraft looks again at its end.
    let known = raft.server_metrics().borrow_watched().vote;
    if vote < known {
        return Ok((Reply::Vote(vote_to(known)), None));
    }
    let position = Position::from(manifest.position.ok_or_else(|| missing("position"))?);
    let membership = Membership::from(manifest.membership.ok_or_else(|| missing("membership"))?);
    let meta = SnapshotMeta {
        last_log_id: Some(position.into()),
        last_membership: membership.to_stored().map_err(Status::invalid_argument)?,
    };
    let manifest = Manifest {
        position,
        files: manifest.files,
    };

    let (receiver, at) = match slot.take() {
        Some(broken) if broken.manifest == manifest => (broken.receiver, broken.at),
        _ => {
            let receiver = blocking(move || store.receive_snapshot())
                .await
                .map_err(disk)?;
            (receiver, At::default())
        }
    };
    tracing::info!(%position, from_file = at.file, from_offset = at.offset, "a snapshot arrives");
    let from = pb::SnapshotFrom {
        file: u32::try_from(at.file).unwrap_or(u32::MAX),
        offset: at.offset,
    };
    let (chunks, incoming) = mpsc::channel(CHUNKS_AHEAD);
    let transfer = Broken {
        manifest,
        receiver,
        at,
    };
    let writer = tokio::spawn(write(transfer, incoming, slot));
    let reception = Reception {
        raft,
        vote,
        meta,
        parts,
        stall,
        chunks,
        writer,
    };
    Ok((Reply::From(from), Some(Step::Receive(Box::new(reception)))))
}

impl Reception {
    async fn run(mut self) -> Result<pb::Vote, Status> {
        let mut lost = None;
        loop {
            match next_part(&mut self.parts, self.stall).await {
                Ok(Some(Part::Chunk(chunk))) => {
                    // A writer that is gone has the reason.
                    if self.chunks.send(chunk).await.is_err() {
                        break;
                    }
                }
                Ok(Some(Part::Manifest(_))) => {
                    return Err(Status::invalid_argument("a second manifest"));
                }
                Ok(None) => break,
                Err(status) => {
                    lost = Some(status);
                    break;
                }
            }
        }
        drop(self.chunks);
        let written = self
            .writer
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        let (receiver, _slot) = match (written, lost) {
            (Ok(written), _) => written,
            // The writer has kept what it got.
            (Err(error), Some(lost)) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(lost);
            }
            (Err(error), _) => return Err(disk(error)),
        };
        let end = self.meta.last_log_id.map_or(0, |last| last.index);
        let installed = Arc::new(AtomicBool::new(false));
        let snapshot = RaftSnapshot {
            meta: self.meta,
            snapshot: SnapshotTransfer::Received {
                snapshot: receiver,
                installed: Arc::clone(&installed),
            },
        };
        let answer = self.raft.install_full_snapshot(self.vote, snapshot).await;
        let answer = answer.map_err(stopped)?;
        if !installed.load(Ordering::Acquire) && answer.vote <= self.vote {
            until_written(&self.raft, end, self.stall).await?;
        }
        Ok(vote_to(answer.vote))
    }
}

/// Waits until this node's log is on its disk up to `index`, which it has committed.
///
/// The leader takes the answer to a snapshot for "all that on disk". A follower whose disk hangs has
/// committed what it was sent, has none of it there yet, and needs no snapshot of it.
async fn until_written(raft: &RaftHandle, index: u64, limit: Duration) -> Result<(), Status> {
    let mut progress = raft.watch_log_progress();
    // Nothing was written since the start: then all of the log is on disk.
    let written = progress.wait_until(|point| {
        let last = point.as_ref().and_then(|point| point.last_log_id);
        last.is_none_or(|last| last.index >= index)
    });
    let late = |_| Status::unavailable("what the snapshot holds is not on this disk yet");
    timeout(limit, written)
        .await
        .map_err(late)?
        .map_err(|_| Status::unavailable("this node stops"))?;
    Ok(())
}

async fn next_part(parts: &mut Parts, stall: Duration) -> Result<Option<Part>, Status> {
    let part = timeout(stall, parts.next())
        .await
        .map_err(|_| Status::deadline_exceeded("the snapshot has stalled"))?;
    Ok(part.transpose()?.and_then(|part| part.part))
}

/// Writes the chunks where blocking is allowed. If they end too early what has come is kept for the
/// next try; what came damaged is not.
async fn write(
    transfer: Broken,
    mut chunks: mpsc::Receiver<pb::SnapshotChunk>,
    mut slot: Slot,
) -> io::Result<(Box<dyn SnapshotReceiver>, Slot)> {
    let Broken {
        manifest,
        mut receiver,
        mut at,
    } = transfer;
    while let Some(file) = manifest.files.get(at.file) {
        if !at.begun {
            let (name, len, crc32c) = (file.name.clone(), file.len, file.crc);
            receiver = blocking(move || {
                receiver.begin(&SnapshotFile { name, len, crc32c })?;
                Ok(receiver)
            })
            .await?;
            at.begun = true;
        }
        while at.offset < file.len {
            let Some(chunk) = chunks.recv().await else {
                *slot = Some(Broken {
                    manifest,
                    receiver,
                    at,
                });
                return Err(damaged("it ended too early"));
            };
            if (chunk.file as usize, chunk.offset) != (at.file, at.offset) {
                return Err(damaged("a chunk is missing"));
            }
            if chunk.data.is_empty() || chunk.data.len() as u64 > file.len - at.offset {
                return Err(damaged("a file has another length than announced"));
            }
            at.offset += chunk.data.len() as u64;
            receiver = blocking(move || {
                if crc32c::crc32c(&chunk.data) != chunk.crc {
                    return Err(damaged("a chunk has a wrong checksum"));
                }
                receiver.write(&chunk.data)?;
                Ok(receiver)
            })
            .await?;
        }
        at = At {
            file: at.file + 1,
            ..At::default()
        };
    }
    let receiver = blocking(move || {
        receiver.finish()?;
        Ok(receiver)
    })
    .await?;
    Ok((receiver, slot))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
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
