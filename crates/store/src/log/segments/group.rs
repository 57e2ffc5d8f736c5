use super::line::Line;
use super::sector::{self, Head, ROOM, SECTOR};
use super::segment::Aligned;

/// Bytes before the first line of a group: the first group that still counts.
pub(super) const GROUP_HEAD: usize = 8;

/// More than this is given back after the group that needed it.
const MEMORY_KEPT: usize = 1024 * 1024;

/// Bytes of the content of a group.
pub(super) fn bytes<'a>(lines: impl IntoIterator<Item = &'a Line<'a>>) -> usize {
    let lines: usize = lines.into_iter().map(Line::bytes).sum();
    GROUP_HEAD + lines
}

/// Where groups are laid out in sectors before they are written.
#[derive(Default)]
pub(super) struct Layout {
    memory: Aligned,
}

impl Layout {
    /// The sectors of group `group` with `lines`, which are `bytes` bytes as [`bytes`] has it and
    /// take `count` sectors. No group before `oldest` counts any more.
    pub(super) fn lay(
        &mut self,
        (group, attempt): (u64, u32),
        oldest: u64,
        lines: &[Line<'_>],
        count: u32,
    ) -> &[u8] {
        let size = count as usize * SECTOR;
        if self.memory.size() < size || self.memory.size() > MEMORY_KEPT.max(size) {
            self.memory = Aligned::new(size);
        }
        // A kill may end a write where a page of this process ends: never within a sector.
        let sectors = &mut self.memory.get()[..size];
        let mut at = 0;
        let mut put = |mut bytes: &[u8]| {
            while !bytes.is_empty() {
                let fits = (ROOM - at % ROOM).min(bytes.len());
                let (now, later) = bytes.split_at(fits);
                let offset = sector::offset(at);
                sectors[offset..offset + fits].copy_from_slice(now);
                at += fits;
                bytes = later;
            }
        };
        put(&oldest.to_le_bytes());
        for line in lines {
            line.encode(&mut put);
        }
        let end = sector::offset(at).min(size);
        sectors[end..].fill(0);
        let (each, _) = sectors.as_chunks_mut::<SECTOR>();
        for (index, sector) in (0..).zip(each) {
            let head = Head {
                group,
                attempt,
                index,
                count,
            };
            head.seal(sector);
        }
        sectors
    }
}
