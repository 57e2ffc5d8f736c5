//! Whether the manifest of a RocksDB instance ends where it was cut off, or where it was damaged.
//! (Its write-ahead logs are empty: the state is written without.)
//!
//! RocksDB takes a record whose length reaches beyond the end of the file for one that a crash cut
//! off, and drops it with all that follows; one damaged bit of a length is enough for that, and so
//! is one of a type ("a record of a recycled file" ends a journal, too). What is dropped may be the
//! word that a table exists. So the manifest is read here first, strictly: behind a record that was
//! cut off there is nothing, and it itself is nowhere whole (faults D32, D33).
//!
//! A power cut leaves more than cut-off ends: a disk writes the pages of a batch in an order of its
//! own, so of a batch that was never synced the end may be there and the beginning not, and RocksDB
//! refuses that as damage (faults D31). It can be told from damage: each batch is synced before the
//! next one is written, so only the last batch can be so, and no later one begins behind it; and
//! what was not written is zero by whole sectors, which no flipped bit makes of it. Such a batch
//! was never relied upon, and is cut off here.
//!
//! A flush is a batch of one record for each family, so what follows a hole may be whole records of
//! the same batch; they say so ([`edit::following`]), counting down. (Compactions that end at one
//! moment may share a sync and don't say so; a hole in these is taken for damage.) That the hole holds nothing of
//! the batch before as well can't be seen. If it did, a disk would have lost a whole sector that was
//! synced; then the state is older than the log begins, or tables that it names are gone, and
//! either is found when they are opened.

mod edit;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::Path;

use crate::codec;

/// A record never lies in two of these.
const BLOCK: usize = 32 * 1024;
/// Checksum, length, type.
const HEADER: usize = 7;

/// A disk writes this as a whole or not at all.
const SECTOR: usize = 512;

/// Looks at the manifest of the RocksDB instance in `dir`; fine if there is none. Its last batch is
/// cut off if a power cut left it with holes; nothing else is changed, and nothing at all if there
/// is damage.
///
/// # Errors
///
/// `InvalidData` if it is damaged, or is not there although `CURRENT` names it; else what the disk
/// said.
pub(crate) fn check(dir: &Path) -> io::Result<()> {
    let name = match fs::read_to_string(dir.join("CURRENT")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(codec::invalid("CURRENT is no text"));
        }
        Err(error) => return Err(error),
    };
    let name = name
        .strip_suffix('\n')
        .filter(|name| is_numbered(name.strip_prefix("MANIFEST-")))
        .ok_or_else(|| codec::invalid(format!("CURRENT says {name:?}")))?;
    let journal = match fs::read(dir.join(name)) {
        Ok(journal) => journal,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(codec::invalid(format!("{name} is missing")));
        }
        Err(error) => return Err(error),
    };
    match judge(&journal) {
        End::Sound => Ok(()),
        End::Unwritten(at) => {
            let file = fs::OpenOptions::new().write(true).open(dir.join(name))?;
            file.set_len(at as u64)?;
            file.sync_all()?;
            tracing::warn!(
                name,
                bytes = journal.len() - at,
                "a power cut left the last write unfinished; nothing relied on it and it is dropped"
            );
            Ok(())
        }
        End::Damaged(at) => Err(codec::invalid(format!(
            "{name} is damaged at byte {at}, and that is not its end"
        ))),
    }
}

fn is_numbered(number: Option<&str>) -> bool {
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// How a journal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With a whole record, or with one that was cut off: RocksDB finds the end.
    Sound,
    /// With a batch of which the disk wrote some pages and others not. Here it is to be cut off.
    Unwritten(usize),
    /// Here is something else.
    Damaged(usize),
}

fn judge(journal: &[u8]) -> End {
    let mut at = 0;
    let mut within_batch = false;
    let mut last = 0..0;
    loop {
        at = skip_trailer(at);
        match record(journal, at) {
            Some(end) => {
                within_batch = matches!(kind(journal, at), FIRST | MIDDLE);
                last = at + HEADER..end;
                at = end;
            }
            None => break,
        }
    }
    let rest = journal.get(at..).unwrap_or_default();
    if rest.iter().all(|byte| *byte == 0) {
        // Room that was taken and not used; RocksDB takes it for damage where a batch should go on.
        return match within_batch && !rest.is_empty() {
            true => End::Unwritten(at),
            false => End::Sound,
        };
    }
    let following = journal.get(last).and_then(edit::following);
    if is_unwritten(journal, at, following.filter(|left| *left > 0)) {
        return End::Unwritten(at);
    }
    if rest.len() < HEADER {
        return End::Sound;
    }
    let next_block = (at / BLOCK + 1) * BLOCK;
    let whole = is_whole_with_another_length(journal, at)
        || record(journal, next_block).is_some()
        || (at + 1..journal.len()).any(|from| record(journal, from).is_some());
    match whole {
        true => End::Damaged(at),
        false => End::Sound,
    }
}

/// Whether what lies from `at` on is one batch with holes. It is one long record, or one record for
/// each family that was flushed; behind a group of these `following` are still to come.
fn is_unwritten(journal: &[u8], at: usize, mut following: Option<u64>) -> bool {
    let mut holes = 0;
    // Whether fragments may come of which the first one is lost.
    let mut torn = false;
    let mut begun: Option<Vec<u8>> = None;
    let mut from = at;
    while from < journal.len() {
        let Some(behind) = record(journal, from) else {
            let end = ((from / BLOCK + 1) * BLOCK).min(journal.len());
            let whole = (from + 1..end).find(|other| record(journal, *other).is_some());
            let next = whole.unwrap_or(end);
            if has_hole(journal, from, next) {
                holes += 1;
            } else if next < journal.len() || holes == 0 {
                // Not even cut off by the end of the file, behind a hole.
                return false;
            }
            if begun.take().is_some() && following.is_none_or(|left| left == 0) {
                return false;
            }
            torn = true;
            from = next;
            continue;
        };
        let payload = journal.get(from + HEADER..behind).unwrap_or_default();
        let complete = match (kind(journal, from), begun.take()) {
            (FIRST, None) => {
                begun = Some(payload.to_vec());
                None
            }
            (MIDDLE, Some(first)) => {
                begun = Some([&first, payload].concat());
                None
            }
            (LAST, Some(first)) => Some([&first, payload].concat()),
            (MIDDLE | LAST, None) if torn && from.is_multiple_of(BLOCK) => None,
            (MIDDLE | LAST, None) | (_, Some(_)) => return false,
            _ => Some(payload.to_vec()),
        };
        if let Some(complete) = complete {
            // A later batch would be proof that this one was synced.
            match edit::following(&complete) {
                Some(left) if following.is_none_or(|before| left < before) => {
                    following = Some(left);
                }
                _ => return false,
            }
        }
        torn = torn && kind(journal, from) == MIDDLE;
        from = skip_trailer(behind);
    }
    // One that is cut off may be of a later batch, unless more of this one is to come.
    holes > 0 && (begun.is_none() || following.is_some_and(|left| left > 0))
}

/// Whether a sector between `from` and `end` is zero; of the first one, what begins at `from`. The
/// last one counts if nothing whole begins in it.
fn has_hole(journal: &[u8], from: usize, end: usize) -> bool {
    let mut at = from;
    while at < end {
        let next = (at / SECTOR + 1) * SECTOR;
        if next > end && end < journal.len() {
            return false;
        }
        let sector = journal.get(at..next.min(end)).unwrap_or_default();
        // A few zeros are nothing special.
        if sector.len() >= HEADER && sector.iter().all(|byte| *byte == 0) {
            return true;
        }
        at = next;
    }
    false
}

const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Of a record that is there.
fn kind(journal: &[u8], at: usize) -> u8 {
    journal.get(at + HEADER - 1).copied().unwrap_or_default()
}

/// Too little room for a header at the end of a block is left empty.
fn skip_trailer(at: usize) -> usize {
    let left = BLOCK - at % BLOCK;
    if left < HEADER { at + left } else { at }
}

/// The end of the whole record at `at`, if there is one.
fn record(journal: &[u8], at: usize) -> Option<usize> {
    let header: &[u8; HEADER] = journal.get(at..)?.first_chunk()?;
    let [a, b, c, d, low, high, kind] = *header;
    // Those that are written by an instance which does not use old files again.
    if !matches!(kind, 1..=4 | 9 | 10 | 130) {
        return None;
    }
    let end = at + HEADER + usize::from(u16::from_le_bytes([low, high]));
    if end > (at / BLOCK + 1) * BLOCK {
        return None;
    }
    let sum = crc32c::crc32c(journal.get(at + HEADER - 1..end)?);
    (u32::from_le_bytes([a, b, c, d]) == masked(sum)).then_some(end)
}

/// Whether the record at `at` is all there but for what its header says of its length or type.
fn is_whole_with_another_length(journal: &[u8], at: usize) -> bool {
    let Some(&[a, b, c, d, ..]) = journal.get(at..).and_then(<[u8]>::first_chunk::<HEADER>) else {
        return false;
    };
    let wanted = u32::from_le_bytes([a, b, c, d]);
    let end = journal.len().min((at / BLOCK + 1) * BLOCK);
    let payload = journal.get(at + HEADER..end).unwrap_or_default();
    (1..=4).any(|kind| {
        let mut sum = crc32c::crc32c(&[kind]);
        masked(sum) == wanted
            || payload.iter().any(|byte| {
                sum = crc32c::crc32c_append(sum, &[*byte]);
                masked(sum) == wanted
            })
    })
}

/// RocksDB stores sums so that a sum over bytes with sums in them is of use.
fn masked(sum: u32) -> u32 {
    sum.rotate_right(15).wrapping_add(0xa282_ead8)
}
