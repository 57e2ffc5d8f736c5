//! Changes what lies in a folder behind its node's back, as no flipped bit does it. For tests; no
//! product build has it.

use std::io;
use std::path::Path;

use rocksdb::{DB, IteratorMode, Options};
use trellis_queue::{Machine, Row};
use trellis_rpc::queue::{decode_row, encode_row};

use crate::codec;
use crate::folder;
use crate::rocks;
use crate::state::Pointer;

const FAMILIES: [&str; 7] = [
    "default", "meta", "tubes", "jobs", "bodies", "origins", "waits",
];
const ROWS: [&str; 4] = ["tubes", "origins", "jobs", "waits"];

/// Leaves in the log of the stopped node in `dir` what a power cut leaves of a write that was never
/// acknowledged: of its sectors those that are true.
///
/// # Errors
///
/// The folder is in use, its log has no room for so many sectors, or the disk's.
pub fn tear_the_log(dir: &Path, written: &[bool]) -> io::Result<()> {
    let _lock = folder::lock(dir).map_err(io::Error::other)?;
    crate::log::tear(&dir.join("log"), written)
}

/// With good checksums and a good digest, so that only a comparison with other replicas can find
/// it: makes the first job in the state of the stopped node in `dir` more or less urgent; returns its
/// id. The log is left alone.
///
/// # Errors
///
/// The folder is in use or holds no job, or the disk's.
pub fn change_a_priority(dir: &Path) -> io::Result<u64> {
    let _lock = folder::lock(dir).map_err(io::Error::other)?;
    let state = dir.join("state");
    let pointer = Pointer::read(&state)?.ok_or_else(|| codec::invalid("no state"))?;
    let db = DB::open_cf(&Options::default(), pointer.path(&state), FAMILIES)
        .map_err(rocks::open_error)?;
    let meta = rocks::family(&db, "meta")?;
    let jobs = rocks::family(&db, "jobs")?;
    let mut rows = Vec::new();
    let machine = db.get_cf(meta, "machine").map_err(rocks::io_error)?;
    let machine = machine.ok_or_else(|| codec::invalid("no machine"))?;
    rows.push(decode_row(&machine).map_err(codec::invalid)?);
    for name in ROWS {
        for item in db.iterator_cf(rocks::family(&db, name)?, IteratorMode::Start) {
            let (_, row) = item.map_err(rocks::io_error)?;
            rows.push(decode_row(&row).map_err(codec::invalid)?);
        }
    }
    let job = rows.iter_mut().find_map(|row| match row {
        Row::Job(job) => Some(job),
        _ => None,
    });
    let job = job.ok_or_else(|| io::Error::other("no job in the state on disk yet"))?;
    job.priority.0 ^= 1;
    let changed = job.clone();
    let machine = Machine::load(rows).map_err(|bad| codec::invalid(bad.0))?;
    db.put_cf(
        jobs,
        changed.id.0.to_be_bytes(),
        encode_row(&Row::Job(changed.clone())),
    )
    .map_err(rocks::io_error)?;
    db.put_cf(meta, "digest", machine.digest().to_be_bytes())
        .map_err(rocks::io_error)?;
    // The node opens it without a write-ahead log.
    for name in FAMILIES {
        db.flush_cf(rocks::family(&db, name)?)
            .map_err(rocks::io_error)?;
    }
    Ok(changed.id.0)
}
