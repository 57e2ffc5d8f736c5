use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// use → `USING`; timed alone, it is no operation
    Use,
    /// put → `INSERTED`
    Put,
    /// reserve → `RESERVED`, of a job that was there
    Reserve,
    /// delete → `DELETED`
    Delete,
    /// put → `DELETED`, the three steps together
    Cycle,
    /// put → `RESERVED` at a worker that waited elsewhere
    Delivery,
}

impl Step {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Put => "put",
            Self::Reserve => "reserve",
            Self::Delete => "delete",
            Self::Cycle => "cycle",
            Self::Delivery => "delivery",
        }
    }
}

/// Failures that are kept in words; the rest are only counted.
const FAILURES_KEPT: usize = 5;

/// What one thread saw, or several together.
#[derive(Debug)]
pub(super) struct Tally {
    /// Operations that ended inside the measured time.
    pub(super) operations: u64,
    pub(super) failed: u64,
    pub(super) failures: Vec<String>,
    /// In nanoseconds.
    pub(super) steps: BTreeMap<Step, Histogram<u64>>,
    /// What the thread itself used in the measured time.
    pub(super) cpu: Duration,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            operations: 0,
            failed: 0,
            failures: Vec::new(),
            steps: BTreeMap::new(),
            cpu: Duration::ZERO,
        }
    }

    /// Counts a step that took `nanos`.
    pub(super) fn record(&mut self, step: Step, nanos: u64) {
        let histogram = self.steps.entry(step).or_insert_with(empty_histogram);
        histogram.saturating_record(nanos);
    }

    /// Counts an operation that did not get the answer that it should have.
    pub(super) fn fail(&mut self, why: impl FnOnce() -> String) {
        self.failed += 1;
        if self.failures.len() < FAILURES_KEPT {
            self.failures.push(why());
        }
    }

    /// Takes in what another thread saw, except its CPU.
    pub(super) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.failed += other.failed;
        let room = FAILURES_KEPT.saturating_sub(self.failures.len());
        self.failures
            .extend(other.failures.iter().take(room).cloned());
        for (step, histogram) in &other.steps {
            let sum = self.steps.entry(*step).or_insert_with(empty_histogram);
            // Both have the same bounds, so nothing is out of range.
            let _ = sum.add(histogram);
        }
    }
}

/// 1 µs to 2 minutes at three digits, in nanoseconds; what is beyond counts as the bound.
fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 120_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("constant bounds"))
}
