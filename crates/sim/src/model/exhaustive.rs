use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use super::{Action, Setup, Violation, World, drain::drain};

/// Of the states that are not at rest one in so many is let come to rest.
const DRAINED_OF: u64 = 64;

/// What a search over everything that may happen has found.
#[derive(Debug)]
pub struct Explored {
    /// Different states that were looked at.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// States in which nothing happens by itself.
    pub rests: usize,
    /// The longest way to a state that was new then.
    pub depth: usize,
    /// Whether there is nothing else.
    pub complete: bool,
    /// The first breach.
    pub violation: Option<Violation>,
}

struct Frame {
    world: World,
    actions: Vec<Action>,
    next: usize,
}

/// Looks at every state that a small world can come to, until `states_max` were seen or `time` is
/// over: depth first, so that only the way to the present state is remembered whole.
pub fn explore(setup: &Setup, states_max: usize, time: Duration) -> Explored {
    let begin = Instant::now();
    let mut seen = FxHashSet::default();
    let mut found = Explored {
        states: 0,
        steps: 0,
        rests: 0,
        depth: 0,
        complete: false,
        violation: None,
    };
    let mut path: Vec<Frame> = Vec::new();
    let mut coming = Some(World::new(setup));
    loop {
        if let Some(world) = coming.take()
            && seen.insert(world.fingerprint())
        {
            found.states += 1;
            found.depth = found.depth.max(path.len());
            if let Err(breach) = rest(&world, setup, &mut found) {
                found.violation = Some(violation(setup, &path, breach));
                return found;
            }
            let actions = world.actions(setup, false);
            path.push(Frame {
                world,
                actions,
                next: 0,
            });
        }
        if found.states >= states_max
            || (found.steps.is_multiple_of(1_024) && begin.elapsed() > time)
        {
            return found;
        }
        let Some(frame) = path.last_mut() else {
            found.complete = true;
            return found;
        };
        let Some(action) = frame.actions.get(frame.next).copied() else {
            path.pop();
            continue;
        };
        frame.next += 1;
        found.steps += 1;
        let mut world = frame.world.clone();
        if let Err(breach) = world.step(action, setup) {
            found.violation = Some(violation(setup, &path, breach));
            return found;
        }
        coming = Some(world);
    }
}

/// A state at rest is looked at; of the others some are let come to rest.
fn rest(world: &World, setup: &Setup, found: &mut Explored) -> Result<(), String> {
    let at_rest = world.actions(setup, true).is_empty();
    found.rests += usize::from(at_rest);
    if at_rest {
        return world.at_rest();
    }
    if (found.states as u64).is_multiple_of(DRAINED_OF) {
        return drain(world.clone(), setup, |_| 0, &mut Vec::new());
    }
    Ok(())
}

/// The way to the present state, made as short as may be.
fn violation(setup: &Setup, path: &[Frame], breach: String) -> Violation {
    let actions = path
        .iter()
        .filter_map(|frame| frame.actions.get(frame.next.checked_sub(1)?).copied())
        .collect();
    Violation {
        setup: setup.clone(),
        actions,
        breach,
    }
    .shrunk()
}
