//! Whether RocksDB's journals (write-ahead logs and manifest) end where they were cut off, or
//! where they were damaged.
//!
//! RocksDB takes a record whose length reaches beyond the end of the file for one that a crash cut
//! off, and drops it with all that follows; one damaged bit of a length is enough for that, and so
//! is one of a type ("a record of a recycled file" ends a journal, too). What is dropped may be
//! acknowledged. So the journals are read here first, strictly: behind a record that was cut off
//! there is nothing, and it itself is nowhere whole (faults D32, D33).

use std::fs;
use std::io;
use std::path::Path;

use crate::codec;

/// A record never lies in two of these.
const BLOCK: usize = 32 * 1024;
/// Checksum, length, type.
const HEADER: usize = 7;

/// Looks at all journals of the RocksDB instance in `dir`; fine if there is none.
///
/// # Errors
///
/// `InvalidData` if one is damaged, or the manifest that `CURRENT` names is not there; else what
/// the disk said.
pub(crate) fn check(dir: &Path) -> io::Result<()> {
    let manifest = match fs::read_to_string(dir.join("CURRENT")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(codec::invalid("CURRENT is no text"));
        }
        Err(error) => return Err(error),
    };
    let manifest = manifest
        .strip_suffix('\n')
        .filter(|name| is_numbered(name.strip_prefix("MANIFEST-")))
        .ok_or_else(|| codec::invalid(format!("CURRENT says {manifest:?}")))?;
    match fs::read(dir.join(manifest)) {
        Ok(journal) => check_one(manifest, &journal)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(codec::invalid(format!("{manifest} is missing")));
        }
        Err(error) => return Err(error),
    }
    for item in fs::read_dir(dir)? {
        let item = item?;
        let Ok(name) = item.file_name().into_string() else {
            continue;
        };
        if is_numbered(name.strip_suffix(".log")) {
            check_one(&name, &fs::read(item.path())?)?;
        }
    }
    Ok(())
}

fn is_numbered(number: Option<&str>) -> bool {
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

fn check_one(name: &str, journal: &[u8]) -> io::Result<()> {
    match damaged_at(journal) {
        None => Ok(()),
        Some(at) => Err(codec::invalid(format!(
            "{name} is damaged at byte {at}, and that is not its end"
        ))),
    }
}

/// Where the first record is that is neither whole nor cut off by the end of the file.
fn damaged_at(journal: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at = skip_trailer(at);
        match record(journal, at) {
            Some(end) => at = end,
            None => break,
        }
    }
    let rest = journal.get(at..).unwrap_or_default();
    if rest.len() < HEADER || rest.iter().all(|byte| *byte == 0) {
        return None;
    }
    let next_block = (at / BLOCK + 1) * BLOCK;
    let whole = is_whole_with_another_length(journal, at)
        || record(journal, next_block).is_some()
        || (at + 1..journal.len()).any(|from| record(journal, from).is_some());
    whole.then_some(at)
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
        let long = (20_000_usize..90_000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
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
