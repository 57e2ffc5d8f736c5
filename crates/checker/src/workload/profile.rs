use trellis_types::TubeName;

/// What a workload is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Clients that play at the same time.
    pub clients: u32,
    /// Tubes that they share.
    pub tubes: u32,
    /// Longest pause between an answer and the next question, in milliseconds.
    pub rest_ms: u32,
    /// Largest priority of a job; few, so that order and id both matter.
    pub priorities: u32,
    /// Largest delay of a job, in seconds.
    pub delay_seconds: u32,
    /// Shortest and longest TTR, in seconds.
    pub ttr_seconds: (u32, u32),
    /// Longest body, in bytes.
    pub body_bytes: u32,
    /// Out of a thousand questions, so many are a pause of a tube.
    pub pauses_permille: u32,
    /// Out of a thousand steps, so many are an orderly reconnect.
    pub reconnects_permille: u32,
}

/// A name that is no profile.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the profile is {found:?}; allowed are {allowed}")]
pub struct BadProfile {
    found: String,
    allowed: String,
}

impl Profile {
    /// All there are.
    pub const NAMES: [&'static str; 4] = ["mixed", "busy", "timers", "bodies"];

    /// A profile by its name: `mixed` is a little of everything, `busy` leaves out rests, `timers`
    /// is about delays, TTRs and pauses, `bodies` about size.
    ///
    /// # Errors
    ///
    /// [`BadProfile`] lists the names.
    pub fn named(name: &str) -> Result<Self, BadProfile> {
        let mixed = Self {
            name: name.to_owned(),
            clients: 12,
            tubes: 4,
            rest_ms: 40,
            priorities: 3,
            delay_seconds: 2,
            ttr_seconds: (2, 8),
            body_bytes: 300,
            pauses_permille: 2,
            reconnects_permille: 8,
        };
        match name {
            "mixed" => Ok(mixed),
            "busy" => Ok(Self {
                clients: 24,
                tubes: 8,
                rest_ms: 8,
                ..mixed
            }),
            "timers" => Ok(Self {
                ttr_seconds: (1, 2),
                delay_seconds: 3,
                pauses_permille: 20,
                rest_ms: 150,
                ..mixed
            }),
            "bodies" => Ok(Self {
                body_bytes: 65_535,
                tubes: 6,
                ..mixed
            }),
            _ => Err(BadProfile {
                found: name.to_owned(),
                allowed: Self::NAMES.join(", "),
            }),
        }
    }

    /// The name of tube `n`, counted round.
    pub fn tube(&self, n: u32) -> TubeName {
        let name = format!("tube-{}", n % self.tubes.max(1));
        TubeName::parse(name.as_bytes()).unwrap_or_else(|_| TubeName::default_tube())
    }

    /// All tubes.
    pub fn all_tubes(&self) -> Vec<TubeName> {
        (0..self.tubes.max(1)).map(|n| self.tube(n)).collect()
    }
}
