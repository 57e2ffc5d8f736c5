use std::{
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{Failure, Talk, play};
use crate::stage::House;

/// Talks that are played at the same time: most of them only wait.
const AT_ONCE: usize = 48;

/// Servers that are started for one talk each, at the same time: starting one is work.
const SERVERS_AT_ONCE: usize = 6;

/// What became of a house's talks.
#[derive(Debug)]
pub struct Report {
    /// The house.
    pub house: String,
    /// How many went as written.
    pub passed: usize,
    /// Those that did not.
    pub failures: Vec<String>,
    /// Those that cannot be played there: title and reason.
    pub skipped: Vec<(String, String)>,
    /// Wall time of it all.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, skipped) = (self.failures.len(), self.skipped.len());
        let took = self.took.as_secs_f64();
        writeln!(
            f,
            "{}: {} talks as written, {failed} not, {skipped} not for this stage, {took:.1} s",
            self.house, self.passed
        )?;
        for (title, reason) in &self.skipped {
            writeln!(f, "  skipped: {title} ({reason})")?;
        }
        for failure in &self.failures {
            writeln!(f, "  {failure}")?;
        }
        Ok(())
    }
}

/// Plays all talks in a house: those that keep to themselves side by side, then those with a
/// server of their own, then those that must be alone, one by one.
pub fn show(house: &dyn House, talks: &[Talk]) -> Report {
    let begun = Instant::now();
    let report = Mutex::new(Report {
        house: house.name().into(),
        passed: 0,
        failures: Vec::new(),
        skipped: Vec::new(),
        took: Duration::ZERO,
    });
    let (fresh, shared): (Vec<_>, Vec<_>) =
        talks.iter().partition(|talk| talk.needs.fresh.is_some());
    let (alone, together): (Vec<_>, Vec<_>) = shared.into_iter().partition(|talk| talk.needs.alone);
    side_by_side(house, &together, AT_ONCE, &report);
    side_by_side(house, &fresh, SERVERS_AT_ONCE, &report);
    side_by_side(house, &alone, 1, &report);
    let mut report = report
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    report.failures.sort();
    report.skipped.sort();
    report.took = begun.elapsed();
    report
}

fn side_by_side(house: &dyn House, talks: &[&Talk], at_once: usize, report: &Mutex<Report>) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..at_once.min(talks.len()) {
            scope.spawn(|| {
                while let Some(talk) = talks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    one(house, talk, report);
                }
            });
        }
    });
}

fn one(house: &dyn House, talk: &Talk, report: &Mutex<Report>) {
    let outcome = house
        .open(talk)
        .map(|stage| stage.map(|mut stage| play(talk, house.troupe(), &mut *stage)));
    let mut report = report
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    match outcome {
        Ok(Ok(Ok(()))) => report.passed += 1,
        Ok(Ok(Err(failure))) => report.failures.push(Failure::to_string(&failure)),
        Ok(Err(reason)) => report.skipped.push((talk.title.clone(), reason)),
        Err(error) => report
            .failures
            .push(format!("{}: no stage: {error}", talk.title)),
    }
}
