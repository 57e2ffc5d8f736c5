//! The seeded script that every instrument plays: what each client does next, given what it was
//! told. Pure: whoever plays it brings sockets and clocks, real or simulated.

mod profile;
mod script;

pub use profile::{BadProfile, Profile};
pub use script::{Script, Step};

/// The whole script. The same seed and profile give the same script.
#[derive(Clone, Debug)]
pub struct Workload {
    seed: u64,
    profile: Profile,
}

impl Workload {
    /// The script of a seed.
    pub fn new(seed: u64, profile: Profile) -> Self {
        Self { seed, profile }
    }

    /// How many clients play it.
    pub fn clients(&self) -> u32 {
        self.profile.clients
    }

    /// What it is about.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// One client's part.
    pub fn script(&self, client: u32) -> Script {
        Script::new(self.seed, &self.profile, client)
    }
}
