use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::scan::{judge, scan};
use super::sector::{Head, SECTOR};
use super::segment::{Files, Segment};

/// Leaves in the log in `dir` what a power cut leaves of a write of `written.len()` sectors: those
/// that are true.
///
/// # Errors
///
/// It has no room for so many, it is damaged, or what the disk said.
pub(crate) fn tear(dir: &Path, written: &[bool]) -> io::Result<()> {
    let Files { found, .. } = Segment::all(dir)?;
    let scanned: io::Result<Vec<_>> = found.into_iter().map(|(_, it)| scan(it)).collect();
    let chain = judge(scanned?)?;
    let count = u32::try_from(written.len()).map_err(io::Error::other)?;
    let behind = chain
        .live
        .last()
        .map(|(segment, whole)| (segment, whole.end));
    let place = behind
        .into_iter()
        .chain(chain.spare.iter().map(|segment| (segment, 0)))
        .find(|(segment, begin)| segment.sectors - begin >= count);
    let (segment, begin) = place.ok_or_else(|| io::Error::other("no room for so many sectors"))?;
    let file = File::options().write(true).open(&segment.path)?;
    for (index, _) in (0..).zip(written).filter(|(_, written)| **written) {
        let head = Head {
            group: chain.last + 1,
            attempt: 0,
            index,
            count,
        };
        let mut sector = [b't'; SECTOR];
        head.seal(&mut sector);
        file.write_all_at(&sector, u64::from(begin + index) * SECTOR as u64)?;
    }
    Ok(())
}
