use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, FlushOptions,
    IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions,
};
use trellis_consensus::{Loaded, Membership, Position};
use trellis_queue::{Key, Machine, Row};
use trellis_rpc::queue::{append_row, decode_row};
use trellis_types::{
    JobId,
    seeded::{Bug, planted},
};

use super::front::Known;
use super::window::Window;
use crate::codec;
use crate::journal;
use crate::options::StateOptions;
use crate::rocks::{self, Troubles};

/// Small things: applied index, membership, the machine's one row of counters, orphans.
const META: &str = "meta";
const TUBES: &str = "tubes";
const JOBS: &str = "jobs";
const BODIES: &str = "bodies";
const ORIGINS: &str = "origins";
const WAITS: &str = "waits";

const FAMILIES: [&str; 6] = [META, TUBES, JOBS, BODIES, ORIGINS, WAITS];
/// Families whose rows are all the machine is made of, beside the one in `META`.
const ROW_FAMILIES: [&str; 4] = [TUBES, ORIGINS, JOBS, WAITS];

const APPLIED: &[u8] = b"applied";
const MEMBERSHIP: &[u8] = b"membership";
const MACHINE: &[u8] = b"machine";
/// The machine's digest at the applied index: what is loaded has the same, or is not what was
/// written (a write that the disk lost or put elsewhere has a good checksum, faults D36).
const DIGEST: &[u8] = b"digest";
const ORPHAN: &[u8] = b"orphan/";

/// One RocksDB instance with a state in it. Installing a snapshot makes a new one; the old one's
/// files go when the last reader has let go of it.
pub(crate) struct Generation {
    db: DB,
    troubles: Troubles,
    number: u64,
    // Dropped after the instance, in this order.
    remains: Remains,
}

/// Removes the folder, if nobody wants it any more.
struct Remains {
    path: PathBuf,
    obsolete: AtomicBool,
}

impl Drop for Remains {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Relaxed)
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            // The next start removes it.
            tracing::warn!(path = %self.path.display(), %error, "an old state could not be removed");
        }
    }
}

impl Generation {
    /// Opens or creates the state in `path`.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the files are damaged; else what the disk said.
    pub(crate) fn open(path: &Path, number: u64, options: &StateOptions) -> io::Result<Self> {
        journal::check(path)?;
        let is_there = path.join("CURRENT").exists();
        if !is_there && (number > 1 || has_tables(path)?) {
            return Err(codec::invalid(format!(
                "generation {number} is missing or without its CURRENT"
            )));
        }
        let (mut instance, troubles) = rocks::instance_options();
        instance.create_if_missing(!is_there);
        instance.set_max_background_jobs(3);
        instance.set_max_open_files(1024);
        // The write-ahead log is off, so a flush of one family alone would leave a state that
        // never was.
        instance.set_atomic_flush(true);
        let families = family_options(options);
        let db = DB::open_cf_descriptors(&instance, path, families).map_err(rocks::open_error)?;
        let generation = Self {
            db,
            troubles,
            number,
            remains: Remains {
                path: path.to_owned(),
                obsolete: AtomicBool::new(false),
            },
        };
        generation.drop_orphans()?;
        Ok(generation)
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The folder goes as soon as nobody reads in it any more.
    pub(crate) fn retire(&self) {
        self.remains.obsolete.store(true, Ordering::Relaxed);
    }

    /// Which entry the state is at, and the membership then.
    pub(crate) fn position(&self) -> io::Result<(Option<Position>, Membership)> {
        position_of(&self.db)
    }

    /// What windows need not delete because it was never here.
    ///
    /// # Errors
    ///
    /// As [`Generation::load`].
    pub(super) fn known(&self) -> io::Result<Known> {
        let mut known = Known::default();
        let meta = rocks::family(&self.db, META)?;
        if let Some(row) = self.db.get_cf(meta, MACHINE).map_err(rocks::io_error)?
            && let Row::Meta(row) = decode_row(&row).map_err(codec::invalid)?
        {
            known.next_tube = row.next_tube;
        }
        let waits = rocks::family(&self.db, WAITS)?;
        for item in self.db.iterator_cf(waits, IteratorMode::Start) {
            let (_, row) = item.map_err(rocks::io_error)?;
            if let Row::Wait(row) = decode_row(&row).map_err(codec::invalid)? {
                known.waits.insert(row.session);
            }
        }
        Ok(known)
    }

    /// Reads everything but the bodies, about 1 µs a job.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it is no state; else what the disk said.
    pub(crate) fn load(&self) -> io::Result<Loaded> {
        load_of(&self.db)
    }

    /// Writes a window as one batch. It is durable with the next flush.
    ///
    /// # Errors
    ///
    /// What the disk said.
    pub(crate) fn write(&self, window: &Window) -> io::Result<()> {
        let meta = rocks::family(&self.db, META)?;
        let tubes = rocks::family(&self.db, TUBES)?;
        let jobs = rocks::family(&self.db, JOBS)?;
        let bodies = rocks::family(&self.db, BODIES)?;
        let origins = rocks::family(&self.db, ORIGINS)?;
        let waits = rocks::family(&self.db, WAITS)?;
        let mut batch = WriteBatch::with_capacity_bytes(window.bytes);
        // In the order of the keys the disk finds one beside the other.
        let mut rows: Vec<_> = window.rows.iter().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        for (key, row) in rows {
            let (family, name) = match key {
                Key::Meta => (meta, Name::of(MACHINE)),
                Key::Tube(tube) => (tubes, Name::numbers(&[tube.0])),
                Key::Job(job) => (jobs, Name::numbers(&[job.0])),
                Key::Origin(node) => (origins, Name::numbers(&[node.0])),
                Key::Wait(session) => {
                    let origin = session.origin;
                    let name = [origin.node.0, origin.run.0, session.connection.0];
                    (waits, Name::numbers(&name))
                }
            };
            match row {
                Some(row) => batch.put_cf(family, name, &window.text[row.clone()]),
                None => batch.delete_cf(family, name),
            }
        }
        for (job, body) in &window.bodies {
            batch.put_cf(bodies, job.0.to_be_bytes(), body);
        }
        for job in &window.dropped {
            batch.delete_cf(bodies, job.0.to_be_bytes());
        }
        for job in &window.orphaned {
            batch.put_cf(meta, orphan(*job), b"");
        }
        for job in &window.settled {
            batch.delete_cf(meta, orphan(*job));
        }
        if planted(Bug::AppliedIndexNotAtomic) {
            let rows = std::mem::take(&mut batch);
            self.db
                .write_opt(rows, &unlogged())
                .map_err(rocks::io_error)?;
        }
        batch.put_cf(meta, APPLIED, codec::encode_position(window.applied));
        batch.put_cf(meta, DIGEST, window.digest.to_be_bytes());
        batch.put_cf(
            meta,
            MEMBERSHIP,
            codec::encode_membership(&window.membership),
        );
        self.db
            .write_opt(batch, &unlogged())
            .map_err(rocks::io_error)
    }

    /// Makes everything written before durable; blocks until it is.
    ///
    /// # Errors
    ///
    /// What the disk said, now or in the background before.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let mut families = Vec::with_capacity(FAMILIES.len());
        for name in FAMILIES {
            families.push(rocks::family(&self.db, name)?);
        }
        let mut how = FlushOptions::default();
        how.set_wait(true);
        self.db
            .flush_cfs_opt(&families, &how)
            .map_err(rocks::io_error)?;
        self.health()
    }

    /// `Err` if a flush or compaction failed behind our back.
    pub(crate) fn health(&self) -> io::Result<()> {
        rocks::health(&self.db, &self.troubles)
    }

    /// The body of `job`, if it is there.
    pub(crate) fn body(&self, job: JobId) -> io::Result<Option<Bytes>> {
        let bodies = rocks::family(&self.db, BODIES)?;
        let found = self.db.get_cf(bodies, job.0.to_be_bytes());
        Ok(found.map_err(rocks::io_error)?.map(Bytes::from))
    }

    /// Hard links of all files into the new folder `path`, consistent and durable, with all that
    /// was written before.
    pub(crate) fn checkpoint(&self, path: &Path) -> io::Result<()> {
        Checkpoint::new(&self.db)
            .and_then(|checkpoint| checkpoint.create_checkpoint(path))
            .map_err(rocks::io_error)
    }

    /// Bytes on disk and in memtables, about.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |name: &str| -> u64 {
            let Some(family) = self.db.cf_handle(name) else {
                return 0;
            };
            [
                "rocksdb.live-sst-files-size",
                "rocksdb.live-blob-file-size",
                "rocksdb.cur-size-all-mem-tables",
            ]
            .iter()
            .filter_map(|property| self.db.property_int_value_cf(family, *property).ok()?)
            .sum()
        };
        FAMILIES.iter().map(|name| of(name)).sum()
    }

    /// Gives room of deleted rows back: for a disk that is nearly full.
    pub(crate) fn compact(&self) {
        for name in FAMILIES {
            if let Some(family) = self.db.cf_handle(name) {
                self.db
                    .compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
            }
        }
    }

    /// Bodies that were owed when the process ended, and whose job was gone.
    fn drop_orphans(&self) -> io::Result<()> {
        let meta = rocks::family(&self.db, META)?;
        let bodies = rocks::family(&self.db, BODIES)?;
        let mut batch = WriteBatch::default();
        for item in self.db.iterator_cf(
            meta,
            IteratorMode::From(ORPHAN, rocksdb::Direction::Forward),
        ) {
            let (key, _) = item.map_err(rocks::io_error)?;
            let Some(job) = key.strip_prefix(ORPHAN) else {
                break;
            };
            batch.delete_cf(bodies, job);
            batch.delete_cf(meta, &key);
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.db
            .write_opt(batch, &unlogged())
            .map_err(rocks::io_error)
    }
}

/// Reads the state in the folder `path` as a node that starts with it would, without changing
/// anything there. Bodies are not read.
///
/// # Errors
///
/// `InvalidData` if that is no state; else what the disk said.
pub(crate) fn look_through(path: &Path) -> io::Result<()> {
    load_of(&open_to_read(path)?).map(drop)
}

/// Which entry the state in the folder `path` is at, without changing anything there.
///
/// # Errors
///
/// `InvalidData` if that is no state or it has no position; else what the disk said.
pub(crate) fn position_in(path: &Path) -> io::Result<(Position, Membership)> {
    let (applied, membership) = position_of(&open_to_read(path)?)?;
    let applied = applied.ok_or_else(|| codec::invalid("a state without a position"))?;
    Ok((applied, membership))
}

fn open_to_read(path: &Path) -> io::Result<DB> {
    let (instance, _) = rocks::instance_options();
    DB::open_cf_for_read_only(&instance, path, FAMILIES, false).map_err(rocks::open_error)
}

fn load_of(db: &DB) -> io::Result<Loaded> {
    let (applied, membership) = position_of(db)?;
    if applied.is_none() {
        return Ok(Loaded {
            machine: Machine::new(),
            applied,
            membership,
        });
    }
    let mut rows: Vec<io::Result<Row>> = Vec::new();
    let meta = rocks::family(db, META)?;
    if let Some(row) = db.get_cf(meta, MACHINE).map_err(rocks::io_error)? {
        rows.push(decode_row(&row).map_err(codec::invalid));
    }
    let mut families = Vec::new();
    for name in ROW_FAMILIES {
        let family = rocks::family(db, name)?;
        let mut how = ReadOptions::default();
        how.fill_cache(false);
        families.push(db.iterator_cf_opt(family, how, IteratorMode::Start));
    }
    let rows = rows
        .into_iter()
        .chain(families.into_iter().flatten().map(|item| {
            let (_, row) = item.map_err(rocks::io_error)?;
            decode_row(&row).map_err(codec::invalid)
        }));
    // The machine takes rows, not errors: the first error ends them and is looked at after.
    let mut failed = None;
    let machine =
        Machine::load(rows.map_while(|row| row.map_err(|error| failed = Some(error)).ok()));
    if let Some(error) = failed {
        return Err(error);
    }
    let machine = machine.map_err(|bad| codec::invalid(bad.0))?;
    // One that an older version wrote has none.
    if let Some(digest) = db.get_cf(meta, DIGEST).map_err(rocks::io_error)?
        && digest != machine.digest().to_be_bytes()
    {
        return Err(codec::invalid(format!(
            "its digest is {:016x}, which is not the one that was written with it",
            machine.digest()
        )));
    }
    Ok(Loaded {
        machine,
        applied,
        membership,
    })
}

fn position_of(db: &DB) -> io::Result<(Option<Position>, Membership)> {
    let meta = rocks::family(db, META)?;
    let get = |name: &[u8]| db.get_cf(meta, name).map_err(rocks::io_error);
    let applied = match get(APPLIED)? {
        Some(value) => Some(codec::decode_position(&value)?),
        None => None,
    };
    let membership = match get(MEMBERSHIP)? {
        Some(value) => codec::decode_membership(&value)?,
        None => Membership::default(),
    };
    Ok((applied, membership))
}

/// The bytes under which a row lies.
enum Name {
    Of(&'static [u8]),
    Numbers { bytes: [u8; 24], len: usize },
}

impl Name {
    fn of(name: &'static [u8]) -> Self {
        Self::Of(name)
    }

    /// Up to three numbers, so that their order is that of the keys.
    fn numbers(numbers: &[u64]) -> Self {
        let mut bytes = [0; 24];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        Self::Numbers {
            bytes,
            len: 8 * numbers.len().min(3),
        }
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Of(name) => name,
            Self::Numbers { bytes, len } => &bytes[..*len],
        }
    }
}

/// Without a write-ahead log: durable with the next flush.
fn unlogged() -> WriteOptions {
    let mut how = WriteOptions::default();
    how.disable_wal(true);
    how
}

fn orphan(job: JobId) -> Vec<u8> {
    [ORPHAN, &job.0.to_be_bytes()].concat()
}

/// Whether there is anything in `path` that a state has written once.
fn has_tables(path: &Path) -> io::Result<bool> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(items) => {
            for item in items {
                if item?.path().extension().is_some_and(|kind| kind == "sst") {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

fn family_options(options: &StateOptions) -> Vec<ColumnFamilyDescriptor> {
    let blocks = Cache::new_lru_cache(options.block_cache_bytes);
    let family = |name: &str| {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&blocks);
        table.set_bloom_filter(10.0, false);
        let mut family = Options::default();
        family.set_block_based_table_factory(&table);
        family.set_compression_type(DBCompressionType::Lz4);
        family.set_max_write_buffer_number(4);
        let large = name == JOBS || name == BODIES;
        family.set_write_buffer_size(if large {
            options.memtable_bytes
        } else {
            options.memtable_bytes / 8
        });
        if name == BODIES {
            family.set_enable_blob_files(true);
            family.set_min_blob_size(options.blob_bytes_min);
            family.set_blob_compression_type(DBCompressionType::Lz4);
            family.set_enable_blob_gc(true);
        }
        ColumnFamilyDescriptor::new(name, family)
    };
    ["default"]
        .into_iter()
        .chain(FAMILIES)
        .map(family)
        .collect()
}

/// Appends the row of `key` to `text`, as it lies on disk; where it is there. `None` if there is no
/// such row.
pub(crate) fn encode(machine: &Machine, key: Key, text: &mut Vec<u8>) -> Option<Range<usize>> {
    let row = machine.row(key)?;
    let start = text.len();
    append_row(&row, text);
    Some(start..text.len())
}
