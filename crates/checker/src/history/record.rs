use serde::{Deserialize, Serialize};
use trellis_types::{JobId, Timestamp, TubeName};

use super::{Call, JobStats, Nanos, Reply, TubeStats};

/// The format that this crate writes and reads.
pub const VERSION: u32 = 1;

/// One line of a history. All times `t` are [`Nanos`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "record")]
pub enum Record {
    /// The first line.
    Header(Header),
    /// A client's connection stands.
    Opened {
        /// When.
        t: Nanos,
        /// Unique in the run.
        connection: u64,
        /// Which of the workload's clients.
        client: u32,
        /// The node that it connected to.
        node: String,
    },
    /// A connection is over.
    Closed {
        /// When the client closed it or saw that it was closed.
        t: Nanos,
        /// Which.
        connection: u64,
        /// Whose doing it was.
        by: CloseSide,
    },
    /// A question, stamped before its first byte was sent.
    Invoked {
        /// When.
        t: Nanos,
        /// Unique in the run.
        op: u64,
        /// On which connection.
        connection: u64,
        /// What.
        call: Call,
    },
    /// Its answer, stamped after its last byte had arrived.
    Replied {
        /// When.
        t: Nanos,
        /// To which question.
        op: u64,
        /// What.
        reply: Reply,
    },
    /// No answer will be heard; what was asked for may have happened, may happen yet, or never.
    Unknown {
        /// When the client gave up.
        t: Nanos,
        /// Which question.
        op: u64,
        /// `timeout`, `closed`, …
        why: String,
    },
    /// Something was broken, or was mended.
    Nemesis {
        /// When.
        t: Nanos,
        /// Its number in the list of faults.
        fault: u32,
        /// In words.
        what: String,
        /// The nodes concerned.
        nodes: Vec<String>,
        /// Whether it begins or ends.
        stage: Stage,
        /// Whether it was seen to have happened (the process is gone, packets were dropped …).
        effect: bool,
    },
    /// What became of a node's process.
    Node {
        /// When.
        t: Nanos,
        /// Which.
        node: String,
        /// What.
        event: NodeEvent,
    },
    /// A node was asked where it stands.
    Sample {
        /// When the answer arrived.
        t: Nanos,
        /// Which.
        node: String,
        /// Its applied index.
        applied: u64,
        /// Cluster time of the entry there, in milliseconds. Only if both are of one moment, but
        /// for what is applied within [`Bounds::late_ms`].
        now: Option<Timestamp>,
        /// A state digest.
        digest: Option<String>,
        /// The applied index that the digest belongs to.
        digest_at: Option<u64>,
    },
    /// The faults are over and everything was to drain.
    Liveness {
        /// When it began.
        t: Nanos,
        /// When it ended.
        ended: Nanos,
        /// Whether all of it drained within the bound.
        drained: bool,
        /// What did not, in words.
        left: String,
    },
    /// What a node holds at the end.
    Final(FinalState),
}

/// What a history is about and how strictly it is to be taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// `paper`, `sim`, `chaos`, …
    pub instrument: String,
    /// What replays it.
    pub seed: u64,
    /// What was tested.
    pub commit: String,
    /// The workload's profile.
    pub profile: String,
    /// How exact time is.
    pub bounds: Bounds,
    /// What makes the run worth anything.
    pub demands: Demands,
    /// Whether reads were allowed to be old (`reads = "local"`).
    pub local_reads: bool,
}

/// How exact time is. A sound queue on a busy machine must stay inside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// How much too early something may happen, in milliseconds: drift and rounding, and where all
    /// nodes may start together also how slowly they told each other their wall clocks.
    pub early_ms: u64,
    /// How long after its moment something that was due may still be seen undone by one who gets an
    /// answer, in milliseconds: a tick and a change of leaders. Time in which nothing came through the
    /// log, and somebody waited for it, does not count.
    pub late_ms: u64,
    /// How long a silent node keeps its sessions, in milliseconds.
    pub lease_ms: u64,
    /// Whether a wait that times out shows that nothing was ready. It does not if its node may have
    /// been passed over because the machine was too busy for it to be heard; a poll always does.
    #[serde(default)]
    pub firm_waits: bool,
}

/// What makes a run worth anything. Less than that is rejected, never passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demands {
    /// Acknowledged operations at least.
    pub acknowledged: u64,
    /// Faults at least that were seen to take effect.
    pub faults: u64,
    /// Final states of so many nodes at least.
    pub finals: u64,
}

/// Who closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloseSide {
    /// The client, having heard every answer.
    Client,
    /// The client, having lost patience with an answer.
    Impatience,
    /// The server or the network.
    Server,
}

/// Whether a fault begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// From now on.
    Begin,
    /// Until now.
    End,
    /// At this moment.
    Once,
}

/// What becomes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeEvent {
    /// A process was started.
    Started,
    /// It is gone.
    Killed,
    /// From now on nothing it writes or syncs succeeds.
    DiskFailed,
}

/// What a node holds when everything is over, read over its own doors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinalState {
    /// When reading began.
    pub t: Nanos,
    /// When it had ended.
    pub ended: Nanos,
    /// Which node.
    pub node: String,
    /// Its applied index after reading.
    pub applied: u64,
    /// Its state digest, if it told.
    pub digest: Option<String>,
    /// The applied index that the digest belongs to.
    pub digest_at: Option<u64>,
    /// Ids up to this one were asked for; one of them that is not in `jobs` does not exist.
    pub up_to: JobId,
    /// All jobs there are.
    pub jobs: Vec<FinalJob>,
    /// All tubes there are.
    pub tubes: Vec<TubeCounts>,
    /// `total-jobs` of the whole cluster.
    pub total_jobs: Option<u64>,
}

/// A job that is left.
pub type FinalJob = JobStats;

/// A tube that is left.
pub type TubeCounts = TubeStats;

impl Default for Bounds {
    /// For real processes on a busy machine.
    fn default() -> Self {
        Self {
            early_ms: 150,
            late_ms: 5_000,
            lease_ms: 10_000,
            firm_waits: false,
        }
    }
}

impl FinalState {
    /// The tubes by name.
    pub fn tube(&self, name: &TubeName) -> Option<&TubeCounts> {
        self.tubes.iter().find(|tube| tube.tube == *name)
    }
}
