/// A disk writes this as a whole or not at all, in bytes.
pub(crate) const SECTOR: usize = 512;
/// Bytes of the head of each: checksum, attempt, group, place in the group, size of the group.
const HEAD: usize = 24;
/// Bytes of a group's content that one sector takes.
pub(super) const ROOM: usize = SECTOR - HEAD;

/// What every checksum begins with, so that a sector of something else is none of ours.
const SEED: u32 = 0x7472_6c67;

/// What a sector says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The group it belongs to. Groups are numbered without holes, for ever, from 1.
    pub(super) group: u64,
    /// Drawn at each opening: tells a group from one of the same number that a crash left
    /// unfinished.
    pub(super) attempt: u32,
    /// Which sector of the group it is, from 0.
    pub(super) index: u32,
    /// How many sectors the group has.
    pub(super) count: u32,
}

/// The bytes of a sector are not those that were written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spoilt;

impl Head {
    /// Writes the head of `sector`, whose content is there already.
    pub(super) fn seal(self, sector: &mut [u8; SECTOR]) {
        sector[4..8].copy_from_slice(&self.attempt.to_le_bytes());
        sector[8..16].copy_from_slice(&self.group.to_le_bytes());
        sector[16..20].copy_from_slice(&self.index.to_le_bytes());
        sector[20..24].copy_from_slice(&self.count.to_le_bytes());
        let sum = checksum(sector);
        sector[..4].copy_from_slice(&sum.to_le_bytes());
    }

    /// The head of `sector`; `None` if it was never written since its file was made.
    pub(super) fn read(sector: &[u8; SECTOR]) -> Result<Option<Self>, Spoilt> {
        if sector[..HEAD] == [0; HEAD] && sector.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let [sum, attempt, low, high, index, count] =
            [0, 4, 8, 12, 16, 20].map(|at| word(sector, at));
        let head = Self {
            group: u64::from(high) << 32 | u64::from(low),
            attempt,
            index,
            count,
        };
        let is_sound = sum == checksum(sector) && head.group > 0 && index < count;
        is_sound.then_some(Some(head)).ok_or(Spoilt)
    }

    /// Whether `next` lies right behind this one in the same group.
    pub(super) fn goes_on_with(self, next: Self) -> bool {
        let wanted = Self {
            index: self.index.wrapping_add(1),
            ..self
        };
        wanted == next
    }

    pub(super) fn is_last(self) -> bool {
        self.index + 1 == self.count
    }
}

/// What of the group's content lies in `sector`.
pub(super) fn content(sector: &[u8; SECTOR]) -> &[u8] {
    &sector[HEAD..]
}

/// Where in a group's sectors the byte `at` of its content lies.
pub(super) fn offset(at: usize) -> usize {
    at / ROOM * SECTOR + HEAD + at % ROOM
}

/// How many sectors a content of so many bytes takes; one at least.
pub(super) fn sectors(bytes: usize) -> usize {
    bytes.div_ceil(ROOM).max(1)
}

fn checksum(sector: &[u8; SECTOR]) -> u32 {
    crc32c::crc32c_append(SEED, &sector[4..])
}

fn word(sector: &[u8; SECTOR], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&sector[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_sector_is_noticed() {
        let head = Head {
            group: 7,
            attempt: 9,
            index: 0,
            count: 1,
        };
        let mut sector = [0; SECTOR];
        sector[HEAD..].fill(b'x');
        head.seal(&mut sector);
        assert_eq!(Head::read(&sector), Ok(Some(head)));
        for bit in 0..SECTOR * 8 {
            let mut flipped = sector;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::read(&flipped), Err(Spoilt), "bit {bit}");
            let mut flipped = [0; SECTOR];
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::read(&flipped), Err(Spoilt), "bit {bit} of zeros");
        }
        assert_eq!(Head::read(&[0; SECTOR]), Ok(None));
    }
}
