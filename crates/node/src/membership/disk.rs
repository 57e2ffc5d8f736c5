use std::collections::BTreeSet;

use serde::Serialize;

/// Room on the volume of a data folder, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskSpace {
    /// What an unprivileged process may still write.
    pub free: u64,
    /// The volume's size; 0 if unknown.
    pub total: u64,
}

impl DiskSpace {
    /// The same, or `None` if nobody has looked or told.
    pub(crate) fn known(self) -> Option<Self> {
        (self.total != 0).then_some(self)
    }
}

/// Below how much free space a node counts as short of disk: the smaller of the two. It leaves
/// room for one snapshot's checkpoint and the log that is written meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskMark {
    /// So many bytes.
    pub bytes: u64,
    /// So many hundredths of the volume.
    pub percent: u8,
}

impl Default for DiskMark {
    /// 1 GiB, or 10 % of a volume where that is less.
    fn default() -> Self {
        Self {
            bytes: 1024 * 1024 * 1024,
            percent: 10,
        }
    }
}

impl DiskMark {
    fn of(self, space: DiskSpace) -> u64 {
        self.bytes.min(space.total / 100 * u64::from(self.percent))
    }

    /// Whether a volume is short: below the mark, or, once it was (`before`), below 1.25 × mark.
    pub fn is_short(self, space: DiskSpace, before: bool) -> bool {
        let mark = self.of(space);
        let clear = mark.saturating_add(mark / 4);
        space.total != 0 && space.free < if before { clear } else { mark }
    }
}

/// What the replicated "puts refused" should be: whether some present voter is short of disk.
///
/// Keeps who is, for the hysteresis and so that status and log can name them. Silent voters do
/// not count. Source: architecture, section 11.
#[derive(Debug, Default)]
pub(crate) struct DiskWatch {
    short: BTreeSet<String>,
}

impl DiskWatch {
    /// Looks at the present voters (name, room). `Some` if the list of who is short changed.
    pub(crate) fn look<'a>(
        &mut self,
        mark: DiskMark,
        present: impl IntoIterator<Item = (&'a str, DiskSpace)>,
    ) -> Option<&BTreeSet<String>> {
        let short: BTreeSet<String> = present
            .into_iter()
            .filter(|(name, space)| mark.is_short(*space, self.short.contains(*name)))
            .map(|(name, _)| name.to_owned())
            .collect();
        if short == self.short {
            return None;
        }
        self.short = short;
        Some(&self.short)
    }

    /// Whether puts should be refused.
    pub(crate) fn refuse(&self) -> bool {
        !self.short.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    const MARK: DiskMark = DiskMark {
        bytes: 1_024 * MIB,
        percent: 10,
    };

    fn space(free_mib: u64) -> DiskSpace {
        DiskSpace {
            free: free_mib * MIB,
            total: 100_000 * MIB,
        }
    }

    #[test]
    fn one_voter_short_of_disk_refuses_puts_until_there_is_a_quarter_more() {
        let mut watch = DiskWatch::default();
        assert_eq!(
            watch.look(MARK, [("a", space(1_024)), ("b", space(9_000))]),
            None
        );
        let changed = watch
            .look(MARK, [("a", space(1_023)), ("b", space(9_000))])
            .cloned();
        assert_eq!(changed, Some(["a".to_owned()].into()), "it names the node");
        assert!(watch.refuse());
        assert_eq!(
            watch.look(MARK, [("a", space(1_279)), ("b", space(9_000))]),
            None
        );
        assert!(watch.refuse(), "just above the mark is not enough");
        watch.look(MARK, [("a", space(1_280)), ("b", space(9_000))]);
        assert!(!watch.refuse());
    }

    #[test]
    fn a_silent_voter_does_not_count() {
        let mut watch = DiskWatch::default();
        watch.look(MARK, [("a", space(1))]);
        watch.look(MARK, []);
        assert!(!watch.refuse());
    }

    #[test]
    fn small_volumes_have_a_small_mark_and_unknown_ones_none() {
        let small = |free| DiskSpace {
            free: free * MIB,
            total: 1_000 * MIB,
        };
        assert!(!MARK.is_short(small(100), false));
        assert!(MARK.is_short(small(99), false));
        assert!(!MARK.is_short(DiskSpace::default(), false));
    }
}
