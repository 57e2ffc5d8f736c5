//! The disk alone: what no server on it can be faster than.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;

/// Writes that are timed: enough for a 99th percentile, and done within a second on most disks.
const TRIES: usize = 200;
const WRITE_BYTES: usize = 4096;

/// How long it takes to append 4 KiB to a file and make them durable, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sync {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// Times it now, in `dir`.
pub(crate) fn probe(dir: &Path) -> anyhow::Result<Sync> {
    let mut file = tempfile::tempfile_in(dir)
        .with_context(|| format!("can't write into {}", dir.display()))?;
    let mut micros = Vec::with_capacity(TRIES);
    for _ in 0..TRIES {
        let begun = Instant::now();
        file.write_all(&[0x5a; WRITE_BYTES])?;
        file.sync_data()?;
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    let at = |share: usize| micros.get(TRIES * share / 100).copied().unwrap_or(f64::NAN);
    Ok(Sync {
        p50_us: at(50),
        p99_us: at(99),
    })
}
