use std::{
    hash::{Hash, Hasher},
    time::Instant,
};

use bytes::Bytes;
use trellis_rpc::queue::{decode_batch, encode_batch};
use trellis_types::OriginId;

use super::{Batches, Handed, Rider};

impl Batches {
    /// Everything that decides what happens next. Numbers of batches count from the last one, so
    /// that it does not matter how many there have been.
    pub(crate) fn fingerprint(&self, begin: Instant, hash: &mut impl Hasher) {
        let ago = |oldest: Option<Instant>| oldest.map(|oldest| oldest.duration_since(begin));
        (self.last_seq, self.last_number - self.handed).hash(hash);
        self.waiting.len().hash(hash);
        for batch in &self.waiting {
            (self.last_number - batch.number, ago(batch.oldest)).hash(hash);
            batch.riders.hash(hash);
            batch
                .builder
                .clone()
                .finish(OriginId::default(), 0)
                .hash(hash);
        }
        self.flight.len().hash(hash);
        for batch in &self.flight {
            (
                self.last_number - batch.number,
                batch.seq,
                ago(batch.oldest),
            )
                .hash(hash);
            batch.riders.hash(hash);
            batch.bytes.hash(hash);
        }
    }

    /// How long ago a batch of that number was, in batches.
    pub(crate) fn age_of(&self, number: u64) -> u64 {
        self.last_number + 1 - number
    }

    /// Breaks a rule: everything that is not applied becomes one new batch under the first seq.
    /// Returns the riders and the number that they ride under now.
    pub(crate) fn join_all(&mut self, origin: OriginId) -> Option<(u64, Vec<Rider>)> {
        while self.hand(origin).is_some() {}
        let first = self.flight.pop_front()?;
        let mut joined = decode(first.bytes)?;
        let mut all = Handed {
            bytes: Bytes::new(),
            ..first
        };
        for batch in self.flight.drain(..) {
            joined.items.extend(decode(batch.bytes)?.items);
            all.riders.extend(batch.riders);
            all.budget += batch.budget;
        }
        all.bytes = encode_batch(&joined);
        self.last_seq = all.seq;
        let (number, riders) = (all.number, all.riders.clone());
        self.flight.push_back(all);
        Some((number, riders))
    }
}

fn decode(bytes: Bytes) -> Option<trellis_queue::Batch> {
    decode_batch(bytes).ok()
}
