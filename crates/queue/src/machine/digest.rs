//! The digest: one number that is equal on two nodes exactly if (but for chance) their states are.
//!
//! It is the wrapping sum of one fingerprint per row, kept up to date row by row, so asking costs
//! nothing and it does not matter by which way a state was reached. The hash is our own because it
//! must be the same on every platform and in every version.

use trellis_types::{OriginId, SessionId};

use super::Machine;
use crate::{JobState, Key, Row};

impl Machine {
    /// Sums up the whole state but the bodies (their CRCs are in it).
    ///
    /// Source: architecture, promise P7.
    pub fn digest(&self) -> u64 {
        self.sum
    }

    /// What the row `key` adds to the digest; nothing if there is none.
    pub(super) fn fingerprint(&self, key: Key) -> u64 {
        self.row(key).map_or(0, |row| fingerprint(&row))
    }

    /// The digest, counted from scratch.
    pub(super) fn full_sum(&self) -> u64 {
        self.rows()
            .fold(0, |sum, row| sum.wrapping_add(fingerprint(&row)))
    }
}

/// Hashes every field of a row, in a fixed order, as 64-bit words.
fn fingerprint(row: &Row) -> u64 {
    match row {
        Row::Meta(row) => {
            let mut hash = Hash::of_kind(1);
            hash.word(row.now.0);
            hash.word(row.next_job);
            hash.word(row.next_tube);
            hash.word(row.next_sequence);
            hash.word(row.total_jobs);
            hash.word(row.job_timeouts);
            hash.word(u64::from(row.puts_refused));
            hash.word(row.jobs_max);
            hash.word(row.job_bytes_max);
            hash.word(row.tubes_max);
            hash.word(u64::from(row.watch_names_max));
            hash.word(u64::from(row.feature_level));
            row.retired.iter().for_each(|node| hash.word(node.0));
            hash.end()
        }
        Row::Tube(row) => {
            let mut hash = Hash::of_kind(2);
            hash.word(row.id.0);
            hash.text(row.name.as_str());
            hash.word(u64::from(row.pause.0));
            hash.word(row.pause_until.0);
            hash.word(row.total_jobs);
            hash.word(row.deletes);
            hash.word(row.pauses);
            row.references
                .iter()
                .for_each(|origin| hash.origin(*origin));
            hash.end()
        }
        Row::Job(row) => {
            let mut hash = Hash::of_kind(3);
            hash.word(row.id.0);
            hash.word(row.order);
            hash.word(row.tube.0);
            hash.word(row.created.0);
            hash.pair(row.priority.0, row.delay.0);
            hash.pair(row.ttr.0, row.reserves);
            hash.pair(row.timeouts, row.releases);
            hash.pair(row.buries, row.kicks);
            hash.pair(row.body_bytes, row.body_crc);
            match row.state {
                JobState::Ready => hash.word(1),
                JobState::Delayed { until } => {
                    hash.word(2);
                    hash.word(until.0);
                }
                JobState::Reserved {
                    holder,
                    deadline,
                    sequence,
                } => {
                    hash.word(3);
                    hash.session(holder);
                    hash.word(deadline.0);
                    hash.word(sequence);
                }
                JobState::Buried { sequence } => {
                    hash.word(4);
                    hash.word(sequence);
                }
            }
            hash.end()
        }
        Row::Origin(row) => {
            let mut hash = Hash::of_kind(4);
            hash.word(row.node.0);
            hash.word(row.highest_run.0);
            hash.word(u64::from(row.open));
            hash.word(row.last_seq);
            hash.word(u64::from(row.suspended));
            hash.end()
        }
        Row::Wait(row) => {
            let mut hash = Hash::of_kind(5);
            hash.session(row.session);
            hash.word(row.sequence);
            hash.word(u64::from(row.until.is_some()));
            hash.word(row.until.unwrap_or_default().0);
            row.tubes.iter().for_each(|name| hash.text(name.as_str()));
            hash.end()
        }
    }
}

/// A 64-bit hash in the manner of xxHash: one round per word, mixed at the end.
pub(super) struct Hash(u64);

const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;

impl Hash {
    pub(super) fn of_kind(kind: u64) -> Self {
        Self(PRIME_3.wrapping_mul(kind))
    }

    fn word(&mut self, word: u64) {
        let round = word
            .wrapping_mul(PRIME_2)
            .rotate_left(31)
            .wrapping_mul(PRIME_1);
        self.0 = (self.0 ^ round)
            .rotate_left(27)
            .wrapping_mul(PRIME_1)
            .wrapping_add(PRIME_4);
    }

    fn pair(&mut self, high: u32, low: u32) {
        self.word((u64::from(high) << 32) | u64::from(low));
    }

    fn origin(&mut self, origin: OriginId) {
        self.word(origin.node.0);
        self.word(origin.run.0);
    }

    fn session(&mut self, session: SessionId) {
        self.origin(session.origin);
        self.word(session.connection.0);
    }

    /// With its length before it, so that two texts in a row cannot be taken for two others.
    pub(super) fn text(&mut self, text: &str) {
        self.word(u64::try_from(text.len()).unwrap_or(u64::MAX));
        for chunk in text.as_bytes().chunks(8) {
            let little_endian = chunk
                .iter()
                .rev()
                .fold(0_u64, |word, byte| (word << 8) | u64::from(*byte));
            self.word(little_endian);
        }
    }

    pub(super) fn end(self) -> u64 {
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(PRIME_2);
        mixed = (mixed ^ (mixed >> 29)).wrapping_mul(PRIME_3);
        mixed ^ (mixed >> 32)
    }
}
