use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    Action, Faults, Rule, Setup, Violation, Word, World,
    drain::drain,
    setup::{CLIENTS, NODES},
};

/// What some walks have come to.
#[derive(Debug)]
pub struct Walked {
    /// How many.
    pub walks: u64,
    /// Steps of all of them.
    pub steps: u64,
    /// The first breach, and the seed of its walk.
    pub violation: Option<(u64, Violation)>,
}

/// Walks at random through random worlds, each walk by a seed of its own: `seed`, `seed` + 1 …
/// Ends with the first breach, after `time`, or after `walks_max` walks.
pub fn walk(seed: u64, dropped: Option<Rule>, walks_max: u64, time: Duration) -> Walked {
    let begin = Instant::now();
    let mut walked = Walked {
        walks: 0,
        steps: 0,
        violation: None,
    };
    while walked.walks < walks_max && begin.elapsed() < time {
        let seed = seed.wrapping_add(walked.walks);
        let (actions, breach, setup) = one(seed, dropped);
        walked.walks += 1;
        walked.steps += actions.len() as u64;
        if let Some(breach) = breach {
            let violation = Violation {
                setup,
                actions,
                breach,
            };
            walked.violation = Some((seed, violation.shrunk()));
            break;
        }
    }
    walked
}

/// One walk: what happened, and the breach, if there is one.
fn one(seed: u64, dropped: Option<Rule>) -> (Vec<Action>, Option<String>, Setup) {
    let mut chance = StdRng::seed_from_u64(seed);
    let setup = random_setup(&mut chance, dropped);
    let mut world = World::new(&setup);
    let mut done = Vec::new();
    let steps = chance.random_range(20..180);
    let trouble = chance.random_range(3..40);
    for _ in 0..steps {
        let actions = world.actions(&setup, false);
        let wanted = chance.random_range(0..100) < trouble;
        let some: Vec<Action> = actions
            .iter()
            .copied()
            .filter(|action| {
                let elects = matches!(action, Action::Elect(..)) && world.leader().is_none();
                (action.is_progress() || elects) != wanted
            })
            .collect();
        let of = if some.is_empty() { &actions } else { &some };
        let Some(action) = of.get(chance.random_range(0..of.len().max(1))) else {
            break;
        };
        done.push(*action);
        if let Err(breach) = world.step(*action, &setup) {
            return (done, Some(breach), setup);
        }
    }
    let breach = drain(
        world,
        &setup,
        |count| chance.random_range(0..count),
        &mut done,
    )
    .err();
    (done, breach, setup)
}

/// The world of the walk with that seed.
pub fn setup_of(seed: u64, dropped: Option<Rule>) -> Setup {
    random_setup(&mut StdRng::seed_from_u64(seed), dropped)
}

fn random_setup(chance: &mut StdRng, dropped: Option<Rule>) -> Setup {
    let mut scripts: [[Vec<Word>; CLIENTS]; NODES] = Default::default();
    for script in scripts.iter_mut().flatten() {
        if chance.random_range(0..5) > 0 {
            let words = chance.random_range(1..7);
            script.extend((0..words).map(|_| random_word(chance)));
        }
    }
    let mut some = || [0, 0, 1, 1, 2, 3][chance.random_range(0..6)];
    let mut faults = Faults {
        elections: some(),
        crashes: some(),
        breaks: some(),
        refusals: some(),
        snapshots: some(),
        absences: some(),
        suspensions: some(),
        expiries: some(),
        fences: some(),
        leaps: some(),
        hang_ups: some(),
        half_closes: some(),
        late_opens: some(),
        overdue: some(),
    };
    // What ends all sessions hides what else might go wrong.
    if chance.random() {
        faults.crashes = 0;
        faults.snapshots = 0;
    }
    if chance.random() {
        faults.expiries = 0;
        faults.fences = 0;
    }
    if chance.random() {
        faults.overdue = 0;
    }
    Setup {
        scripts,
        faults,
        pipeline: chance.random_range(1..5),
        log: chance.random_range(2..6),
        dropped,
    }
}

fn random_word(chance: &mut StdRng) -> Word {
    let job = chance.random_range(1..5);
    match chance.random_range(0..20) {
        0..=5 => Word::Put,
        6..=9 => Word::Reserve,
        10 | 11 => Word::Poll,
        12 | 13 => Word::Delete(job),
        14 => Word::Release(job),
        15 => Word::ReserveJob(job),
        16..=18 => Word::Use,
        _ => Word::Quit,
    }
}
