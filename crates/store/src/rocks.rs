//! What is the same for every instance of RocksDB.

use std::io;
use std::sync::{Arc, OnceLock};

use rocksdb::{AsColumnFamilyRef, DB, Error, ErrorKind, InfoLogger, LogLevel, Options};

/// The first damage that an instance has met in the background; nothing else tells of which kind a
/// background error was.
#[derive(Clone, Default)]
pub(crate) struct Troubles(Arc<OnceLock<String>>);

impl Troubles {
    fn note(&self, line: &str) {
        if line.contains("Corruption: ") {
            // The first one is the cause of all others.
            let _ = self.0.set(line.to_owned());
        }
    }
}

/// Options of an instance that writes nothing while nothing is asked of it: no periodic dumps, no
/// info log of its own (warnings go to ours).
pub(crate) fn instance_options() -> (Options, Troubles) {
    let troubles = Troubles::default();
    let noted = troubles.clone();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_max_background_jobs(2);
    options.set_info_logger(InfoLogger::new_callback_logger(
        LogLevel::Warn,
        move |level, line| {
            let line = line.trim_end();
            match level {
                LogLevel::Error | LogLevel::Fatal => {
                    noted.note(line);
                    tracing::error!(line, "RocksDB");
                }
                LogLevel::Warn => tracing::warn!(line, "RocksDB"),
                // A thousand lines of options at each start.
                LogLevel::Debug | LogLevel::Info | LogLevel::Header => {
                    tracing::trace!(line, "RocksDB")
                }
            }
        },
    ));
    (options, troubles)
}

/// A family that the instance was opened with.
pub(crate) fn family<'a>(db: &'a DB, name: &str) -> io::Result<&'a impl AsColumnFamilyRef> {
    db.cf_handle(name)
        .ok_or_else(|| io::Error::other(format!("RocksDB has no family {name}")))
}

/// A flush or compaction that failed in the background shows nowhere else until it is too late.
pub(crate) fn health(db: &DB, troubles: &Troubles) -> io::Result<()> {
    match db.property_int_value(rocksdb::properties::BACKGROUND_ERRORS) {
        Ok(None | Some(0)) => Ok(()),
        Ok(Some(count)) => Err(match troubles.0.get() {
            Some(damage) => io::Error::new(io::ErrorKind::InvalidData, damage.clone()),
            None => io::Error::other(format!(
                "RocksDB had {count} background error(s); its warnings say which"
            )),
        }),
        Err(error) => Err(io_error(error)),
    }
}

/// Why an instance that should be there can't be opened. Files that are missing, families that it
/// does not know of, and what the disk can't read any more are damage as well.
pub(crate) fn open_error(error: Error) -> io::Error {
    let unreadable = ["No such file or directory", "Input/output error"];
    let damage = match error.kind() {
        ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::InvalidArgument => true,
        ErrorKind::IOError => unreadable.iter().any(|why| error.as_ref().contains(why)),
        _ => false,
    };
    match damage {
        true => io::Error::new(io::ErrorKind::InvalidData, error.into_string()),
        false => io_error(error),
    }
}

/// RocksDB's words, with a kind that the caller may branch on.
pub(crate) fn io_error(error: Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::Corruption => io::ErrorKind::InvalidData,
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.into_string())
}
