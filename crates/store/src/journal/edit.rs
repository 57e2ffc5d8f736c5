//! What a record of a RocksDB manifest says of the batch it was written in.
//!
//! A flush of several families is one record for each, written with one sync. Each says how many of
//! its group follow, and RocksDB takes a group that is not whole for one that never was.

/// Single numbers: of the log before, next file, last sequence, and so on.
const NUMBERS: [u64; 7] = [2, 3, 4, 9, 10, 200, 203];
/// Single texts: comparator, name of a new family.
const TEXTS: [u64; 2] = [1, 201];
const COMPACT_CURSOR: u64 = 5;
const DELETED_FILE: u64 = 6;
const NEW_FILE: u64 = 103;
const FAMILY_DROPPED: u64 = 202;
const IN_ATOMIC_GROUP: u64 = 300;
const NEW_BLOB_FILE: u64 = 400;
const BLOB_GARBAGE: u64 = 401;
/// Of later versions, and to be skipped by earlier ones: a text each.
const IGNORABLE: u64 = 1 << 13;

/// How many records of the same batch follow the one with `payload`; `None` if it is not part of a
/// group, or if it can't be read to its very end.
pub(super) fn following(payload: &[u8]) -> Option<u64> {
    let mut rest = Rest(payload);
    let mut following = None;
    while !rest.0.is_empty() {
        match rest.number()? {
            tag if NUMBERS.contains(&tag) => rest.numbers(1)?,
            tag if TEXTS.contains(&tag) => rest.texts(1)?,
            COMPACT_CURSOR => {
                rest.numbers(1)?;
                rest.texts(1)?;
            }
            DELETED_FILE => rest.numbers(2)?,
            NEW_FILE => {
                rest.numbers(3)?;
                rest.texts(2)?;
                rest.numbers(2)?;
                rest.fields_until(1)?;
            }
            FAMILY_DROPPED => {}
            IN_ATOMIC_GROUP => following = Some(rest.number()?),
            NEW_BLOB_FILE => {
                rest.numbers(3)?;
                rest.texts(2)?;
                rest.fields_until(0)?;
            }
            BLOB_GARBAGE => {
                rest.numbers(3)?;
                rest.fields_until(0)?;
            }
            tag if tag & IGNORABLE != 0 => rest.texts(1)?,
            _ => return None,
        }
    }
    following
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    /// Seven bits a byte, the lowest first.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn numbers(&mut self, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| self.number().map(drop))
    }

    /// A length and as many bytes, each.
    fn texts(&mut self, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| {
            let len = usize::try_from(self.number()?).ok()?;
            self.0 = self.0.get(len..)?;
            Some(())
        })
    }

    /// Tagged texts, and behind them the tag `end`.
    fn fields_until(&mut self, end: u64) -> Option<()> {
        while self.number()? != end {
            self.texts(1)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One with a number, a new file with one field, and its family.
    fn edit(group: &[u8]) -> Vec<u8> {
        let new_file = [103, 0, 9, 200, 1, 1, b'a', 1, b'b', 3, 4, 5, 1, 7, 1];
        [&[2, 0x80, 1][..], &new_file, &[0xc8, 1, 3], group].concat()
    }

    #[test]
    fn only_a_record_of_a_group_says_what_follows() {
        assert_eq!(following(&edit(&[0xac, 2, 4])), Some(4));
        assert_eq!(following(&edit(&[0xac, 2, 0])), Some(0));
        assert_eq!(following(&edit(&[])), None);
        assert_eq!(
            following(&edit(&[0xac, 2, 4, 99])),
            None,
            "and a strange tag"
        );
        let mut cut = edit(&[0xac, 2, 4]);
        while cut.pop().is_some() {
            assert_eq!(following(&cut), None, "{cut:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            following(&bytes);
        }
    }
}
