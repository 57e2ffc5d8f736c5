use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::line::{Line, NAME, NOTHING, PUT, REMOVE};
use super::sector::{self, Head, ROOM, SECTOR};
use super::segment::Segment;
use crate::codec;

/// Sectors read from the file at a time.
const AHEAD: usize = 128;

/// Where a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The group that it is in.
    pub(super) group: u64,
    /// Which sector of its file.
    pub(super) sector: u32,
    /// Which byte of that sector's content.
    pub(super) byte: u16,
}

/// A line that was read back.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Put { index: u64, frame: Bytes },
    Remove { start: u64, end: u64 },
    Name { name: String, value: Bytes },
}

impl Found {
    pub(super) fn line(&self) -> Line<'_> {
        match self {
            Self::Put { index, frame } => Line::Put {
                index: *index,
                frame,
            },
            Self::Remove { start, end } => Line::Remove {
                start: *start,
                end: *end,
            },
            Self::Name { name, value } => Line::Name { name, value },
        }
    }
}

/// Reads the lines of one segment, group after group. Every sector must be the one that belongs
/// there; no sector is looked at before its turn, so that whoever stops in time reads nothing that
/// is being written.
pub(super) struct Stream<'a> {
    segment: &'a Segment,
    file: File,
    /// Sectors read ahead, which of the file the first of them is, and which one comes next.
    ahead: Vec<u8>,
    begin: u32,
    next: u32,
    head: Head,
    /// The present sector, and which byte of its content comes next.
    present: [u8; SECTOR],
    sector: u32,
    at: usize,
}

impl<'a> Stream<'a> {
    /// From `place` in `segment` on: a place where a line begins.
    pub(super) fn at(segment: &'a Segment, place: Place) -> io::Result<Self> {
        let mut stream = Self::over(segment, place.sector)?;
        let head = stream.next_sector()?;
        if head.is_none_or(|head| head.group != place.group) {
            return Err(stream.damage());
        }
        stream.at = usize::from(place.byte);
        Ok(stream)
    }

    /// At the beginning of group `group`, which begins at `sector`. Returns the oldest group that
    /// counts beside it, too.
    pub(super) fn group(segment: &'a Segment, sector: u32, group: u64) -> io::Result<(Self, u64)> {
        let mut stream = Self::over(segment, sector)?;
        stream.head.group = group.wrapping_sub(1);
        let oldest = stream.next_group()?;
        Ok((stream, oldest))
    }

    fn over(segment: &'a Segment, sector: u32) -> io::Result<Self> {
        Ok(Self {
            segment,
            file: File::open(&segment.path)?,
            ahead: Vec::new(),
            begin: sector,
            next: sector,
            head: Head {
                group: 0,
                attempt: 0,
                index: 0,
                count: 1,
            },
            present: [0; SECTOR],
            sector,
            at: ROOM,
        })
    }

    /// Goes to the group behind the present one, all of whose lines were read.
    pub(super) fn next_group(&mut self) -> io::Result<u64> {
        let before = self.head;
        let head = self.next_sector()?;
        let follows =
            |head: Head| before.is_last() && head.index == 0 && head.group == before.group + 1;
        if !head.is_some_and(follows) {
            return Err(self.damage());
        }
        self.number()
    }

    /// The next line of the present group and where it begins; `None` behind the last.
    pub(super) fn next_line(&mut self) -> io::Result<Option<(Place, Found)>> {
        if self.at == ROOM {
            if self.head.is_last() {
                return Ok(None);
            }
            self.next_in_group()?;
        }
        let place = Place {
            group: self.head.group,
            sector: self.sector,
            byte: self.at as u16,
        };
        let found = match self.byte()? {
            NOTHING => {
                let rest = sector::content(&self.present).get(self.at..);
                let is_over =
                    self.head.is_last() && rest.unwrap_or_default().iter().all(|byte| *byte == 0);
                return if is_over {
                    Ok(None)
                } else {
                    Err(self.damage())
                };
            }
            PUT => {
                let index = self.number()?;
                let len = self.length()?;
                let frame = self.bytes(len)?;
                Found::Put { index, frame }
            }
            REMOVE => Found::Remove {
                start: self.number()?,
                end: self.number()?,
            },
            NAME => {
                let len = usize::from(self.byte()?);
                let value_len = self.length()?;
                let name = String::from_utf8(self.bytes(len)?.into()).map_err(codec::invalid)?;
                let value = self.bytes(value_len)?;
                Found::Name { name, value }
            }
            _ => return Err(self.damage()),
        };
        Ok(Some((place, found)))
    }

    /// The sector behind the last line that was read.
    pub(super) fn end(&self) -> u32 {
        self.sector + 1
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.fill(&mut byte)?;
        Ok(byte[0])
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut number = [0; 8];
        self.fill(&mut number)?;
        Ok(u64::from_le_bytes(number))
    }

    fn length(&mut self) -> io::Result<usize> {
        let mut number = [0; 4];
        self.fill(&mut number)?;
        Ok(u32::from_le_bytes(number) as usize)
    }

    fn bytes(&mut self, len: usize) -> io::Result<Bytes> {
        let sectors_left = (self.head.count - self.head.index - 1) as usize;
        if len > sectors_left * ROOM + (ROOM - self.at) {
            return Err(self.damage());
        }
        // Not zeroed before: of large memory an allocator lets the kernel do that, page by page.
        let mut bytes = Vec::with_capacity(len);
        self.parts(len, |part| bytes.extend_from_slice(part))?;
        Ok(bytes.into())
    }

    fn fill(&mut self, to: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        self.parts(to.len(), |part| {
            to[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        })
    }

    /// The next `len` bytes of the present group, sector by sector.
    fn parts(&mut self, mut len: usize, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        while len > 0 {
            if self.at == ROOM {
                self.next_in_group()?;
            }
            let count = (ROOM - self.at).min(len);
            each(&sector::content(&self.present)[self.at..self.at + count]);
            self.at += count;
            len -= count;
        }
        Ok(())
    }

    fn next_in_group(&mut self) -> io::Result<()> {
        let before = self.head;
        match self.next_sector()? {
            Some(head) if before.goes_on_with(head) => Ok(()),
            _ => Err(self.damage()),
        }
    }

    /// Goes to the next sector whatever it is; `None` if it is behind the end or was never written.
    fn next_sector(&mut self) -> io::Result<Option<Head>> {
        self.sector = self.next;
        let Some(sector) = self.peek()? else {
            return Ok(None);
        };
        self.present = sector;
        self.next += 1;
        self.at = 0;
        let head = Head::read(&self.present).map_err(|_| self.damage())?;
        if let Some(head) = head {
            self.head = head;
        }
        Ok(head)
    }

    /// The next sector, from the file if it was not read yet; `None` behind the end.
    fn peek(&mut self) -> io::Result<Option<[u8; SECTOR]>> {
        let ahead = |from: u32, ahead: &[u8]| {
            let sectors = ahead.as_chunks::<SECTOR>().0;
            sectors.get((self.next - from) as usize).copied()
        };
        if let Some(sector) = ahead(self.begin, &self.ahead) {
            return Ok(Some(sector));
        }
        let left = self.segment.sectors.saturating_sub(self.next) as usize;
        self.begin = self.next;
        self.ahead.resize(left.min(AHEAD) * SECTOR, 0);
        let from = u64::from(self.next) * SECTOR as u64;
        if let Err(error) = self.file.read_exact_at(&mut self.ahead, from) {
            self.ahead.clear();
            return Err(error);
        }
        Ok(ahead(self.begin, &self.ahead))
    }

    fn damage(&self) -> io::Error {
        codec::invalid(format!(
            "{} is damaged in the 512 bytes from {}",
            self.segment.name(),
            u64::from(self.sector) * SECTOR as u64
        ))
    }
}
