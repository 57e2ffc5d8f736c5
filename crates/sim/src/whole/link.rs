use rand::{Rng, rngs::StdRng};

use super::net::Event;

/// One direction between two machines.
#[derive(Default)]
pub(super) struct Link {
    pub(super) weather: Weather,
    pub(super) cut: bool,
    /// What was sent and will be sent again when the link is mended.
    pub(super) held: Vec<Event>,
}

/// How long a packet takes, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// At least; never 0.
    pub(super) base_ms: u64,
    /// Up to so much more, each packet by itself.
    pub(super) jitter_ms: u64,
    /// Out of a thousand packets, so many are lost and sent again by TCP after a while.
    pub(super) lost_permille: u32,
}

/// TCP's shortest time before it sends again.
const AGAIN_MS: u64 = 200;

impl Default for Weather {
    /// A quiet local network.
    fn default() -> Self {
        Self {
            base_ms: 1,
            jitter_ms: 1,
            lost_permille: 0,
        }
    }
}

impl Weather {
    /// When a packet that is sent now arrives.
    pub(super) fn delay_ms(&self, random: &mut StdRng) -> u64 {
        let mut delay = self.base_ms + random.random_range(0..=self.jitter_ms);
        let mut again = AGAIN_MS;
        while random.random_range(0..1_000) < self.lost_permille && again < 2_000 {
            delay += again;
            again *= 2;
        }
        delay.max(1)
    }
}
