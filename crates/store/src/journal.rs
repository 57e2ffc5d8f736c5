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
    loop {
        at = skip_trailer(at);
        match record(journal, at) {
            Some(end) => {
                within_batch = matches!(kind(journal, at), FIRST | MIDDLE);
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
    if is_unwritten(journal, at) {
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

/// Whether what lies from `at` on is one batch with holes. It has one fragment in each block.
fn is_unwritten(journal: &[u8], at: usize) -> bool {
    let mut holes = 0;
    let mut from = at;
    while from < journal.len() {
        let end = ((from / BLOCK + 1) * BLOCK).min(journal.len());
        match record(journal, from) {
            Some(behind) => {
                let rest = journal.get(behind..end).unwrap_or_default();
                let goes_on = matches!(kind(journal, from), MIDDLE | LAST);
                if !goes_on || rest.iter().any(|byte| *byte != 0) {
                    return false;
                }
            }
            // A later batch would be proof that this one was synced.
            None if (from + 1..end).any(|other| record(journal, other).is_some()) => return false,
            None if has_hole(journal, from, end) => holes += 1,
            // Cut off by the end of the file, behind a hole.
            None if end == journal.len() && holes > 0 => {}
            None => return false,
        }
        from = end;
    }
    holes > 0
}

/// Whether a sector between `from` and `end` is zero; of the first one, what begins at `from`.
fn has_hole(journal: &[u8], from: usize, end: usize) -> bool {
    let mut at = from;
    while at < end {
        let next = ((at / SECTOR + 1) * SECTOR).min(end);
        let sector = journal.get(at..next).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn damaged_at(journal: &[u8]) -> Option<usize> {
        match judge(journal) {
            End::Damaged(at) => Some(at),
            End::Sound | End::Unwritten(_) => None,
        }
    }

    /// As RocksDB writes it: whole records, cut at blocks.
    fn journal(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut all = Vec::new();
        for payload in payloads {
            let mut rest = payload.as_slice();
            let mut first = true;
            loop {
                all.resize(skip_trailer(all.len()), 0);
                let room = BLOCK - all.len() % BLOCK - HEADER;
                let (part, behind) = rest.split_at(rest.len().min(room));
                let kind = match (first, behind.is_empty()) {
                    (true, true) => 1,
                    (true, false) => 2,
                    (false, false) => 3,
                    (false, true) => 4,
                };
                let sum = masked(crc32c::crc32c_append(crc32c::crc32c(&[kind]), part));
                all.extend(sum.to_le_bytes());
                all.extend(u16::try_from(part.len()).unwrap().to_le_bytes());
                all.push(kind);
                all.extend(part);
                (rest, first) = (behind, false);
                if rest.is_empty() {
                    break;
                }
            }
        }
        all
    }

    fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let short = proptest::collection::vec(any::<u8>(), 1..300);
        let long = (20_000_usize..90_000, 1_u8..).prop_map(|(len, byte)| vec![byte; len]);
        proptest::collection::vec(prop_oneof![9 => short, 1 => long], 2..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Faults D32: wherever a crash cuts it off, what is before counts.
        #[test]
        fn a_journal_may_be_cut_off_anywhere(payloads in payloads(), cut: prop::sample::Index) {
            let mut journal = journal(&payloads);
            journal.truncate(cut.index(journal.len() + 1));
            prop_assert_eq!(damaged_at(&journal), None);
            journal.resize(journal.len() + 5_000, 0);
            prop_assert_eq!(damaged_at(&journal), None, "room that was taken and not used");
        }

        /// Faults D33: with any bit of the header of any record flipped.
        #[test]
        fn no_bit_of_a_header_makes_a_journal_seem_cut_off(
            payloads in payloads(), which: prop::sample::Index, bit in 0..8 * HEADER,
        ) {
            let whole = journal(&payloads);
            let mut begins = vec![0];
            while let Some(end) = record(&whole, *begins.last().unwrap()) {
                begins.push(skip_trailer(end));
            }
            let at = begins[which.index(begins.len() - 1)];
            let last = begins.len() == 2 || at == begins[begins.len() - 2];
            let mut flipped = whole;
            flipped[at + bit / 8] ^= 1 << (bit % 8);
            let found = damaged_at(&flipped);
            // The checksum of the last record: RocksDB refuses that by itself.
            if !(last && bit < 32) {
                prop_assert_eq!(found, Some(at));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Faults D31: of the last batch the disk wrote any of the pages.
        #[test]
        fn a_batch_with_holes_is_cut_off_unless_another_follows(
            before in payloads(), len in 3_000_usize..120_000, byte in 1_u8..,
            lost in proptest::collection::vec(any::<bool>(), 40),
        ) {
            let mut all = before;
            let begin = journal(&all).len();
            all.push(vec![byte; len]);
            let whole = journal(&all);
            let mut torn = whole.clone();
            for (page, _) in (begin / 4_096..).zip(&lost).filter(|(_, lost)| **lost) {
                let from = (page * 4_096).max(begin).min(torn.len());
                let to = ((page + 1) * 4_096).min(torn.len()).max(from);
                torn[from..to].fill(0);
            }
            match judge(&torn) {
                End::Unwritten(at) => {
                    prop_assert!(at >= begin && torn != whole);
                    // What is left ends as a crash leaves it.
                    prop_assert_eq!(judge(&torn[..at]), End::Sound);
                }
                // Nothing was lost, or all, or so few bytes that RocksDB takes it for a cut-off end.
                End::Sound => {}
                End::Damaged(at) => prop_assert!(false, "at {}, the batch begins at {}", at, begin),
            }

            // Whatever follows was written after a sync: then it is damage.
            if torn != whole {
                let room = torn.len();
                all.push(vec![7; 100]);
                let followed = journal(&all);
                torn.extend(&followed[room..]);
                let found = judge(&torn);
                prop_assert!(matches!(found, End::Damaged(_)), "{:?}", found);
            }
        }
    }

    /// Faults D31, D32, with the real thing: whatever a power cut leaves of the last change of a
    /// manifest, the instance opens with all that was before.
    #[test]
    fn rocksdb_opens_whatever_a_power_cut_leaves_of_the_last_change() {
        let folder = tempfile::tempdir().unwrap();
        let db = rocksdb::DB::open(&options(), folder.path()).unwrap();
        let put = |key: &str, value: &str| {
            let mut unlogged = rocksdb::WriteOptions::default();
            unlogged.disable_wal(true);
            db.put_opt(key, value, &unlogged).unwrap();
            db.flush().unwrap();
        };
        put("first", "synced");
        let before = manifest(folder.path()).1.len();
        put("last", "torn");
        let after = manifest(folder.path()).1.len();
        assert!(before < after);
        for len in before..after {
            for zeros in [0, 5_000] {
                let dir = tempfile::tempdir().unwrap();
                for item in fs::read_dir(folder.path()).unwrap() {
                    let item = item.unwrap();
                    fs::copy(item.path(), dir.path().join(item.file_name())).unwrap();
                }
                let (path, mut torn) = manifest(dir.path());
                torn.truncate(len);
                torn.resize(len + zeros, 0);
                fs::write(path, torn).unwrap();
                check(dir.path()).unwrap();
                let again = rocksdb::DB::open(&options(), dir.path()).unwrap();
                let first = again.get("first").unwrap();
                assert_eq!(
                    first.as_deref(),
                    Some(&b"synced"[..]),
                    "{len} bytes, {zeros} zeros"
                );
            }
        }
    }

    fn manifest(dir: &Path) -> (std::path::PathBuf, Vec<u8>) {
        let name = fs::read_to_string(dir.join("CURRENT")).unwrap();
        let path = dir.join(name.trim());
        let bytes = fs::read(&path).unwrap();
        (path, bytes)
    }

    fn options() -> rocksdb::Options {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options
    }

    #[test]
    fn what_current_names_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        check(dir.path()).unwrap();
        for bad in ["MANIFEST-000005\n", "MANIFEST-000005", "MAN\n", "\u{7f}"] {
            fs::write(dir.path().join("CURRENT"), bad).unwrap();
            assert_eq!(
                check(dir.path()).unwrap_err().kind(),
                io::ErrorKind::InvalidData,
                "{bad:?}"
            );
        }
        fs::write(dir.path().join("CURRENT"), "MANIFEST-000005\n").unwrap();
        fs::write(
            dir.path().join("MANIFEST-000005"),
            journal(&[vec![1; 9], vec![2; 9]]),
        )
        .unwrap();
        check(dir.path()).unwrap();
    }
}
