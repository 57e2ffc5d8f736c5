use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::line::Line;
use super::segment::Segment;
use super::stream::Place;
use crate::codec;

/// A mark each so many sectors: a read that begins between two of them passes over that much.
const MARK_EVERY: u32 = 128;

/// Which frames there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    first: u64,
    /// Where the next one goes; `first` if there is none.
    end: u64,
}

/// What a line does to the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    /// One more at the end.
    Longer,
    /// Those before the new first are gone.
    Purged,
    /// Those from the new end on are gone.
    Truncated,
    /// All are gone.
    Emptied,
}

impl Extent {
    fn is_empty(self) -> bool {
        self.first >= self.end
    }

    /// # Errors
    ///
    /// It would leave a hole, or replace a frame.
    fn change(&mut self, line: &Line<'_>) -> io::Result<Change> {
        let Self { first, end } = *self;
        match *line {
            Line::Name { .. } => Ok(Change::Nothing),
            Line::Put { index, .. } => {
                if self.is_empty() {
                    self.first = index;
                } else if index != end {
                    return Err(io::Error::other(format!(
                        "frame {index} was to be written behind {}",
                        end - 1
                    )));
                }
                self.end = index + 1;
                Ok(Change::Longer)
            }
            Line::Remove { start, end: upto } => {
                if self.is_empty() || start >= upto || upto <= first || start >= end {
                    Ok(Change::Nothing)
                } else if start <= first && upto >= end {
                    *self = Self::default();
                    Ok(Change::Emptied)
                } else if start <= first {
                    self.first = upto;
                    Ok(Change::Purged)
                } else if upto >= end {
                    self.end = start;
                    Ok(Change::Truncated)
                } else {
                    Err(io::Error::other(format!(
                        "{start} to {upto} were to be removed from within {first} to {end}"
                    )))
                }
            }
        }
    }
}

/// Where a run of frames begins; the next mark is where it ends. Within a run the frames lie one
/// behind the other in one segment, with nothing of theirs removed from between.
struct Mark {
    index: u64,
    place: Place,
    segment: Arc<Segment>,
}

/// A run of frames, or a part of one.
pub(super) struct Run {
    pub(super) segment: Arc<Segment>,
    /// Where frame `index` begins.
    pub(super) place: Place,
    pub(super) index: u64,
    /// The index behind the run.
    pub(super) end: u64,
}

/// What is where: all that must be in memory of the log on disk.
#[derive(Default)]
pub(super) struct Index {
    extent: Extent,
    /// By index and by place alike.
    marks: VecDeque<Mark>,
    /// The next frame begins a run in any case.
    is_cut: bool,
    names: BTreeMap<String, Bytes>,
}

impl Index {
    /// Whether `lines` can be carried out, before they are written.
    ///
    /// # Errors
    ///
    /// What would go wrong.
    pub(super) fn check(&self, lines: &[Line<'_>]) -> io::Result<()> {
        let mut extent = self.extent;
        for line in lines {
            if !line.fits() {
                return Err(io::Error::other("something of more than 4 GiB"));
            }
            extent.change(line)?;
        }
        Ok(())
    }

    /// Carries out a line that lies at `place` of `segment`.
    ///
    /// # Errors
    ///
    /// `InvalidData` if it can't follow the lines before it.
    pub(super) fn apply(
        &mut self,
        line: &Line<'_>,
        segment: &Arc<Segment>,
        place: Place,
    ) -> io::Result<()> {
        if let Line::Name { name, value } = *line {
            let value = Bytes::copy_from_slice(value);
            match self.names.get_mut(name) {
                Some(present) => *present = value,
                None => drop(self.names.insert(name.to_owned(), value)),
            }
        }
        match self.extent.change(line).map_err(codec::invalid)? {
            Change::Nothing => {}
            Change::Longer => {
                let goes_on = self.marks.back().is_some_and(|mark| {
                    Arc::ptr_eq(&mark.segment, segment)
                        && place.sector - mark.place.sector < MARK_EVERY
                });
                if !goes_on || self.is_cut {
                    self.is_cut = false;
                    self.marks.push_back(Mark {
                        index: self.extent.end - 1,
                        place,
                        segment: segment.clone(),
                    });
                }
            }
            Change::Purged => {
                while self
                    .marks
                    .get(1)
                    .is_some_and(|it| it.index <= self.extent.first)
                {
                    self.marks.pop_front();
                }
            }
            Change::Truncated => {
                while self
                    .marks
                    .back()
                    .is_some_and(|it| it.index >= self.extent.end)
                {
                    self.marks.pop_back();
                }
                self.is_cut = true;
            }
            Change::Emptied => self.marks.clear(),
        }
        Ok(())
    }

    /// The run with the first frame of `range` that there is, and which frame that is.
    pub(super) fn find(&self, range: &Range<u64>) -> Option<(u64, Run)> {
        let wanted = range.start.max(self.extent.first);
        if wanted >= range.end.min(self.extent.end) {
            return None;
        }
        let behind = self.marks.partition_point(|mark| mark.index <= wanted);
        let mark = self.marks.get(behind.checked_sub(1)?)?;
        let end = self
            .marks
            .get(behind)
            .map_or(self.extent.end, |it| it.index);
        let run = Run {
            segment: mark.segment.clone(),
            place: mark.place,
            index: mark.index,
            end,
        };
        Some((wanted, run))
    }

    /// The group with the oldest frame, if there is any.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.marks.front().map(|mark| mark.place.group)
    }

    pub(super) fn names(&self) -> &BTreeMap<String, Bytes> {
        &self.names
    }

    #[cfg(test)]
    pub(super) fn marks(&self) -> (usize, usize) {
        (self.marks.len(), size_of::<Mark>())
    }
}
