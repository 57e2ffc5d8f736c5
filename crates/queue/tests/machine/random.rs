//! Random logs over a small world: three nodes, a few connections, tubes and jobs, so that
//! everything meets everything.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::select};
use trellis_queue::{Batch, Command, Content, Entry, Item, LeaderCommand, Machine, Setting};
use trellis_types::{
    ConnectionId, JobId, NodeId, OriginId, Priority, Run, Seconds, SessionId, Timestamp, TubeName,
};

use crate::story::{name, origin};

/// An entry whose sequence numbers and time are relative to what has been applied.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    step_ms: i64,
    content: DraftContent,
}

#[derive(Clone, Debug)]
enum DraftContent {
    Batches(Vec<DraftBatch>),
    Leader(Vec<DraftLeader>),
}

#[derive(Clone, Debug)]
struct DraftBatch {
    node: NodeId,
    /// Another run than the open one, or the open one.
    stray_run: Option<Run>,
    /// Away from the next in sequence.
    seq_step: i64,
    items: Vec<Item>,
}

#[derive(Clone, Debug)]
enum DraftLeader {
    Open(NodeId, u64),
    Suspend(NodeId, u64),
    Resume(NodeId, u64),
    Expire(NodeId, u64),
    Word(LeaderCommand),
}

/// Follows a log far enough to turn drafts into entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Author {
    at: Timestamp,
}

impl Author {
    /// The draft as an entry behind what `machine` has applied.
    pub(crate) fn write(&mut self, draft: &Draft, machine: &Machine) -> Entry {
        let step = draft.step_ms.unsigned_abs();
        // A new leader's clock may lag: its entries step back.
        let at = if draft.step_ms < 0 {
            self.at.before_ms(step)
        } else {
            self.at = self.at.max(machine.now()).after_ms(step);
            self.at
        };
        let content = match &draft.content {
            DraftContent::Batches(batches) => {
                let mut seqs: Vec<(OriginId, u64)> = vec![];
                let batches = batches.iter().map(|draft| {
                    let known = machine.origin(draft.node);
                    let open = known.map_or(Run(1), |known| known.highest_run);
                    let run = draft.stray_run.unwrap_or(open);
                    let origin = OriginId {
                        node: draft.node,
                        run,
                    };
                    let last = seqs
                        .iter()
                        .rev()
                        .find(|(whose, _)| *whose == origin)
                        .map(|(_, seq)| *seq)
                        .unwrap_or_else(|| known.map_or(0, |known| known.last_seq));
                    let seq = last.saturating_add(1).saturating_add_signed(draft.seq_step);
                    if draft.seq_step == 0 {
                        seqs.push((origin, seq));
                    }
                    Batch {
                        origin,
                        seq,
                        items: draft.items.clone(),
                    }
                });
                Content::Batches(batches.collect())
            }
            DraftContent::Leader(words) => {
                let run_of =
                    |node: NodeId| machine.origin(node).map_or(0, |known| known.highest_run.0);
                let at = |node: &NodeId, run: u64| OriginId {
                    node: *node,
                    run: Run(run),
                };
                // `off` 0 names the newest run, 1 the one after it, more some older one.
                let pick = |node: &NodeId, off: u64| match off {
                    0 | 1 => at(node, run_of(*node) + off),
                    more => at(node, run_of(*node).saturating_sub(more - 1)),
                };
                Content::Leader(
                    words
                        .iter()
                        .map(|word| match word {
                            DraftLeader::Open(node, off) => {
                                LeaderCommand::OpenOrigin(pick(node, *off))
                            }
                            DraftLeader::Suspend(node, off) => {
                                LeaderCommand::SuspendOrigin(pick(node, *off))
                            }
                            DraftLeader::Resume(node, off) => {
                                LeaderCommand::ResumeOrigin(pick(node, *off))
                            }
                            DraftLeader::Expire(node, off) => {
                                LeaderCommand::ExpireOrigin(pick(node, *off))
                            }
                            DraftLeader::Word(word) => word.clone(),
                        })
                        .collect(),
                )
            }
        };
        Entry { at, content }
    }
}

/// Opens the three origins: what every log here begins with.
pub(crate) fn opening() -> Entry {
    let words = (1..=3)
        .map(|node| LeaderCommand::OpenOrigin(origin(node, 1)))
        .collect();
    Entry {
        at: Timestamp(0),
        content: Content::Leader(words),
    }
}

pub(crate) fn tubes() -> Vec<TubeName> {
    ["default", "a", "b", "c"].map(name).to_vec()
}

pub(crate) fn sessions(machine: &Machine) -> Vec<SessionId> {
    let open = machine.origins().filter_map(|known| known.open);
    open.flat_map(|origin| {
        (0..=4).map(move |c| SessionId {
            origin,
            connection: ConnectionId(c),
        })
    })
    .collect()
}

/// A whole log.
pub(crate) fn log(entries: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Draft>> {
    vec(draft(), entries)
}

fn draft() -> impl Strategy<Value = Draft> {
    let content = prop_oneof![
        12 => vec(batch(), 1..4).prop_map(DraftContent::Batches),
        3 => vec(leader_word(), 1..3).prop_map(DraftContent::Leader),
    ];
    (step_ms(), content).prop_map(|(step_ms, content)| Draft { step_ms, content })
}

/// Around the whole seconds, where the edges are.
fn step_ms() -> impl Strategy<Value = i64> {
    prop_oneof![
        30 => Just(0_i64),
        10 => select(vec![1_i64, 250, 999, 1_000, 1_001, 2_000, 3_000]),
        2 => Just(20_000_i64),
        2 => Just(-1_500_i64),
    ]
}

fn node() -> impl Strategy<Value = NodeId> {
    (1..=3_u64).prop_map(NodeId)
}

fn tube() -> impl Strategy<Value = TubeName> {
    select(tubes())
}

/// Most logs put a few dozen jobs; ids beyond the last are asked for too.
fn job() -> impl Strategy<Value = JobId> {
    prop_oneof![5 => 1..8_u64, 2 => 0..30_u64].prop_map(JobId)
}

fn priority() -> impl Strategy<Value = Priority> {
    select(vec![0, 1, 1023, 1024, u32::MAX]).prop_map(Priority)
}

fn batch() -> impl Strategy<Value = DraftBatch> {
    let stray = prop_oneof![20 => Just(None), 1 => (0..3_u64).prop_map(|run| Some(Run(run)))];
    let seq = prop_oneof![20 => Just(0_i64), 1 => Just(-1_i64), 1 => Just(1_i64)];
    (node(), stray, seq, vec(item(), 0..6)).prop_map(|(node, stray_run, seq_step, items)| {
        DraftBatch {
            node,
            stray_run,
            seq_step,
            items,
        }
    })
}

fn item() -> impl Strategy<Value = Item> {
    (1..=3_u64, command()).prop_map(|(connection, command)| Item {
        connection: ConnectionId(connection),
        command,
    })
}

fn command() -> impl Strategy<Value = Command> {
    let few = (0..4_u32).prop_map(Seconds);
    let timeout = prop_oneof![
        2 => Just(None),
        2 => Just(Some(Seconds(0))),
        3 => (1..5_u32).prop_map(|seconds| Some(Seconds(seconds))),
    ];
    let delay = || prop_oneof![3 => Just(Seconds(0)), 2 => (1..4_u32).prop_map(Seconds)];
    prop_oneof![
        10 => (tube(), priority(), delay(), few.clone(), vec(any::<u8>(), 0..9)).prop_map(
            |(tube, priority, delay, ttr, body)| {
                Command::Put { tube, priority, delay, ttr, body: Bytes::from(body) }
            }
        ),
        10 => (vec(tube(), 1..4), timeout)
            .prop_map(|(tubes, timeout)| Command::Reserve { tubes, timeout }),
        3 => job().prop_map(|job| Command::ReserveJob { job }),
        4 => job().prop_map(|job| Command::Delete { job }),
        5 => (job(), priority(), delay())
            .prop_map(|(job, priority, delay)| Command::Release { job, priority, delay }),
        4 => (job(), priority()).prop_map(|(job, priority)| Command::Bury { job, priority }),
        3 => job().prop_map(|job| Command::Touch { job }),
        3 => (tube(), 0..4_u32).prop_map(|(tube, bound)| Command::Kick { tube, bound }),
        2 => (tube(), 0..4_u32, any::<bool>()).prop_map(|(tube, bound, delayed)| {
            Command::KickPortion {
                tube,
                bound,
                delayed,
            }
        }),
        2 => job().prop_map(|job| Command::KickJob { job }),
        2 => (tube(), few).prop_map(|(tube, delay)| Command::PauseTube { tube, delay }),
        2 => Just(Command::EndWait),
        2 => Just(Command::CloseSession),
        4 => (tube(), any::<bool>()).prop_map(|(tube, set)| Command::TubeRef { tube, set }),
        1 => Just(Command::Undecodable),
    ]
}

fn leader_word() -> impl Strategy<Value = DraftLeader> {
    let off = || prop_oneof![6 => Just(0_u64), 1 => Just(1_u64), 1 => Just(2_u64)];
    let next = prop_oneof![1 => Just(0_u64), 6 => Just(1_u64), 1 => Just(2_u64)];
    let setting = prop_oneof![
        4 => any::<bool>().prop_map(Setting::PutsRefused),
        1 => select(vec![2, 5, u64::MAX]).prop_map(Setting::JobsMax),
        1 => select(vec![8, 20, u64::MAX]).prop_map(Setting::JobBytesMax),
        1 => select(vec![1, 2, u64::MAX]).prop_map(Setting::TubesMax),
        1 => select(vec![1, u32::MAX]).prop_map(Setting::WatchNamesMax),
        1 => (0..3_u32).prop_map(Setting::FeatureLevel),
    ];
    prop_oneof![
        3 => (node(), next).prop_map(|(node, off)| DraftLeader::Open(node, off)),
        4 => (node(), off()).prop_map(|(node, off)| DraftLeader::Suspend(node, off)),
        5 => (node(), off()).prop_map(|(node, off)| DraftLeader::Resume(node, off)),
        2 => (node(), off()).prop_map(|(node, off)| DraftLeader::Expire(node, off)),
        2 => Just(DraftLeader::Word(LeaderCommand::Tick)),
        2 => setting.prop_map(|setting| DraftLeader::Word(LeaderCommand::Set(setting))),
        // Rare, because nothing happens on a node after it.
        1 => prop_oneof![9 => Just(NodeId(9)), 1 => node()]
            .prop_map(|node| DraftLeader::Word(LeaderCommand::RetireNode(node))),
    ]
}
