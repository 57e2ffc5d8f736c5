use std::fmt;

use super::{Action, Setup, World, drain::drain};

/// A promise that is broken, and how it came to it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The world it happened in.
    pub setup: Setup,
    /// What happened, as short as it could be made.
    pub actions: Vec<Action>,
    /// The promise.
    pub breach: String,
}

/// The first word of a breach: breaches of one kind start with the same.
pub fn kind_of(breach: &str) -> &str {
    breach.split(':').next().unwrap_or(breach)
}

impl Violation {
    /// Leaves out whatever is not needed for a breach of the same kind.
    pub(crate) fn shrunk(mut self) -> Self {
        let kind = kind_of(&self.breach).to_owned();
        let mut length = self.actions.len();
        while length > 0 {
            let mut at = 0;
            let mut shorter = false;
            while at < self.actions.len() {
                let mut some = self.actions.clone();
                some.drain(at..(at + length).min(some.len()));
                match replay(&self.setup, &some) {
                    Some((actions, breach))
                        if kind_of(&breach) == kind && actions.len() < self.actions.len() =>
                    {
                        self.actions = actions;
                        self.breach = breach;
                        shorter = true;
                    }
                    _ => at += length,
                }
            }
            if !shorter {
                length /= 2;
            }
        }
        self
    }
}

/// Does what of `actions` can be done, then lets the world come to rest. What was done, and the
/// breach, if there is one.
fn replay(setup: &Setup, actions: &[Action]) -> Option<(Vec<Action>, String)> {
    let mut world = World::new(setup);
    let mut done = Vec::new();
    for action in actions {
        if !world.actions(setup, false).contains(action)
            && !world.actions(setup, true).contains(action)
        {
            continue;
        }
        done.push(*action);
        if let Err(breach) = world.step(*action, setup) {
            return Some((done, breach));
        }
    }
    let breach = drain(world, setup, |_| 0, &mut done).err()?;
    Some((done, breach))
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.breach)?;
        for (node, scripts) in self.setup.scripts.iter().enumerate() {
            for (client, script) in scripts.iter().enumerate() {
                if !script.is_empty() {
                    writeln!(f, "  client {client} of node {node} says {script:?}")?;
                }
            }
        }
        for (number, action) in self.actions.iter().enumerate() {
            writeln!(f, "  {:>3}. {action:?}", number + 1)?;
        }
        Ok(())
    }
}
