use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use trellis_queue::{LeaderCommand, OriginView};
use trellis_types::{
    OriginId,
    seeded::{Bug, planted},
};

/// An origin that has answered within this time is present.
pub(crate) const PRESENT_AGE_MAX: Duration = Duration::from_millis(1_500);
/// A check that runs so much later than it should says nothing about others.
const LATE: Duration = Duration::from_secs(1);
/// For one origin nothing is proposed more often.
const PROPOSAL_INTERVAL: Duration = Duration::from_millis(200);

/// The ages of all open origins, as their leader knows them.
///
/// The age of an origin is the time since the leader sent the newest of its pings that the origin
/// has answered over a living stream, with its applied index moved or level with the commit of
/// that ping. Source: architecture, sections 6 and 7.
#[derive(Debug)]
pub(crate) struct Presence {
    origins: BTreeMap<OriginId, Age>,
    checked: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Age {
    /// When the newest answered ping was sent, or when ages last started at zero.
    since: Instant,
    /// Whether it has answered since ages last started at zero: only then is it known to be there.
    answered: bool,
    applied: u64,
    proposed: Option<Instant>,
}

impl Presence {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            origins: BTreeMap::new(),
            checked: now,
        }
    }

    /// All ages start at zero: nobody can be blamed for what this leader did not see.
    pub(crate) fn start_again(&mut self, now: Instant) {
        self.checked = now;
        for age in self.origins.values_mut() {
            age.since = now;
            age.answered = false;
        }
    }

    /// An origin answered the ping that was sent at `sent` when `committed` was.
    pub(crate) fn answered(
        &mut self,
        origin: OriginId,
        sent: Instant,
        committed: u64,
        applied: u64,
    ) {
        // One that the machine does not know (yet) is not tracked.
        if let Some(age) = self.origins.get_mut(&origin) {
            if applied > age.applied || applied >= committed {
                age.since = age.since.max(sent);
                age.answered = true;
            }
            age.applied = age.applied.max(applied);
        }
    }

    /// How old an origin is; `None` if it is not open.
    #[cfg(test)]
    pub(crate) fn age(&self, origin: OriginId, now: Instant) -> Option<Duration> {
        let age = self.origins.get(&origin)?;
        Some(now.saturating_duration_since(age.since))
    }

    /// The origins that are known to be there.
    pub(crate) fn present(&self, now: Instant) -> Vec<OriginId> {
        self.origins
            .iter()
            .filter(|(_, age)| {
                age.answered && now.saturating_duration_since(age.since) <= PRESENT_AGE_MAX
            })
            .map(|(origin, _)| *origin)
            .collect()
    }

    /// Compares what the machine says of its open origins with what is known of them, and proposes
    /// until they agree. To be called about every `interval`.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        interval: Duration,
        lease: Duration,
        machine: impl IntoIterator<Item = OriginView>,
    ) -> Vec<LeaderCommand> {
        let slept = now.saturating_duration_since(self.checked) > interval + LATE;
        if slept && !planted(Bug::SleepingLeaderExpires) {
            self.start_again(now);
        }
        self.checked = now;
        let open: BTreeMap<OriginId, bool> = machine
            .into_iter()
            .filter_map(|view| Some((view.open?, view.suspended)))
            .collect();
        self.origins.retain(|origin, _| open.contains_key(origin));
        let mut commands = Vec::new();
        for (origin, suspended) in open {
            let age = self.origins.entry(origin).or_insert(Age {
                since: now,
                answered: false,
                applied: 0,
                proposed: None,
            });
            let elapsed = now.saturating_duration_since(age.since);
            let command = if elapsed > lease {
                LeaderCommand::ExpireOrigin(origin)
            } else if elapsed > PRESENT_AGE_MAX && !suspended {
                LeaderCommand::SuspendOrigin(origin)
            } else if elapsed <= PRESENT_AGE_MAX && age.answered && suspended {
                LeaderCommand::ResumeOrigin(origin)
            } else {
                continue;
            };
            if age
                .proposed
                .is_none_or(|at| now.saturating_duration_since(at) >= PROPOSAL_INTERVAL)
            {
                age.proposed = Some(now);
                commands.push(command);
            }
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use trellis_types::{NodeId, Run};

    use super::*;

    const LEASE: Duration = Duration::from_secs(10);
    const STEP: Duration = Duration::from_millis(100);

    /// A leader that looks every 100 ms at one open origin of node 7.
    struct Story {
        begin: Instant,
        now: Instant,
        presence: Presence,
        suspended: bool,
    }

    fn origin() -> OriginId {
        OriginId {
            node: NodeId(7),
            run: Run(3),
        }
    }

    impl Story {
        fn begins() -> Self {
            let now = Instant::now();
            let mut story = Self {
                begin: now,
                now,
                presence: Presence::new(now),
                suspended: false,
            };
            story.look();
            story
        }

        fn look(&mut self) -> Vec<LeaderCommand> {
            let view = OriginView {
                node: NodeId(7),
                highest_run: Run(3),
                open: Some(origin()),
                last_seq: 0,
                suspended: self.suspended,
            };
            self.presence.check(self.now, STEP, LEASE, [view])
        }

        /// What is proposed until `ms` after the beginning.
        fn until(&mut self, ms: u64) -> Vec<LeaderCommand> {
            let mut all = Vec::new();
            while self.now < self.begin + Duration::from_millis(ms) {
                self.now += STEP;
                all.extend(self.look());
            }
            all
        }

        fn answers(&mut self, sent_ms: u64, committed: u64, applied: u64) {
            let sent = self.begin + Duration::from_millis(sent_ms);
            self.presence.answered(origin(), sent, committed, applied);
        }
    }

    #[test]
    fn a_silent_origin_is_suspended_then_expired() {
        let mut story = Story::begins();
        assert_eq!(story.until(1_500), []);
        assert_eq!(story.until(1_600), [LeaderCommand::SuspendOrigin(origin())]);
        story.suspended = true;
        assert_eq!(story.until(10_000), []);
        assert_eq!(story.until(10_100), [LeaderCommand::ExpireOrigin(origin())]);
        assert_eq!(story.until(10_200), [], "not at every look");
        assert_eq!(
            story.until(10_300),
            [LeaderCommand::ExpireOrigin(origin())],
            "until it is"
        );
    }

    #[test]
    fn age_counts_from_when_the_answered_ping_was_sent() {
        let mut story = Story::begins();
        story.until(1_000);
        // It travelled for 900 ms.
        story.answers(100, 5, 5);
        assert_eq!(
            story.presence.age(origin(), story.now),
            Some(Duration::from_millis(900))
        );
        assert_eq!(story.until(1_700), [LeaderCommand::SuspendOrigin(origin())]);
    }

    #[test]
    fn an_origin_whose_apply_stands_still_behind_the_commit_is_not_there() {
        let mut story = Story::begins();
        story.answers(0, 5, 5);
        story.until(1_000);
        story.answers(900, 9, 5);
        assert_eq!(story.until(1_600), [LeaderCommand::SuspendOrigin(origin())]);
        story.suspended = true;
        story.answers(1_500, 9, 6);
        assert_eq!(
            story.until(1_800),
            [LeaderCommand::ResumeOrigin(origin())],
            "it moves"
        );
    }

    #[test]
    fn a_new_leader_resumes_nobody_whom_it_has_not_heard() {
        let mut story = Story::begins();
        story.suspended = true;
        assert_eq!(story.until(1_500), []);
    }

    #[test]
    fn a_leader_that_slept_blames_nobody() {
        let mut story = Story::begins();
        story.answers(0, 0, 0);
        story.now += Duration::from_secs(60);
        assert_eq!(story.look(), []);
        let age = story.presence.age(origin(), story.now);
        assert_eq!(age, Some(Duration::ZERO));
        assert_eq!(story.presence.present(story.now), []);
    }
}
