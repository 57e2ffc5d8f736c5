use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use trellis_rpc::pb;
use trellis_types::{
    NodeId, Timestamp,
    seeded::{Bug, planted},
};

use crate::WallClock;

/// Samples that the offset is the largest of: about ten seconds of pings.
const SAMPLES: usize = 50;

/// What a node knows of time, as it stands in answers to hello and to vote requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// Its estimate of cluster time; `None` if it has heard no ping that counts since it started.
    pub now: Option<Timestamp>,
    /// Cluster time of the last sample behind the estimate.
    pub sampled: Timestamp,
    /// Its wall clock in milliseconds since 1970. Only a cold start of all looks at it.
    pub wall_ms: u64,
}

/// This node's estimate of cluster time, and what others have said of theirs.
///
/// Cluster time is the leader's. Each ping that counts gives a sample (its cluster time − own
/// monotonic now); the offset is the largest of the last 50, so a late ping does no harm and drift
/// cannot add up. Between pings and through elections it runs on by the monotonic clock.
///
/// Source: architecture, section 4.
#[derive(Debug)]
pub struct Clocks {
    base: Instant,
    wall: WallClock,
    samples: Mutex<Samples>,
    heard: Mutex<BTreeMap<NodeId, (ClockReading, Instant)>>,
}

#[derive(Debug, Default)]
struct Samples {
    /// Cluster time minus milliseconds since `base`.
    offsets: VecDeque<i64>,
    sampled: Timestamp,
}

/// How a leader came to its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// From the clock with the newest sample.
    Warm,
    /// Nobody had a clock: from wall clocks, by so many milliseconds ahead of the log.
    Cold {
        /// How far time jumps over what the log says.
        step_ms: u64,
    },
}

/// A leader's clock: its own monotonic clock from taking office.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfficeClock {
    from: Timestamp,
    at: Instant,
}

impl OfficeClock {
    pub(crate) fn now(&self, now: Instant) -> Timestamp {
        self.from
            .after_ms(ms(now.saturating_duration_since(self.at)))
    }
}

impl Default for Clocks {
    fn default() -> Self {
        Self::beside(WallClock::default())
    }
}

impl Clocks {
    /// The clocks of a machine whose wall clock is `wall`. Nothing is known of cluster time yet.
    pub fn beside(wall: WallClock) -> Self {
        Self {
            base: crate::now(),
            wall,
            samples: Mutex::default(),
            heard: Mutex::default(),
        }
    }

    /// A ping of a leader that counts, arrived just now.
    pub(crate) fn sample(&self, at: Timestamp, now: Instant) {
        let offset = signed(at.0) - signed(self.elapsed(now));
        let mut samples = self.samples.lock();
        if samples.offsets.len() == SAMPLES {
            samples.offsets.pop_front();
        }
        samples.offsets.push_back(offset);
        samples.sampled = samples.sampled.max(at);
    }

    /// Cluster time as this node estimates it; `None` if it has no clock.
    pub fn now(&self) -> Option<Timestamp> {
        self.at(crate::now())
    }

    pub(crate) fn at(&self, now: Instant) -> Option<Timestamp> {
        let offset = *self.samples.lock().offsets.iter().max()?;
        let at = offset.saturating_add(signed(self.elapsed(now)));
        Some(Timestamp(u64::try_from(at).unwrap_or(0)))
    }

    /// What to answer to hello and to vote requests.
    pub fn reading(&self) -> ClockReading {
        self.reading_at(crate::now(), self.wall.ms())
    }

    fn reading_at(&self, now: Instant, wall_ms: u64) -> ClockReading {
        ClockReading {
            now: self.at(now),
            sampled: self.samples.lock().sampled,
            wall_ms,
        }
    }

    /// What another node answered to hello or to a vote request, just now.
    pub fn heard(&self, node: NodeId, reading: ClockReading) {
        self.heard_at(node, reading, crate::now());
    }

    /// What another node answered, and when that arrived here. An older answer of the same node is
    /// forgotten, a newer one is not.
    pub(crate) fn heard_at(&self, node: NodeId, reading: ClockReading, at: Instant) {
        let mut heard = self.heard.lock();
        if heard.get(&node).is_none_or(|(_, before)| *before <= at) {
            heard.insert(node, (reading, at));
        }
    }

    /// Forgets nodes for which `keep` is false.
    pub fn retain(&self, keep: impl Fn(NodeId) -> bool) {
        self.heard.lock().retain(|node, _| keep(*node));
    }

    /// The clock of a new leader. `last` is the last `at` in the log, 0 for an empty machine.
    ///
    /// It takes the clock with the newest sample among its own and those it has heard. Only if
    /// there is none the start is cold: then the lower median of the wall clocks, if that is later
    /// than `last`, at most `max_downtime` later.
    pub(crate) fn take_office(
        &self,
        last: Timestamp,
        max_downtime: Duration,
        now: Instant,
    ) -> (OfficeClock, Start) {
        let mut readings = vec![self.reading_at(now, self.wall.ms())];
        readings.extend(self.heard.lock().values().map(|(reading, at)| {
            let since = ms(now.saturating_duration_since(*at));
            ClockReading {
                now: reading.now.map(|clock| clock.after_ms(since)),
                sampled: reading.sampled,
                wall_ms: reading.wall_ms.saturating_add(since),
            }
        }));
        let newest = readings
            .iter()
            .filter_map(|reading| Some((reading.sampled, reading.now?)))
            .max();
        let newest = match planted(Bug::WallClockOfLeader) {
            true => Some((last, Timestamp(self.reading().wall_ms))),
            false => newest,
        };
        let (from, start) = match newest {
            Some((_, clock)) => (clock.max(last), Start::Warm),
            None => {
                let from = cold(&mut readings, last, max_downtime);
                let step_ms = from.ms_since(last);
                (from, Start::Cold { step_ms })
            }
        };
        (OfficeClock { from, at: now }, start)
    }

    fn elapsed(&self, now: Instant) -> u64 {
        ms(now.saturating_duration_since(self.base))
    }
}

impl From<ClockReading> for pb::Clock {
    fn from(reading: ClockReading) -> Self {
        Self {
            now: reading.now.map(|now| now.0),
            sampled: reading.sampled.0,
            wall: reading.wall_ms,
        }
    }
}

impl From<pb::Clock> for ClockReading {
    fn from(clock: pb::Clock) -> Self {
        Self {
            now: clock.now.map(Timestamp),
            sampled: Timestamp(clock.sampled),
            wall_ms: clock.wall,
        }
    }
}

fn cold(readings: &mut [ClockReading], last: Timestamp, max_downtime: Duration) -> Timestamp {
    readings.sort_unstable_by_key(|reading| reading.wall_ms);
    let median = readings
        .get(readings.len().saturating_sub(1) / 2)
        .map_or(last, |reading| Timestamp(reading.wall_ms));
    let ceiling = match last {
        Timestamp(0) => median,
        last => last.after_ms(ms(max_downtime)),
    };
    median.min(ceiling).max(last)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn later(clocks: &Clocks, ms: u64) -> Instant {
        clocks.base + Duration::from_millis(ms)
    }

    #[test]
    fn a_late_ping_does_no_harm_and_an_early_one_counts_for_fifty() {
        let clocks = Clocks::default();
        assert_eq!(clocks.at(later(&clocks, 0)), None, "no ping, no clock");
        clocks.sample(Timestamp(10_000), later(&clocks, 100));
        // This one was 70 ms longer on its way.
        clocks.sample(Timestamp(10_200), later(&clocks, 370));
        assert_eq!(clocks.at(later(&clocks, 500)), Some(Timestamp(10_400)));
        // A leader whose clock runs slower: after fifty samples nothing is left of the old ones.
        for step in 1..=50 {
            clocks.sample(
                Timestamp(10_200 + step * 100),
                later(&clocks, 370 + step * 100),
            );
        }
        assert_eq!(clocks.at(later(&clocks, 5_370)), Some(Timestamp(15_200)));
    }

    #[test]
    fn a_new_leader_takes_the_clock_with_the_newest_sample() {
        let clocks = Clocks::default();
        clocks.sample(Timestamp(50_000), later(&clocks, 0));
        clocks.heard.lock().insert(
            NodeId(2),
            (
                ClockReading {
                    now: Some(Timestamp(52_100)),
                    sampled: Timestamp(52_000),
                    wall_ms: 9,
                },
                later(&clocks, 1_000),
            ),
        );
        let (office, start) = clocks.take_office(Timestamp(51_000), DAY, later(&clocks, 1_500));
        assert_eq!(start, Start::Warm);
        assert_eq!(office.now(later(&clocks, 1_500)), Timestamp(52_600));
        assert_eq!(office.now(later(&clocks, 2_500)), Timestamp(53_600));
    }

    #[test]
    fn a_new_leader_who_knows_the_clock_does_not_look_at_the_wall() {
        let hour = 3_600_000;
        for wall in [0, 50_000, 1_000 * hour] {
            let clocks = Clocks::beside(WallClock::new(move || wall));
            clocks.sample(Timestamp(50_000), later(&clocks, 0));
            let (office, start) = clocks.take_office(Timestamp(50_000), DAY, later(&clocks, 10));
            assert_eq!(start, Start::Warm);
            assert_eq!(office.now(later(&clocks, 10)), Timestamp(50_010));
        }
    }

    #[test]
    fn time_in_the_log_is_never_undercut() {
        let clocks = Clocks::default();
        clocks.sample(Timestamp(50_000), later(&clocks, 0));
        let (office, _) = clocks.take_office(Timestamp(70_000), DAY, later(&clocks, 10));
        assert_eq!(office.now(later(&clocks, 10)), Timestamp(70_000));
    }

    fn cold_start(walls: &[u64], last: u64, downtime: Duration) -> (u64, Start) {
        let own = walls[0];
        let clocks = Clocks::beside(WallClock::new(move || own));
        let now = later(&clocks, 0);
        for (node, wall_ms) in walls.iter().enumerate().skip(1) {
            let reading = ClockReading {
                wall_ms: *wall_ms,
                ..ClockReading::default()
            };
            clocks
                .heard
                .lock()
                .insert(NodeId(node as u64), (reading, now));
        }
        let (office, start) = clocks.take_office(Timestamp(last), downtime, now);
        (office.now(now).0, start)
    }

    #[test]
    fn a_cold_start_takes_the_lower_median_of_the_wall_clocks_within_bounds() {
        let hour = 3_600_000;
        // Delays ran on while everything was off; one wild clock does not matter.
        assert_eq!(
            cold_start(&[9 * hour, 5 * hour, 400 * hour], hour, DAY),
            (9 * hour, Start::Cold { step_ms: 8 * hour })
        );
        assert_eq!(cold_start(&[9 * hour, 5 * hour], hour, DAY).0, 5 * hour);
        // At most a day after the last entry …
        assert_eq!(cold_start(&[100 * hour], hour, DAY).0, 25 * hour);
        // … never before it …
        assert_eq!(cold_start(&[hour], 2 * hour, DAY).0, 2 * hour);
        // … and an empty machine takes what it gets.
        assert_eq!(cold_start(&[100 * hour], 0, DAY).0, 100 * hour);
    }
}
