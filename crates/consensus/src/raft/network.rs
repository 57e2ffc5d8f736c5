use std::{
    collections::VecDeque,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use openraft::{
    OptionalSend, RPCTypes, RaftNetworkFactory, RaftNetworkV2,
    base::{BoxFuture, BoxStream},
    errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable},
    network::RPCOption,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError,
        StreamAppendResult, TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse,
        VoteRequest, VoteResponse,
    },
};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use trellis_rpc::pb::{
    self, append_reply::Reply, snapshot_part::Part, snapshot_reply::Reply as SnapshotReply,
};
use trellis_types::NodeId;

use super::{
    Addresses, Contact, LogId, SnapshotTransfer, TypeConfig, VoteOf, convert, log_id_to,
    state_machine::{CHUNK_BYTES, RaftSnapshot},
    vote_to,
};
use crate::{
    Answered, ConsensusSettings, Member, Snapshot, SnapshotFile, Transport, TransportError,
    acks::Acks, blocking, clocks::Clocks, fail_stop,
};

type Rpc<T> = Result<T, RPCError<TypeConfig>>;

/// Parts of a snapshot that are read ahead of the connection.
const PARTS_AHEAD: usize = 4;

/// Makes the connections that openraft asks for.
pub(crate) struct Network {
    pub(crate) me: NodeId,
    pub(crate) settings: ConsensusSettings,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) clocks: Arc<Clocks>,
    pub(crate) acks: Arc<Acks>,
    pub(crate) addresses: Addresses,
    /// The state of this node must not be given to anybody.
    pub(crate) distrusted: Arc<AtomicBool>,
}

impl Network {
    fn connection(&self, target: NodeId, contact: &Contact, heartbeats: bool) -> Connection {
        Connection {
            me: self.me,
            target,
            contact: contact.clone(),
            addresses: self.addresses.clone(),
            heartbeats,
            settings: self.settings,
            transport: self.transport.clone(),
            clocks: self.clocks.clone(),
            acks: self.acks.clone(),
            distrusted: self.distrusted.clone(),
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Connection;

    async fn new_client(&mut self, target: NodeId, contact: &Contact) -> Connection {
        self.connection(target, contact, false)
    }

    async fn new_heartbeat_client(&mut self, target: NodeId, contact: &Contact) -> Connection {
        self.connection(target, contact, true)
    }

    async fn new_snapshot_client(&mut self, target: NodeId, contact: &Contact) -> Connection {
        self.connection(target, contact, false)
    }
}

/// Talks to one member. The transport keeps the kinds of messages apart.
pub(crate) struct Connection {
    me: NodeId,
    target: NodeId,
    /// What openraft knew of it when the connection was made.
    contact: Contact,
    addresses: Addresses,
    /// Whether its appends are heartbeats: one request, one reply.
    heartbeats: bool,
    settings: ConsensusSettings,
    transport: Arc<dyn Transport>,
    clocks: Arc<Clocks>,
    acks: Arc<Acks>,
    distrusted: Arc<AtomicBool>,
}

impl Connection {
    /// Whom to connect to now: a member may have moved since the connection was made.
    fn member(&self) -> Member {
        self.addresses.of(self.target, &self.contact)
    }

    /// Waits for an answer, but not for ever.
    async fn bounded<T>(
        &self,
        action: RPCTypes,
        limit: Duration,
        call: impl Future<Output = Answered<T>>,
    ) -> Rpc<T> {
        let answer = timeout(limit, call)
            .await
            .unwrap_or(Err(TransportError::Timeout));
        answer.map_err(|error| self.failure(action, limit, error))
    }

    fn failure(
        &self,
        action: RPCTypes,
        limit: Duration,
        error: TransportError,
    ) -> RPCError<TypeConfig> {
        match error {
            TransportError::Unreachable(why) => Unreachable::from_string(why).into(),
            TransportError::Broken(why) => NetworkError::from_string(why).into(),
            TransportError::Timeout => Timeout {
                action,
                id: self.me,
                target: self.target,
                timeout: limit,
            }
            .into(),
        }
    }

    fn nonsense(&self, what: &str) -> RPCError<TypeConfig> {
        Unreachable::from_string(format!("{} answered {what}", self.target)).into()
    }

    async fn ask_vote(
        &self,
        request: VoteRequest<TypeConfig>,
        limit: Duration,
        pre: bool,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        let term = request.vote.leader_id.term;
        let request = pb::VoteRequest {
            vote: Some(vote_to(request.vote)),
            last_log: log_id_to(request.last_log_id),
            leadership_transfer: request.leadership_transfer,
        };
        let target = self.member();
        let call = if pre {
            self.transport.pre_vote(&target, request)
        } else {
            self.transport.vote(&target, request)
        };
        let reply = self.bounded(RPCTypes::Vote, limit, call).await?;
        // Before openraft hears of the vote: a new leader finds the clocks of its majority.
        if let Some(clock) = reply.clock {
            self.clocks.heard(term, self.target, clock);
        }
        let vote = reply
            .vote
            .ok_or_else(|| self.nonsense("without its vote"))?;
        let last_log = convert::log_id_from(reply.last_log);
        Ok(VoteResponse::new(
            convert::vote_from(vote),
            last_log,
            reply.granted,
        ))
    }

    /// One request, one reply: a heartbeat. It may take no longer than until the next one is due.
    async fn heartbeat(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
        limit: Duration,
    ) -> Rpc<StreamAppendResult<TypeConfig>> {
        let limit = limit.min(self.settings.heartbeat);
        let sent = Sent::now(&request);
        let request = append_request(request);
        let target = self.member();
        let call = self.transport.heartbeat(&target, request);
        let reply = self.bounded(RPCTypes::AppendEntries, limit, call).await?;
        self.append_result(reply, sent)
    }

    /// What the reply to what was sent then says.
    fn append_result(
        &self,
        reply: pb::AppendReply,
        sent: Sent,
    ) -> Rpc<StreamAppendResult<TypeConfig>> {
        match reply
            .reply
            .ok_or_else(|| self.nonsense("without a reply"))?
        {
            Reply::Accepted(accepted) => {
                // Before openraft counts it: whoever asks for a read index finds it.
                self.acks.accepted(self.target, sent.term, sent.at);
                Ok(Ok(convert::log_id_from(accepted.matched)))
            }
            Reply::Conflict(at) => Ok(Err(StreamAppendError::Conflict(
                crate::Position::from(at).into(),
            ))),
            Reply::HigherVote(vote) => {
                Ok(Err(StreamAppendError::HigherVote(convert::vote_from(vote))))
            }
        }
    }

    /// Many requests under way; replies in their order. Lives as long as openraft feeds it.
    async fn pipeline<'s>(
        &'s self,
        input: impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static,
    ) -> Rpc<BoxStream<'s, Rpc<StreamAppendResult<TypeConfig>>>> {
        let limit = self.settings.append_timeout;
        // openraft waits out its back-off before it hands over the first request. Connecting
        // before that would try a dead member thousands of times a second.
        let mut input = Box::pin(input);
        let Some(first) = input.next().await else {
            return Ok(Box::pin(stream::empty()));
        };
        let input = stream::iter([first]).chain(input);
        let owed = Arc::new(Mutex::new(VecDeque::new()));
        let sending = owed.clone();
        let requests = input.map(move |request| {
            sending.lock().push_back(Sent::now(&request));
            append_request(request)
        });
        let target = self.member();
        let call = self.transport.append(&target, requests.boxed());
        let replies = self.bounded(RPCTypes::AppendEntries, limit, call).await?;
        let waiting = Waiting { replies, owed };
        let results = stream::unfold(Some(waiting), move |waiting| async move {
            let mut waiting = waiting?;
            match waiting.next(limit).await? {
                Ok((reply, sent)) => {
                    let result = self.append_result(reply, sent);
                    let goes_on = matches!(result, Ok(Ok(_)));
                    Some((result, goes_on.then_some(waiting)))
                }
                Err(error) => Some((
                    Err(self.failure(RPCTypes::AppendEntries, limit, error)),
                    None,
                )),
            }
        });
        Ok(Box::pin(results))
    }
}

/// What was sent and is not answered yet.
#[derive(Clone, Copy)]
struct Sent {
    term: u64,
    /// A moment before.
    at: Instant,
}

impl Sent {
    fn now(request: &AppendEntriesRequest<TypeConfig>) -> Self {
        Self {
            term: request.vote.leader_id.term,
            at: Instant::now(),
        }
    }
}

/// The replies of a pipeline, and what is still owed one, in the order in which it was sent.
struct Waiting {
    replies: futures::stream::BoxStream<'static, Answered<pb::AppendReply>>,
    owed: Arc<Mutex<VecDeque<Sent>>>,
}

impl Waiting {
    /// The next reply. One that is owed since `limit` or longer is a time-out; when nothing is owed
    /// the stream may rest for as long as it likes.
    async fn next(&mut self, limit: Duration) -> Option<Answered<(pb::AppendReply, Sent)>> {
        let mut owed_before = false;
        loop {
            match timeout(limit, self.replies.next()).await {
                Ok(Some(Ok(reply))) => {
                    let sent = self.owed.lock().pop_front();
                    return Some(sent.map(|sent| (reply, sent)).ok_or_else(|| {
                        TransportError::Broken("a reply to what was not sent".into())
                    }));
                }
                Ok(Some(Err(error))) => return Some(Err(error)),
                Ok(None) => return None,
                Err(_) => {
                    let owed = !self.owed.lock().is_empty();
                    if owed && owed_before {
                        return Some(Err(TransportError::Timeout));
                    }
                    owed_before = owed;
                }
            }
        }
    }
}

fn append_request(request: AppendEntriesRequest<TypeConfig>) -> pb::AppendRequest {
    pb::AppendRequest {
        vote: Some(vote_to(request.vote)),
        previous: log_id_to(request.prev_log_id),
        committed: log_id_to(request.leader_commit),
        entries: request.entries.iter().map(super::Entry::to_bytes).collect(),
    }
}

impl RaftNetworkV2<TypeConfig> for Connection {
    type SnapshotData = SnapshotTransfer;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<TypeConfig>> {
        Ok(self.heartbeat(request, option.soft_ttl()).await?.into())
    }

    fn stream_append<'s, S>(
        &'s mut self,
        mut input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Rpc<BoxStream<'s, Rpc<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let this = &*self;
        Box::pin(async move {
            if !this.heartbeats {
                return this.pipeline(input).await;
            }
            let limit = option.hard_ttl();
            let results: BoxStream<'s, _> = match input.next().await {
                Some(request) => {
                    let result = this.heartbeat(request, limit).await;
                    Box::pin(stream::iter([result]))
                }
                None => Box::pin(stream::empty()),
            };
            Ok(results)
        })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        self.ask_vote(request, option.soft_ttl(), false).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        self.ask_vote(request, option.soft_ttl(), true).await
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf,
        snapshot: RaftSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        if self.distrusted.load(Ordering::Relaxed) {
            let why = "this node's state is not to be relied upon";
            return Err(RPCError::from(Unreachable::from_string(why)).into());
        }
        let SnapshotTransfer::Built(source) = snapshot.snapshot else {
            return Err(ReplicationClosed::new("only a snapshot of this node is sent").into());
        };
        let moved = Arc::new(AtomicU64::new(0));
        let all_read = Arc::new(AtomicBool::new(false));
        let (from_where, from) = oneshot::channel();
        let mut from_where = Some(from_where);
        let counter = moved.clone();
        let parts = parts(
            vote,
            source,
            from,
            self.settings.snapshot_rate,
            all_read.clone(),
        );
        let parts = ReceiverStream::new(parts).inspect(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let mut cancel = std::pin::pin!(cancel);
        let action = RPCTypes::InstallSnapshot;
        let target = self.member();
        let call = self.transport.snapshot(&target, parts.boxed());
        let mut replies = tokio::select! {
            closed = &mut cancel => return Err(closed.into()),
            replies = self.bounded(action, self.settings.snapshot_stall, call) => replies?,
        };
        loop {
            let before = moved.load(Ordering::Relaxed);
            // Behind the last part the receiver syncs and loads, and nothing moves meanwhile.
            let stall = match all_read.load(Ordering::Relaxed) {
                false => self.settings.snapshot_stall,
                true => self.settings.snapshot_install,
            };
            let reply = tokio::select! {
                closed = &mut cancel => return Err(closed.into()),
                reply = timeout(stall, replies.next()) => reply,
            };
            let error = match reply {
                Ok(Some(Ok(reply))) => match reply.reply {
                    Some(SnapshotReply::Vote(vote)) => {
                        return Ok(SnapshotResponse::new(convert::vote_from(vote)));
                    }
                    Some(SnapshotReply::From(from)) => {
                        // Said once; the reader begins there.
                        from_where.take().map(|reader| reader.send(from));
                        continue;
                    }
                    None => return Err(self.nonsense("without a reply").into()),
                },
                Ok(Some(Err(error))) => error,
                Ok(None) => TransportError::Broken("the transfer ended without a vote".into()),
                Err(_) if moved.load(Ordering::Relaxed) > before => continue,
                Err(_) => TransportError::Timeout,
            };
            return Err(self.failure(action, stall, error).into());
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<TransferLeaderResponse<TypeConfig>> {
        let last_log: Option<LogId> = request.last_log_id().copied();
        let message = pb::TransferRequest {
            from_leader: Some(vote_to(*request.from_leader())),
            to: request.to_node_id().0,
            last_log: log_id_to(last_log),
        };
        let target = self.member();
        let call = self.transport.transfer_leader(&target, message);
        // The target waits for its log to be flushed before it answers.
        let reply = self
            .bounded(RPCTypes::TransferLeader, option.hard_ttl(), call)
            .await?;
        Ok(match reply.refused {
            None => Ok(()),
            Some(why) => {
                tracing::info!(to = %self.target, %why, "a leadership transfer is refused");
                Err(TransferLeaderError::LogNotFlushed {
                    expected: last_log,
                    actual: None,
                })
            }
        })
    }
}

/// Reads a snapshot part by part, beside everything else: the manifest, and the rest from where the
/// receiver wants it. Ends early if nobody takes the parts.
fn parts(
    vote: VoteOf,
    snapshot: Arc<dyn Snapshot>,
    from: oneshot::Receiver<pb::SnapshotFrom>,
    rate: u64,
    all_read: Arc<AtomicBool>,
) -> mpsc::Receiver<pb::SnapshotPart> {
    let (sender, receiver) = mpsc::channel(PARTS_AHEAD);
    tokio::spawn(async move {
        let files = snapshot.files();
        let send = async |part| {
            let part = pb::SnapshotPart { part: Some(part) };
            sender.send(part).await.is_ok()
        };
        if !send(Part::Manifest(manifest(vote, &*snapshot, &files))).await {
            return;
        }
        let Ok(from) = from.await else {
            return;
        };
        let begun = Instant::now();
        let mut sent = 0;
        let mut offset = from.offset;
        for (number, file) in (0_u32..).zip(&files).skip(from.file as usize) {
            while offset < file.len {
                let (source, name) = (snapshot.clone(), file.name.clone());
                let read = blocking(move || {
                    let data = source.read(&name, offset, CHUNK_BYTES)?;
                    let crc = crc32c::crc32c(&data);
                    Ok((data, crc))
                });
                let (data, crc) = match read.await {
                    Ok((data, crc)) if !data.is_empty() => (data, crc),
                    Ok(_) => {
                        return fail_stop(format_args!("{} of a snapshot is short", file.name));
                    }
                    Err(error) => return fail_stop(format_args!("reading a snapshot: {error}")),
                };
                let length = data.len() as u64;
                let chunk = pb::SnapshotChunk {
                    file: number,
                    offset,
                    data,
                    crc,
                };
                if !send(Part::Chunk(chunk)).await {
                    return;
                }
                offset += length;
                sent += length;
                sleep_until(begun + Duration::from_millis(sent.saturating_mul(1000) / rate.max(1)))
                    .await;
            }
            offset = 0;
        }
        all_read.store(true, Ordering::Relaxed);
    });
    receiver
}

fn manifest(vote: VoteOf, snapshot: &dyn Snapshot, files: &[SnapshotFile]) -> pb::SnapshotManifest {
    let file = |file: &SnapshotFile| pb::SnapshotFile {
        name: file.name.clone(),
        len: file.len,
        crc: file.crc32c,
    };
    pb::SnapshotManifest {
        vote: Some(vote_to(vote)),
        position: Some(snapshot.position().into()),
        membership: Some((&snapshot.membership()).into()),
        files: files.iter().map(file).collect(),
    }
}
