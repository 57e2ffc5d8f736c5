use std::io;

use super::engine::LogEngine;
use super::tail::Tail;
use super::view::{View, end_of};
use super::{LogId, names};
use crate::codec;
use crate::gate::Gate;
use crate::options::LogOptions;

/// Bytes of log looked at together while starting: few beside the tail, so that little new memory is touched.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Reads the whole log once: every entry must be sound, in its place and behind the one before.
///
/// A record that a crash cut off is not here any more, the engine has dropped it; so whatever is
/// wrong here is damage, and damage in the middle may hold acknowledged jobs (faults D33).
///
/// # Errors
///
/// `InvalidData` with what is wrong at which index; or what the disk said.
pub(super) fn recover(
    engine: &dyn LogEngine,
    options: &LogOptions,
    gate: &Gate,
) -> io::Result<View> {
    let log_id = |name: &str| -> io::Result<Option<LogId>> {
        let Some(value) = engine.named(name)? else {
            return Ok(None);
        };
        codec::decode_log_id(&value)
            .map(Some)
            .map_err(|error| damage(format!("{name}: {error}")))
    };
    let purged = log_id(names::PURGED)?;
    let committed = log_id(names::COMMITTED)?;
    let vote = match engine.named(names::VOTE)? {
        Some(value) => {
            Some(codec::decode_vote(&value).map_err(|error| damage(format!("vote: {error}")))?)
        }
        None => None,
    };

    let mut tail = Tail::new(end_of(&purged));
    let mut first = end_of(&purged);
    let mut last = purged;
    let mut from = 0;
    loop {
        let frames = engine.read(from..u64::MAX, CHUNK_BYTES)?;
        if frames.is_empty() {
            break;
        }
        for (index, frame) in frames {
            let bytes = frame.len();
            let entry = codec::decode_entry(frame)
                .map_err(|error| damage(format!("entry {index}: {error}")))?;
            let id = codec::log_id(&entry);
            if id.index != index {
                return Err(damage(format!("entry {} lies at index {index}", id.index)));
            }
            let virgin = last.is_none() && options.any_start;
            if index != end_of(&last) && !virgin {
                return Err(damage(format!(
                    "entry {} is missing before entry {index}",
                    end_of(&last)
                )));
            }
            if last.as_ref().is_some_and(|last| *last >= id) {
                return Err(damage(format!(
                    "entry {index} is older than the one before"
                )));
            }
            if virgin {
                first = index;
                tail.restart(index);
            }
            tail.push(entry, bytes);
            tail.evict(options.tail_bytes, u64::MAX);
            gate.appended(index, bytes);
            last = Some(id);
            from = index + 1;
        }
    }

    let committed = committed.map(|committed| match &last {
        Some(last) if committed.index > last.index => *last,
        _ => committed,
    });
    // Without any entry nothing is committed, whatever is written.
    let committed = committed.filter(|_| last.is_some());
    gate.set_flushed(end_of(&last).checked_sub(1));
    Ok(View {
        first,
        purged,
        last,
        committed,
        vote,
        tail,
        cuts: 0,
    })
}

fn damage(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
