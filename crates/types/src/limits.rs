//! Every bound of the system: its name, its unit and its reason. Nothing grows without one.
//!
//! What decides inside `apply` is a replicated setting that starts from the value here; what
//! decides before proposing is local configuration. Source: architecture, section 11.

/// Bytes of a command line including its CRLF. The longest legal command is
/// `pause-tube <200 bytes> 4294967295` (protocol specification, 1.3).
pub const LINE_BYTES_MAX: usize = 224;

/// Bytes of a tube name (protocol specification, 2.5).
pub const TUBE_NAME_BYTES_MAX: usize = 200;

/// Bytes of a job body accepted by default: beanstalkd's own default of `-z`.
pub const BODY_BYTES_DEFAULT: u32 = 65_535;

/// Bytes of a job body that `-z` can allow at most: one body must fit one Raft entry and one
/// gRPC message with room to spare (beanstalkd: 1 GiB; see docs/COMPAT.md).
pub const BODY_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// Largest time-out of `reserve-with-timeout`, in seconds (protocol specification, 2.1).
pub const RESERVE_TIMEOUT_SECONDS_MAX: u32 = i32::MAX as u32;

/// The margin before a hold's deadline in which a reserve is answered `DEADLINE_SOON`, in
/// milliseconds (protocol specification, 6.6).
pub const SAFETY_MARGIN_MS: u64 = 1_000;

/// A wait that was passed over and whose time is up beside a ready job is looked at again so much
/// later, in milliseconds: often enough that nobody notices, seldom enough for the log. A constant
/// of the feature level.
pub const PASSED_OVER_LOOK_MS: u64 = 500;

/// Due events that an entry fires at most, so that a mass expiry cannot stall apply: a few
/// milliseconds of work. What fell due while nobody led is nearly always less, and is seen as a
/// whole by the first who asks then. A constant of the feature level: every node must stop at the
/// same event.
pub const DUE_AT_ONCE_MAX: usize = 1_000;

/// The same for an entry of the leader itself (a tick) that finds what the one before has left
/// over: about half a millisecond of work. A constant of the feature level, as above.
pub const DUE_PER_TICK_MAX: usize = 250;

/// And for an entry with clients' commands that finds it: those clients wait for the entry. With many
/// commands it is [`DUE_PER_COMMAND_MAX`] for each. A constant of the feature level, as above.
pub const DUE_PER_BATCHES_MAX: usize = 50;

/// A command brings one due event at most (a delay, a time-out, a hold). An entry takes away more than
/// it brings, or what is left over once would grow for ever under load. A constant of the feature
/// level, as above.
pub const DUE_PER_COMMAND_MAX: usize = 2;

/// Jobs that one command of a kick moves at most; a larger kick is carried out in portions, between
/// which others' commands have their turn. About half a millisecond of work.
pub const KICK_PORTION_JOBS: u32 = 250;

/// Largest job id: a 44-bit sequence, so that bits for several groups fit above it and every id
/// stays below 2^53 (architecture, section 13). At it, puts are refused.
pub const JOB_ID_MAX: u64 = (1 << 44) - 1;

/// Jobs in the whole cluster: what a 64 GiB node holds as headers (about 200 bytes each).
pub const JOBS_MAX_DEFAULT: u64 = 200_000_000;

/// Body bytes in the whole cluster: 1 TiB.
pub const JOB_BYTES_MAX_DEFAULT: u64 = 1 << 40;

/// Tubes in the whole cluster.
pub const TUBES_MAX_DEFAULT: u64 = 1_000_000;

/// Names on one connection's watch list: a reserve carries them all in one command.
pub const WATCH_NAMES_MAX_DEFAULT: usize = 1_024;

/// Commands in one batch: bounds the time that decoding and applying one batch takes.
pub const BATCH_COMMANDS_MAX: usize = 1_024;

/// Bytes in one batch, beyond which it is closed; a single larger command travels alone.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// Batches handed to a leader and not yet applied, per origin. More only makes groups smaller.
pub const BATCHES_IN_FLIGHT_MAX: usize = 8;

/// Commands that make a batch large: it is handed to the leader whatever is in flight. One that is
/// smaller waits until it holds as many commands as all that are in flight. A round through the log
/// costs about as much as 20 to 50 commands, so many small batches are dear.
pub const LARGE_BATCH_COMMANDS_MIN: usize = 256;

/// Bytes that make a batch large.
pub const LARGE_BATCH_BYTES_MIN: usize = 64 * 1024;

/// Bytes of batches that a leader merges into one entry, beyond which it is closed.
pub const ENTRY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Entries that a leader has proposed and not yet seen applied.
pub const ENTRIES_IN_FLIGHT_MAX: usize = 8;

/// Bytes that wait for the next entry and are proposed whatever is in flight; less waits until it
/// holds as many commands as all entries in flight.
pub const LARGE_ENTRY_BYTES_MIN: usize = 256 * 1024;

/// Bytes of entries that a leader has proposed and not yet seen applied, beyond which it proposes
/// no further one: a single entry may be larger, but not several such at once.
pub const ENTRIES_IN_FLIGHT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes submitted by clients of one node and not yet applied; one item is admitted when empty,
/// however large.
pub const NODE_PENDING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Commands of one connection that may be submitted and not yet answered.
pub const CONNECTION_PIPELINE_MAX: usize = 1_024;

/// Bytes that are read ahead of a connection whose reserve may be parked or whose earlier
/// commands wait.
pub const CONNECTION_READ_AHEAD_BYTES: usize = 64 * 1024;

/// Client connections of one node.
pub const CONNECTIONS_MAX_DEFAULT: usize = 20_000;

/// Bytes of replies in memory for slow readers of one node, before the one whose client has taken
/// nothing for longest is closed; bodies on disk wait there.
pub const OWED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of bodies kept in memory by one node, the newest ones: what a queue of ordinary length
/// holds. More would only be copies of what lies on disk.
pub const BODY_CACHE_BYTES_DEFAULT: usize = 16 * 1024 * 1024;

/// Bytes of bodies that may be arriving at one node, from all clients together, before the one
/// whose sender has stopped for longest is closed.
pub const ARRIVING_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of a body from which it counts as large: large ones are read in within a bound of their
/// own, so that they neither fill the node nor keep small ones waiting.
pub const LARGE_BODY_BYTES_MIN: usize = 1024 * 1024;

/// Bytes of large bodies that one node reads in at the same time; one is admitted when none is
/// read in, however large.
pub const LARGE_BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes a second that the sender of a large body has to keep up on average while others wait for
/// its place, after a grace of half a minute.
pub const LARGE_BODY_BYTES_PER_SECOND_MIN: usize = 256 * 1024;
