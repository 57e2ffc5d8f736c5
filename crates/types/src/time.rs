use serde::{Deserialize, Serialize};

/// Cluster time: milliseconds in the log, stamped by leaders, never decreasing. Comparable only
/// with other values of the same cluster; nothing may assume that it is a wall clock.
///
/// Source: architecture, section 4.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The moment `delay` later; stays at the end of time instead of wrapping.
    pub fn after(self, delay: Seconds) -> Self {
        self.after_ms(delay.as_ms())
    }

    /// The moment `ms` milliseconds later; stays at the end of time instead of wrapping.
    pub fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// The moment `ms` milliseconds earlier; stays at 0 instead of wrapping.
    pub fn before_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms))
    }

    /// Milliseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds from `earlier` to `self`, truncated towards zero as statistics are.
    pub fn seconds_since(self, earlier: Self) -> u64 {
        self.ms_since(earlier) / 1000
    }
}

/// A duration a client asked for: whole seconds, 0 to 2^32-1 (protocol specification, 2.3).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seconds(pub u32);

impl Seconds {
    /// The same duration in milliseconds.
    pub fn as_ms(self) -> u64 {
        u64::from(self.0) * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stays_at_its_ends_instead_of_wrapping() {
        let (start, end) = (Timestamp(0), Timestamp(u64::MAX));
        assert_eq!(end.after(Seconds(1)), end);
        assert_eq!(end.after_ms(1), end);
        assert_eq!(start.before_ms(1), start);
        assert_eq!(start.ms_since(end), 0);
        assert_eq!(Seconds(u32::MAX).as_ms(), 4_294_967_295_000);
    }

    #[test]
    fn seconds_are_truncated_towards_zero() {
        assert_eq!(Timestamp(2_999).seconds_since(Timestamp(1_000)), 1);
        assert_eq!(Timestamp(1_999).seconds_since(Timestamp(1_000)), 0);
    }
}
