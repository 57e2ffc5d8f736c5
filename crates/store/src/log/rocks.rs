use std::io;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use rocksdb::{
    ColumnFamilyDescriptor, DB, DBCompressionType, DBRecoveryMode, Direction, IteratorMode,
    Options, ReadOptions, WriteBatch, WriteOptions,
};

use trellis_types::seeded::{Bug, planted};

use super::engine::{LogEngine, Step};
use crate::journal;
use crate::options::LogOptions;
use crate::rocks::{self, Troubles};

/// Frames by (group, index). The group is 0 until there are several.
const ENTRIES: &str = "log";
/// The vote, the purge point, `committed`, the node's identity.
const HARD: &str = "hard";

const GROUP: u16 = 0;

/// The log in a RocksDB instance of its own, whose write-ahead log is synced by every write.
///
/// Entries normally die before a compaction would copy them, so the triggers are high and nothing
/// is compressed.
pub(crate) struct RocksLog {
    db: DB,
    troubles: Troubles,
    sync: bool,
}

impl RocksLog {
    pub(crate) fn open(dir: &Path, options: &LogOptions) -> io::Result<Self> {
        if !planted(Bug::TornTailInTheMiddle) {
            journal::check(dir)?;
        }
        let (mut instance, troubles) = rocks::instance_options();
        instance.set_max_open_files(256);
        // A cut-off last record is what a crash leaves behind (that it is no more than that, the
        // look at the journals has shown). Anything else that is wrong in the write-ahead log
        // stops the opening; the default would drop all that follows, silently.
        instance.set_wal_recovery_mode(if planted(Bug::TornTailInTheMiddle) {
            DBRecoveryMode::PointInTime
        } else {
            DBRecoveryMode::TolerateCorruptedTailRecords
        });
        instance.set_track_and_verify_wals_in_manifest(true);
        // Else the rarely written family would keep every old write-ahead log alive.
        instance.set_atomic_flush(true);

        let mut entries = Options::default();
        entries.set_compression_type(DBCompressionType::None);
        entries.set_write_buffer_size(options.memtable_bytes);
        entries.set_max_write_buffer_number(4);
        entries.set_level_zero_file_num_compaction_trigger(32);
        entries.set_level_zero_slowdown_writes_trigger(64);
        entries.set_level_zero_stop_writes_trigger(128);
        let mut hard = Options::default();
        hard.set_write_buffer_size(1024 * 1024);

        let db = DB::open_cf_descriptors(
            &instance,
            dir,
            [
                ColumnFamilyDescriptor::new("default", Options::default()),
                ColumnFamilyDescriptor::new(ENTRIES, entries),
                ColumnFamilyDescriptor::new(HARD, hard),
            ],
        )
        .map_err(rocks::open_error)?;
        Ok(Self {
            db,
            troubles,
            sync: options.sync,
        })
    }
}

impl LogEngine for RocksLog {
    fn write(&self, steps: &[Step<'_>]) -> io::Result<()> {
        let entries = rocks::family(&self.db, ENTRIES)?;
        let hard = rocks::family(&self.db, HARD)?;
        let mut batch = WriteBatch::default();
        for step in steps {
            match step {
                Step::Put { index, frame } => batch.put_cf(entries, key(*index), frame),
                Step::Remove { range } => {
                    batch.delete_range_cf(entries, key(range.start), key(range.end));
                }
                Step::Name { name, value } => batch.put_cf(hard, name, value),
            }
        }
        let mut how = WriteOptions::default();
        how.set_sync(self.sync && !planted(Bug::FsyncSkipped));
        self.db.write_opt(batch, &how).map_err(rocks::io_error)
    }

    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        let entries = rocks::family(&self.db, ENTRIES)?;
        let mut how = ReadOptions::default();
        how.set_iterate_upper_bound(key(range.end));
        how.fill_cache(false);
        let from = key(range.start);
        let mode = IteratorMode::From(&from, Direction::Forward);
        let mut found: Vec<(u64, Bytes)> = Vec::new();
        let mut bytes = 0usize;
        for item in self.db.iterator_cf_opt(entries, how, mode) {
            let (at, frame) = item.map_err(rocks::io_error)?;
            let index = index_of(&at)?;
            if let Some((before, _)) = found.last()
                && index != before + 1
            {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("index {} is followed by {index}", before),
                ));
            }
            bytes = bytes.saturating_add(frame.len());
            found.push((index, Bytes::from(frame)));
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(found)
    }

    fn named(&self, name: &str) -> io::Result<Option<Bytes>> {
        let hard = rocks::family(&self.db, HARD)?;
        let value = self.db.get_cf(hard, name).map_err(rocks::io_error)?;
        Ok(value.map(Bytes::from))
    }

    fn reclaim(&self, index: u64) -> io::Result<()> {
        let entries = rocks::family(&self.db, ENTRIES)?;
        self.db
            .delete_file_in_range_cf(entries, key(0), key(index))
            .map_err(rocks::io_error)?;
        // Files of the newest level are not dropped by that, and normally all are of that level.
        // This passes over what is removed without reading it.
        self.db
            .compact_range_cf(entries, Some(key(0)), Some(key(index)));
        self.health()
    }

    fn health(&self) -> io::Result<()> {
        rocks::health(&self.db, &self.troubles)
    }
}

fn key(index: u64) -> [u8; 10] {
    let mut key = [0; 10];
    key[..2].copy_from_slice(&GROUP.to_be_bytes());
    key[2..].copy_from_slice(&index.to_be_bytes());
    key
}

fn index_of(key: &[u8]) -> io::Result<u64> {
    match key.split_at_checked(2) {
        Some((_, index)) => index
            .try_into()
            .map(u64::from_be_bytes)
            .map_err(|_| bad_key(key)),
        None => Err(bad_key(key)),
    }
}

fn bad_key(key: &[u8]) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a key of {} bytes", key.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What RocksDB counts of its write-ahead log: writes, syncs.
    fn counted(log: &RocksLog) -> (u64, u64) {
        let stats = log
            .db
            .property_value("rocksdb.dbstats")
            .ok()
            .flatten()
            .unwrap_or_default();
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("Cumulative WAL: "))
            .unwrap_or_else(|| panic!("no line about the write-ahead log in {stats}"));
        // Like "7 writes, 7 syncs, 1.00 writes per sync, …"; thousands have a unit.
        let mut numbers = line.split(", ").map(|part| {
            let number = part.split(' ').next().unwrap_or_default();
            number.parse().unwrap_or_else(|_| panic!("{line}"))
        });
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    /// Promise P1 hangs on this line alone, and a file that was written looks like one that was
    /// synced until the power goes.
    #[test]
    fn every_write_is_synced_before_it_returns() {
        let folder = tempfile::tempdir().unwrap();
        let log = RocksLog::open(folder.path(), &LogOptions::default()).unwrap();
        let (_, before) = counted(&log);
        for index in 0..7 {
            let frame = [b'x'; 100];
            let put = Step::Put {
                index,
                frame: &frame,
            };
            let name = Step::Name {
                name: "vote",
                value: vec![1],
            };
            log.write(&[put]).unwrap();
            log.write(&[name]).unwrap();
            assert_eq!(counted(&log).1, before + 2 * (index + 1));
        }
    }
}
