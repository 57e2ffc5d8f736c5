//! What the tests of whole clusters share: who leads, clients under load, and the ledger of what they were told.

mod client;
mod load;
mod network;
mod roles;

pub use client::Client;
pub use load::{Ledger, Load};
pub use network::Network;
pub use roles::{Roles, stats, wait_for};
pub use trellis_testkit::admin::{get, status};

/// How many times a story is told: `TRELLIS_ROUNDS`, or `few` for every commit.
pub fn rounds(few: usize) -> usize {
    let asked = std::env::var("TRELLIS_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// Sorts, prints the median and the longest, and returns both.
pub fn summary(
    what: &str,
    times: &mut [std::time::Duration],
) -> (std::time::Duration, std::time::Duration) {
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let longest = times.last().copied().unwrap_or_default();
    println!(
        "{what}: median {} ms, longest {} ms of {}",
        median.as_millis(),
        longest.as_millis(),
        times.len()
    );
    (median, longest)
}
