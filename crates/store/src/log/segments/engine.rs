use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use trellis_types::seeded::{Bug, planted};

use super::super::engine::{LogEngine, Step};
use super::group::{self, GROUP_HEAD, Layout};
use super::index::{Index, Run};
use super::line::Line;
use super::scan::{self, Chain};
use super::sector::{self, ROOM, SECTOR};
use super::segment::{Aligned, Files, Segment};
use super::spares::Spares;
use super::stream::{Found, Place, Stream};
use crate::codec;
use crate::folder::sync_dir;
use crate::free_space::free_space;
use crate::options::LogOptions;

/// The log in segments.
pub(crate) struct Segments {
    sync: bool,
    /// Sectors of a segment.
    sectors: u32,
    index: RwLock<Index>,
    pen: Mutex<Pen>,
    spares: Spares,
}

/// Where the next group goes. Whoever writes has it.
struct Pen {
    /// All segments that count, oldest first, with their first groups. The last one is written.
    live: VecDeque<(Arc<Segment>, u64)>,
    file: Option<File>,
    /// The sector behind the last group.
    at: u32,
    /// The number of the next group.
    group: u64,
    attempt: u32,
    layout: Layout,
    /// What is on the disk may not be what was written: nothing more is.
    is_broken: bool,
    /// Syncs that came back.
    syncs: u64,
}

impl Segments {
    /// Opens or makes the log in `dir`: reads every sector of it. Of a write that a crash left
    /// unfinished nothing is left after that.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it is damaged, and then nothing was changed; else what the disk said.
    pub(crate) fn open(dir: &Path, options: &LogOptions) -> io::Result<Self> {
        if !dir.exists() {
            fs::create_dir_all(dir)?;
        }
        // Even if it was there: a process that was killed may have made it just before.
        if options.sync {
            dir.parent().map_or(Ok(()), sync_dir)?;
        }
        let Files { found, begun } = Segment::all(dir)?;
        let next = found.last().map_or(1, |(number, _)| number + 1);
        let scanned: Vec<_> = found
            .into_iter()
            .map(|(_, segment)| scan::scan(segment))
            .collect::<io::Result<_>>()?;
        let chain = scan::judge(scanned)?;
        let index = replay(&chain)?;
        for path in begun {
            fs::remove_file(path)?;
        }
        // A file may have got its name just before a process ended.
        if options.sync {
            sync_dir(dir)?;
        }
        let Chain {
            live,
            spare,
            last,
            is_torn,
            ..
        } = chain;
        if is_torn {
            tracing::warn!(
                group = last + 1,
                "a crash left the last write unfinished; it was not acknowledged and is dropped"
            );
        }
        let file = match live.last() {
            Some((segment, whole)) => Some(write_again(
                segment,
                whole.last_begin,
                whole.end,
                options.sync,
            )?),
            None => None,
        };
        let sectors = u32::try_from(options.segment_bytes / SECTOR)
            .unwrap_or(u32::MAX)
            .max(1);
        let room = {
            let dir = dir.to_owned();
            Box::new(move || free_space(&dir).map(|space| space.free))
        };
        Ok(Self {
            sync: options.sync,
            sectors,
            index: RwLock::new(index),
            pen: Mutex::new(Pen {
                at: live.last().map_or(0, |(_, whole)| whole.end),
                live: live
                    .into_iter()
                    .map(|(it, whole)| (it, whole.first))
                    .collect(),
                file,
                group: last + 1,
                attempt: rand::random(),
                layout: Layout::default(),
                is_broken: false,
                syncs: 0,
            }),
            spares: Spares::new(dir.to_owned(), (sectors, options.sync), spare, next, room)?,
        })
    }

    fn write_group(&self, pen: &mut Pen, lines: &[Line<'_>]) -> io::Result<()> {
        let (segment, begin, mut place) = self.put_down(pen, lines)?;
        let mut index = self.index.write();
        for line in lines {
            let (sector, byte) = (place / ROOM, place % ROOM);
            let at = Place {
                group: pen.group,
                sector: begin + sector as u32,
                byte: byte as u16,
            };
            index.apply(line, &segment, at)?;
            place += line.bytes();
        }
        drop(index);
        pen.group += 1;
        Ok(())
    }

    /// Writes `lines` as the next group; they are on the disk when it returns. Returns the segment,
    /// where in it the group begins, and where in the group's content the lines do.
    fn put_down(
        &self,
        pen: &mut Pen,
        lines: &[Line<'_>],
    ) -> io::Result<(Arc<Segment>, u32, usize)> {
        let (bytes, count) = measure(lines)?;
        let id = (pen.group, pen.attempt);
        let first = self.index.read().oldest();
        let oldest = |pen: &Pen, none: u64| match first {
            Some(group) => pen.holding(group),
            None => none,
        };
        if let Some((segment, first)) = pen.live.back().cloned()
            && segment.sectors - pen.at >= count
        {
            let (begin, oldest) = (pen.at, oldest(pen, first));
            let content = pen.layout.lay(id, oldest, lines, count);
            let file = pen
                .file
                .as_ref()
                .ok_or_else(|| io::Error::other("no segment is open"))?;
            pen.syncs += put(file, begin, content, self.sync)?;
            pen.at += count;
            self.free(pen, oldest);
            return Ok((segment, begin, GROUP_HEAD));
        }

        // A new segment holds all names, so that those before it need not be kept for theirs.
        let names = self.index.read().names().clone();
        let names = names.iter().map(|(name, value)| Line::Name { name, value });
        let all: Vec<Line<'_>> = names.chain(lines.iter().copied()).collect();
        let (all_bytes, count) = measure(&all)?;
        let oldest = oldest(pen, pen.group);
        let content = pen.layout.lay(id, oldest, &all, count);
        let segment = if count > self.sectors {
            self.spares.make_of(content)?
        } else {
            let segment = self.spares.take()?;
            let file = segment.open()?;
            pen.syncs += put(&file, 0, content, self.sync)?;
            pen.file = Some(file);
            segment
        };
        pen.live.push_back((segment.clone(), pen.group));
        pen.at = count;
        self.free(pen, oldest);
        Ok((segment, 0, GROUP_HEAD + all_bytes - bytes))
    }

    /// The last group says that no group before `oldest` counts.
    fn free(&self, pen: &mut Pen, oldest: u64) {
        let kept = pen.live.partition_point(|(_, first)| *first < oldest);
        if kept > 0 {
            self.spares
                .give(pen.live.drain(..kept).map(|(segment, _)| segment));
        }
    }

    /// The frames of `run` from `wanted` on, below `end`, until they are `bytes_max` bytes.
    fn read_run(
        run: &Run,
        wanted: u64,
        end: u64,
        bytes_max: usize,
    ) -> io::Result<Vec<(u64, Bytes)>> {
        let mut stream = Stream::at(&run.segment, run.place)?;
        let mut next = run.index;
        let (mut frames, mut bytes) = (Vec::new(), 0_usize);
        while next < end && (frames.is_empty() || bytes < bytes_max) {
            match stream.next_line()? {
                None => drop(stream.next_group()?),
                Some((_, Found::Put { index, frame })) if index == next => {
                    if index >= wanted {
                        bytes = bytes.saturating_add(frame.len());
                        frames.push((index, frame));
                    }
                    next += 1;
                }
                Some((_, Found::Put { index, .. })) => {
                    return Err(codec::invalid(format!(
                        "frame {index} lies in {} in the place of frame {next}",
                        run.segment.name()
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(frames)
    }

    /// Syncs that came back.
    #[cfg(test)]
    pub(super) fn syncs(&self) -> u64 {
        self.pen.lock().syncs
    }

    #[cfg(test)]
    pub(super) fn index(&self) -> &RwLock<Index> {
        &self.index
    }

    #[cfg(test)]
    pub(super) fn spares(&self) -> &Spares {
        &self.spares
    }
}

impl Pen {
    /// The first group of the segment that holds `group`.
    fn holding(&self, group: u64) -> u64 {
        let behind = self.live.partition_point(|(_, first)| *first <= group);
        let at = behind.checked_sub(1).and_then(|at| self.live.get(at));
        at.map_or(group, |(_, first)| *first)
    }
}

impl LogEngine for Segments {
    fn write(&self, steps: &[Step<'_>]) -> io::Result<()> {
        let lines: Vec<Line<'_>> = steps.iter().map(Line::from).collect();
        let mut pen = self.pen.lock();
        if pen.is_broken {
            return Err(io::Error::other("an earlier write failed"));
        }
        self.index.read().check(&lines)?;
        let written = self.write_group(&mut pen, &lines);
        pen.is_broken = written.is_err();
        written
    }

    fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        let (mut frames, mut bytes) = (Vec::new(), 0_usize);
        let mut range = range;
        while frames.is_empty() || bytes < bytes_max {
            // While the run is held its segment is not written again.
            let Some((wanted, run)) = self.index.read().find(&range) else {
                break;
            };
            if !frames.is_empty() && wanted != range.start {
                break;
            }
            let end = run.end.min(range.end);
            let more = Self::read_run(&run, wanted, end, bytes_max.saturating_sub(bytes))?;
            bytes += more.iter().map(|(_, frame)| frame.len()).sum::<usize>();
            range.start = more.last().map_or(end, |(index, _)| index + 1);
            frames.extend(more);
        }
        Ok(frames)
    }

    fn named(&self, name: &str) -> io::Result<Option<Bytes>> {
        Ok(self.index.read().names().get(name).cloned())
    }

    fn reclaim(&self) -> io::Result<()> {
        // Says what does not count any more; the segments of before that are freed.
        self.write(&[])?;
        self.spares.reclaim()
    }

    fn health(&self) -> io::Result<()> {
        self.spares.health()
    }
}

/// Bytes and sectors of a group with `lines`.
fn measure(lines: &[Line<'_>]) -> io::Result<(usize, u32)> {
    let bytes = group::bytes(lines);
    let count = u32::try_from(sector::sectors(bytes)).map_err(io::Error::other)?;
    Ok((bytes, count))
}

/// Writes sectors from sector `at` on; they are on the disk when it returns. How many syncs came back: none or one.
fn put(file: &File, at: u32, content: &[u8], sync: bool) -> io::Result<u64> {
    file.write_all_at(content, u64::from(at) * SECTOR as u64)?;
    if !sync || planted(Bug::FsyncSkipped) {
        return Ok(0);
    }
    file.sync_data()?;
    Ok(1)
}

/// Writes the last group once more. Its write may have been ended by a failed sync, after which it
/// can be read and is not on the disk.
fn write_again(segment: &Segment, begin: u32, end: u32, sync: bool) -> io::Result<File> {
    let file = segment.open()?;
    let mut memory = Aligned::new((end - begin) as usize * SECTOR);
    let content = memory.get();
    // As the start has seen it: through the page cache.
    File::open(&segment.path)?.read_exact_at(content, u64::from(begin) * SECTOR as u64)?;
    put(&file, begin, content, sync)?;
    Ok(file)
}

/// Carries out all groups that count, in order.
fn replay(chain: &Chain) -> io::Result<Index> {
    let mut index = Index::default();
    for (segment, whole) in &chain.live {
        let (mut stream, _) = Stream::group(segment, 0, whole.first)?;
        loop {
            while let Some((place, found)) = stream.next_line()? {
                index.apply(&found.line(), segment, place)?;
            }
            if stream.end() >= whole.end {
                break;
            }
            stream.next_group()?;
        }
    }
    Ok(index)
}
