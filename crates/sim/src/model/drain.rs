use super::{Action, Setup, World};

/// Steps within which a world in which nothing goes wrong any more has to come to rest.
const STEPS_MAX: usize = 400;

/// Lets a world come to rest: nothing goes wrong any more and nobody says anything new. Which of
/// several things happens first is up to `choose`.
///
/// # Errors
///
/// The promise that is broken on the way, or at rest. `done` has what happened.
pub(crate) fn drain(
    mut world: World,
    setup: &Setup,
    mut choose: impl FnMut(usize) -> usize,
    done: &mut Vec<Action>,
) -> Result<(), String> {
    for _ in 0..STEPS_MAX {
        let actions = world.actions(setup, true);
        if actions.is_empty() {
            return world.at_rest();
        }
        let action = actions[choose(actions.len())];
        done.push(action);
        world.step(action, setup)?;
    }
    Err(format!("RESTLESS: no rest after {STEPS_MAX} steps"))
}
