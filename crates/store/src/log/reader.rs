use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use futures::Stream;
use openraft::OptionalSend;
use openraft::storage::RaftLogReader;
use trellis_consensus::raft::TypeConfig;

use super::writer::Shared;
use super::{Entry, Vote};
use crate::codec;

/// Reads the log for replication and apply: from memory, and for those who lag from disk.
#[derive(Clone)]
pub struct LogReader {
    pub(super) shared: Arc<Shared>,
}

/// What memory can say about a range, and what is left for the disk.
struct Found {
    /// Lies before `entries`.
    disk: Range<u64>,
    entries: Vec<Entry>,
    /// [`View::cuts`](super::view::View) at that moment.
    cuts: u64,
}

impl LogReader {
    /// The entries of `range` that the log contains; at most `bytes_max` bytes, but one at least.
    async fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<Entry>> {
        loop {
            let found = self.look(&range, bytes_max);
            if found.disk.is_empty() {
                return Ok(found.entries);
            }
            let whole = found.disk.clone();
            let (mut entries, complete) = self.read_disk(whole.clone(), bytes_max).await?;
            if self.shared.view.read().cuts != found.cuts {
                // Truncated or purged meanwhile; what came from disk may be of two times.
                continue;
            }
            let begins = entries.first().map(codec::index);
            if begins != Some(whole.start) || (complete && entries.len() as u64 != len(&whole)) {
                return Err(self.damage(format_args!(
                    "entries {} to {} are not all there",
                    whole.start,
                    whole.end - 1
                )));
            }
            if complete && bytes_max == usize::MAX {
                entries.extend(found.entries);
            }
            return Ok(entries);
        }
    }

    fn look(&self, range: &Range<u64>, bytes_max: usize) -> Found {
        let view = self.shared.view.read();
        let start = range.start.max(view.first);
        let end = range.end.min(view.end());
        let tail = view.tail.first();
        let (disk, entries) = if start >= end {
            (0..0, Vec::new())
        } else if start >= tail {
            (0..0, view.tail.read(start, end, bytes_max))
        } else {
            let disk = start..end.min(tail);
            // What lies in memory behind it is wanted only if nothing bounds the answer.
            let entries = match bytes_max {
                usize::MAX => view.tail.read(tail, end, bytes_max),
                _ => Vec::new(),
            };
            (disk, entries)
        };
        Found {
            disk,
            entries,
            cuts: view.cuts,
        }
    }

    /// What is on disk of `range`, and whether the bytes sufficed for all of it.
    async fn read_disk(
        &self,
        range: Range<u64>,
        bytes_max: usize,
    ) -> io::Result<(Vec<Entry>, bool)> {
        let shared = self.shared.clone();
        shared.metrics.disk_reads.inc();
        let read = move || -> io::Result<(Vec<Entry>, bool)> {
            let frames = shared.engine.read(range.clone(), bytes_max)?;
            let bytes: usize = frames.iter().map(|(_, frame)| frame.len()).sum();
            let mut entries = Vec::with_capacity(frames.len());
            for (index, frame) in frames {
                let entry = codec::decode_entry(frame)?;
                if codec::index(&entry) != index {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("another entry lies at index {index}"),
                    ));
                }
                entries.push(entry);
            }
            Ok((entries, bytes < bytes_max))
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(self
                .shared
                .failure
                .because("the raft log can't be read", &error)),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// A log that can't be read back is as bad as one that can't be written: it must neither be
    /// replicated with a hole nor be applied.
    fn damage(&self, what: impl std::fmt::Display) -> io::Error {
        self.shared
            .failure
            .damaged(format_args!("the raft log is damaged: {what}"))
    }

    fn clamp(&self, range: &impl RangeBounds<u64>) -> Range<u64> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let view = self.shared.view.read();
        start.max(view.first)..end.min(view.end())
    }
}

fn len(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

impl RaftLogReader<TypeConfig> for LogReader {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let range = self.clamp(&range);
        self.read(range, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        // If `start` was purged meanwhile this begins behind it, and openraft sends it all the same.
        // Who gets it refuses the gap (`consensus`, `front.rs`), which ends the stream; the next one
        // begins with a snapshot. Of nothing openraft would make a heartbeat, again and again.
        self.read(start..end, self.shared.options.read_bytes).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.shared.view.read().vote)
    }

    /// Apply reads here: chunk by chunk, so that a long backlog is never in memory at once.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let reader = self.clone();
        let range = self.clamp(&range);
        let start = (reader, range, VecDeque::<Entry>::new());
        futures::stream::try_unfold(start, |(reader, range, mut ready)| async move {
            if ready.is_empty() && !range.is_empty() {
                let chunk = reader
                    .read(range.clone(), reader.shared.options.read_bytes)
                    .await?;
                if chunk.is_empty() {
                    return Err(io::Error::other(format!(
                        "entry {} was removed while it was read",
                        range.start
                    )));
                }
                ready = chunk.into();
            }
            Ok(ready.pop_front().map(|entry| {
                let rest = codec::index(&entry) + 1..range.end;
                (entry, (reader, rest, ready))
            }))
        })
    }
}
