use std::fmt;

use anyhow::{Result, bail};
use rand::{Rng, rngs::StdRng};

use crate::{
    arena::Setup,
    nemesis::{KINDS, Kind},
};

/// One or two nemeses at a time.
#[derive(Clone, Copy)]
pub struct Act {
    /// What is broken first and mended last.
    pub outer: Kind,
    /// What is broken and mended meanwhile.
    pub inner: Option<Kind>,
}

impl Act {
    /// Whether nobody can be served during it, or only slowly.
    pub fn is_outage(&self) -> bool {
        let is = |kind: Kind| kind.outage || kind.slow;
        is(self.outer) || self.inner.is_some_and(is)
    }
}

impl fmt::Display for Act {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.outer.name)?;
        self.inner
            .map_or(Ok(()), |inner| write!(to, "+{}", inner.name))
    }
}

impl From<Kind> for Act {
    fn from(outer: Kind) -> Self {
        Self { outer, inner: None }
    }
}

/// What is broken in one cluster, one act after the other, with calm between them.
#[derive(Clone)]
pub struct Story {
    /// Its name; `--story` takes it.
    pub name: String,
    /// What happens.
    pub acts: Vec<Act>,
    /// Whether clients also come through HAProxy.
    pub balanced: bool,
}

/// Stories in which every nemesis has its turn. A name ending in `*` goes through HAProxy as well.
const FIXED: &[(&str, &str)] = &[
    (
        "kills",
        "kill-leader kill-both kill-leaders kill-two kill-all kill-follower",
    ),
    (
        "freezes",
        "freeze-leader freeze-follower freeze-leader-long",
    ),
    (
        "partitions",
        "silence-leader silence-follower deaf-leader mute-follower bridge peers-of-leader",
    ),
    ("clients*", "clients-of-node half-open kill-leader"),
    ("slow", "loss delay cut narrow-install"),
    ("snapshots", "install freeze-install kill-saving"),
    (
        "clocks",
        "clock-leader clock-failover clock-strobe clock-pause",
    ),
    ("room", "disk-low disk-full"),
    (
        "disks",
        "disk-slow sync-fails sync-hangs power-cut power-cut-all",
    ),
    ("flips", "flip-log flip-state flip-snapshot"),
    ("folders", "torn-tail stale-disk folder-deleted"),
    ("members", "member-add member-remove member-returns"),
    ("restarts*", "terminate-leader drain rolling-restart moved"),
];

/// The lean ones: minutes are too long for every commit.
const SHORT: &[(&str, &str)] = &[
    ("short-kill", "kill-leader+bridge"),
    ("short-freeze", "freeze-leader+kill-follower"),
    ("short-silence*", "silence-leader"),
];

impl Story {
    /// All stories that together hold every nemesis.
    pub fn fixed() -> Vec<Self> {
        FIXED.iter().filter_map(Self::read).collect()
    }

    /// Three that tell enough for a commit.
    pub fn short() -> Vec<Self> {
        SHORT.iter().filter_map(Self::read).collect()
    }

    /// The story of that name; otherwise acts joined by `,`, each of them a nemesis or two of them joined
    /// by `+`, and `*` at the end for clients behind a balancer: as
    /// [`Self::drawn`] names its stories.
    ///
    /// # Errors
    ///
    /// There is none; the message names those there are.
    pub fn named(name: &str) -> Result<Self> {
        let known = Self::fixed().into_iter().chain(Self::short());
        if let Some(story) = known.into_iter().find(|story| story.name == name) {
            return Ok(story);
        }
        let bare = name.trim_end_matches('*');
        let Some(acts) = bare.split(',').map(act).collect() else {
            let stories: Vec<_> = Self::fixed().into_iter().map(|it| it.name).collect();
            let kinds: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            bail!(
                "--story is {name:?}; allowed are {}, and each of {} (or two of these, A+B, or several such, A+B,C+D; \
                 with * at the end through HAProxy as well)",
                stories.join(", "),
                kinds.join(", ")
            )
        };
        let story = Self {
            name: name.to_owned(),
            acts,
            balanced: name.ends_with('*'),
        };
        let setup = story.setup();
        if setup.volumes && setup.disks {
            bail!(
                "--story is {name:?}: a disk is a small one or a treacherous one; allowed is one of both kinds in a story"
            );
        }
        Ok(story)
    }

    /// What [`Self::named`] makes the same acts of, also if its own name says nothing of them.
    fn spelled(&self) -> String {
        let acts: Vec<_> = self.acts.iter().map(Act::to_string).collect();
        let end = if self.balanced { "*" } else { "" };
        format!("{}{end}", acts.join(","))
    }

    /// Two at a time, drawn by chance: `acts` pairs. Its name is what it spells, so that it can be told
    /// again.
    pub fn drawn(acts: usize, random: &mut StdRng) -> Self {
        let lights: Vec<Kind> = KINDS.iter().copied().filter(|kind| kind.light).collect();
        let mut story = Self {
            name: String::new(),
            acts: Vec::new(),
            balanced: random.random_bool(0.3),
        };
        while story.acts.len() < acts {
            let outer = KINDS[random.random_range(0..KINDS.len())];
            let inner = lights[random.random_range(0..lights.len())];
            // What ends by itself is over before anything else could begin.
            let lasts = !(outer.make)().hold().is_zero();
            // A disk is a small one or a treacherous one.
            let setup = story.setup().and(outer.setup);
            let fits = !(setup.volumes && setup.disks);
            let dies = !(outer.unkillable && inner.kills);
            // When all have died, time is set from wall clocks (architecture, section 4); what comes
            // of it while those are wrong is no promise.
            let told = !(outer.setup.clocks && inner.kills);
            if lasts && fits && dies && told && !outer.outage && outer.name != inner.name {
                story.acts.push(Act {
                    outer,
                    inner: Some(inner),
                });
            }
        }
        story.name = story.spelled();
        story
    }

    /// What it needs.
    pub fn setup(&self) -> Setup {
        let all = self
            .acts
            .iter()
            .flat_map(|act| [Some(act.outer), act.inner])
            .flatten();
        let own = Setup {
            balanced: self.balanced,
            ..Setup::default()
        };
        all.fold(own, |setup, kind| setup.and(kind.setup))
    }

    fn read((name, acts): &(&str, &str)) -> Option<Self> {
        Some(Self {
            name: name.trim_end_matches('*').to_owned(),
            acts: acts.split(' ').map(act).collect::<Option<_>>()?,
            balanced: name.ends_with('*'),
        })
    }
}

fn act(text: &str) -> Option<Act> {
    match text.split_once('+') {
        None => Kind::named(text).map(Act::from),
        Some((outer, inner)) => Some(Act {
            outer: Kind::named(outer)?,
            inner: Some(Kind::named(inner)?),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn every_nemesis_has_its_turn_in_a_fixed_story() {
        let told: BTreeSet<&str> = Story::fixed()
            .iter()
            .flat_map(|story| story.acts.iter().map(|act| act.outer.name))
            .collect();
        let all: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(told, all);
        assert_eq!(Story::fixed().len(), FIXED.len());
        assert_eq!(Story::short().len(), SHORT.len());
    }

    #[test]
    fn the_same_seed_draws_the_same_story() {
        let draw = |seed| {
            let mut random = StdRng::seed_from_u64(seed);
            Story::drawn(20, &mut random).name
        };
        assert_eq!(draw(4_711), draw(4_711));
        assert_ne!(draw(4_711), draw(4_712));
    }

    #[test]
    fn a_drawn_story_is_told_again_by_what_it_spells() {
        let mut random = StdRng::seed_from_u64(1);
        let mut balanced = 0;
        for _ in 0..50 {
            let drawn = Story::drawn(3, &mut random);
            let again = Story::named(&drawn.name).unwrap();
            assert_eq!(again.name, drawn.name);
            assert_eq!(again.spelled(), drawn.name);
            assert_eq!(again.balanced, drawn.balanced, "{}", drawn.name);
            balanced += usize::from(again.balanced);
        }
        assert!((1..50).contains(&balanced), "{balanced} of 50 balanced");

        for story in Story::fixed().into_iter().chain(Story::short()) {
            let again = Story::named(&story.spelled()).unwrap();
            assert_eq!(again.spelled(), story.spelled(), "{}", story.name);
        }
    }

    #[test]
    fn a_story_that_nobody_knows_is_refused_with_what_is_allowed() {
        for name in [
            "pairs-1",
            "",
            "kill-leader,",
            "kill-leader+",
            "bridge+kill-leader+bridge",
        ] {
            let refused = Story::named(name).err().expect(name).to_string();
            assert!(
                refused.contains(&format!("{name:?}; allowed are kills,")),
                "{refused}"
            );
        }
    }

    #[test]
    fn nobody_is_killed_who_cannot_be_or_who_would_ask_a_wrong_clock_for_the_time() {
        let kills: Vec<_> = KINDS
            .iter()
            .filter(|kind| kind.light && kind.kills)
            .collect();
        assert_eq!(kills.len(), 3, "what is light and kills");
        let mut clocks = 0;
        for seed in 0..100 {
            let mut random = StdRng::seed_from_u64(seed);
            for act in Story::drawn(20, &mut random).acts {
                let inner = act.inner.unwrap();
                let pair = format!("seed {seed}: {}+{}", act.outer.name, inner.name);
                assert!(!(act.outer.unkillable && inner.kills), "{pair}");
                assert!(!(act.outer.setup.clocks && inner.kills), "{pair}");
                clocks += usize::from(act.outer.setup.clocks);
            }
        }
        assert!(clocks > 0, "wrong clocks are drawn with what does not kill");
    }
}
