use std::fs::File;
use std::io;
use std::sync::Arc;

use trellis_types::seeded::{Bug, planted};

use super::sector::{Head, SECTOR};
use super::segment::Segment;
use super::stream::Stream;
use crate::codec;

/// Sectors looked at with one read.
const READ: usize = 2048;

/// Sectors of one group outside of whole groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    group: u64,
    /// Where its group would begin; before the file's beginning it can't.
    begin: Option<u32>,
}

/// What lies in one segment: whole groups from its beginning on, and whatever is behind them.
pub(super) struct Scanned {
    pub(super) segment: Arc<Segment>,
    /// First and last of the whole groups; the sectors where the last one begins and ends.
    pub(super) whole: Option<Whole>,
    /// Behind the whole groups, as far as it belongs to later ones.
    pieces: Vec<Piece>,
}

/// Whole groups, one behind the other without a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) last_begin: u32,
    pub(super) end: u32,
}

/// The log as it is found: which segments count, and which may be used again.
pub(super) struct Chain {
    /// Oldest first.
    pub(super) live: Vec<(Arc<Segment>, Whole)>,
    pub(super) spare: Vec<Arc<Segment>>,
    /// The last group; 0 if there is none.
    pub(super) last: u64,
    /// Whether a write was under way that was never acknowledged.
    pub(super) is_torn: bool,
}

/// Reads all of a segment.
///
/// # Errors
///
/// `InvalidData` if a sector is neither what was written nor untouched; else what the disk said.
pub(super) fn scan(segment: Segment) -> io::Result<Scanned> {
    let mut groups = Groups::default();
    let mut file = File::open(&segment.path)?;
    let mut memory = vec![0; READ * SECTOR];
    let mut at = 0;
    while at < segment.sectors {
        let now = ((segment.sectors - at) as usize).min(READ);
        let read = &mut memory[..now * SECTOR];
        io::Read::read_exact(&mut file, read)?;
        for sector in read.as_chunks::<SECTOR>().0 {
            match Head::read(sector) {
                Ok(head) => groups.see(at, head),
                Err(_) if planted(Bug::TornTailInTheMiddle) => groups.see(at, None),
                Err(_) => return Err(damage(&segment, at)),
            }
            at += 1;
        }
    }
    let (whole, pieces) = groups.end();
    Ok(Scanned {
        segment: Arc::new(segment),
        whole,
        pieces,
    })
}

/// The groups of a segment as its sectors are seen one after the other.
#[derive(Default)]
struct Groups {
    whole: Option<Whole>,
    /// The group that is being seen, if all of it was there so far, and where it begins.
    present: Option<(Head, u32)>,
    is_over: bool,
    pieces: Vec<Piece>,
}

impl Groups {
    fn see(&mut self, at: u32, head: Option<Head>) {
        let goes_on = head.is_some_and(|head| match self.present {
            Some((before, _)) => before.goes_on_with(head),
            None => {
                let follows = self.whole.is_none_or(|whole| head.group == whole.last + 1);
                head.index == 0 && follows
            }
        });
        if self.is_over || !goes_on {
            self.stop();
            if let Some(head) = head {
                self.piece(head.group, at.checked_sub(head.index));
            }
            return;
        }
        let Some(head) = head else { return };
        let begin = self.present.map_or(at, |(_, begin)| begin);
        self.present = Some((head, begin));
        if head.is_last() {
            self.present = None;
            let first = self.whole.map_or(head.group, |whole| whole.first);
            self.whole = Some(Whole {
                first,
                last: head.group,
                last_begin: begin,
                end: at + 1,
            });
        }
    }

    /// Behind this there are only pieces.
    fn stop(&mut self) {
        self.is_over = true;
        if let Some((head, begin)) = self.present.take() {
            self.piece(head.group, Some(begin));
        }
    }

    fn piece(&mut self, group: u64, begin: Option<u32>) {
        let piece = Piece { group, begin };
        let is_later = self.whole.is_none_or(|whole| group > whole.last);
        if is_later && self.pieces.last() != Some(&piece) {
            self.pieces.push(piece);
        }
    }

    fn end(mut self) -> (Option<Whole>, Vec<Piece>) {
        self.stop();
        (self.whole, self.pieces)
    }
}

/// Puts together what was found in all segments. Groups are numbered without a hole, so that
/// between the oldest that counts and the last whole one none may be missing; behind that, only of
/// the very next one there may be anything, in the place where it would have been written. Each
/// group is synced before the next one is begun: more than that no crash leaves.
///
/// # Errors
///
/// `InvalidData` if it is damaged; else what the disk said.
pub(super) fn judge(scanned: Vec<Scanned>) -> io::Result<Chain> {
    let last = scanned.iter().filter_map(|it| Some((it, it.whole?)));
    let Some((newest, whole)) = last.max_by_key(|(_, whole)| whole.last) else {
        let is_torn = check_pieces(&scanned, None, &[])?;
        return Ok(Chain {
            live: Vec::new(),
            spare: scanned.into_iter().map(|it| it.segment).collect(),
            last: 0,
            is_torn,
        });
    };
    let (newest, last) = (newest.segment.clone(), whole.last);
    let (_, oldest) = Stream::group(&newest, whole.last_begin, last)?;

    let mut live: Vec<(Arc<Segment>, Whole)> = scanned
        .iter()
        .filter_map(|it| Some((it.segment.clone(), it.whole?)))
        .filter(|(_, whole)| whole.last >= oldest)
        .collect();
    live.sort_by_key(|(_, whole)| whole.first);
    let mut wanted = oldest;
    for at in 0..live.len() {
        let (segment, whole) = &live[at];
        if whole.first != wanted {
            if planted(Bug::TornTailInTheMiddle) {
                live.truncate(at);
                break;
            }
            return Err(codec::invalid(format!(
                "{} begins with group {}, and group {wanted} is nowhere",
                segment.name(),
                whole.first
            )));
        }
        wanted = whole.last + 1;
    }
    let is_torn = match planted(Bug::TornTailInTheMiddle) {
        true => false,
        false => check_pieces(&scanned, Some((&newest, whole)), &live)?,
    };
    let is_live = |segment: &Arc<Segment>| live.iter().any(|(it, _)| Arc::ptr_eq(it, segment));
    let all = scanned.into_iter().map(|it| it.segment);
    let spare = all.filter(|segment| !is_live(segment)).collect();
    Ok(Chain {
        live,
        spare,
        last: wanted - 1,
        is_torn,
    })
}

/// Whether there are pieces of the group behind the last whole one; nothing else may be.
fn check_pieces(
    scanned: &[Scanned],
    newest: Option<(&Arc<Segment>, Whole)>,
    live: &[(Arc<Segment>, Whole)],
) -> io::Result<bool> {
    let last = newest.map_or(0, |(_, whole)| whole.last);
    let mut is_torn = false;
    for it in scanned {
        let is = |other: &Arc<Segment>| Arc::ptr_eq(&it.segment, other);
        let place = match newest {
            Some((newest, whole)) if is(newest) => Some(whole.end),
            _ if live.iter().any(|(live, _)| is(live)) => None,
            _ => Some(0),
        };
        // What is of no later group has its place elsewhere: it is left from an attempt that a
        // crash ended, or from before the file was used again.
        for piece in it.pieces.iter().filter(|piece| piece.group > last) {
            if piece.group != last + 1 || place.is_none() || piece.begin != place {
                return Err(codec::invalid(format!(
                    "{} has a part of group {}, but what is before it ends with group {last}",
                    it.segment.name(),
                    piece.group
                )));
            }
            is_torn = true;
        }
    }
    Ok(is_torn)
}

fn damage(segment: &Segment, sector: u32) -> io::Error {
    codec::invalid(format!(
        "{} is damaged in the 512 bytes from {}",
        segment.name(),
        u64::from(sector) * SECTOR as u64
    ))
}
