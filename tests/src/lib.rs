//! What the tests of whole clusters share: who leads, clients under load, and the ledger of what they were told.

mod client;
mod load;
mod roles;

pub use client::Client;
pub use load::{Ledger, Load};
pub use roles::{Roles, stats};

/// How many times a story is told: `TRELLIS_ROUNDS`, or `few` for every commit.
pub fn rounds(few: usize) -> usize {
    let asked = std::env::var("TRELLIS_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(few)
}
