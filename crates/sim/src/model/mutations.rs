use std::time::{Duration, Instant};

use super::{Rule, Violation, explore, scenarios, walk};

/// How the loss of a rule was noticed.
pub struct Caught {
    /// The rule that was dropped.
    pub rule: Rule,
    /// `walk` or the scenario, if it was noticed at all.
    pub by: Option<String>,
    /// The seed of the walk, if it was one.
    pub seed: Option<u64>,
    /// Walks or states that it took.
    pub tries: u64,
    /// Steps that it took.
    pub steps: u64,
    /// How long it took.
    pub took: Duration,
    /// What was broken.
    pub violation: Option<Violation>,
}

/// Drops a rule and looks for what comes of it: by walks for `time`, then in every scenario for as
/// long.
pub fn catch(rule: Rule, seed: u64, time: Duration) -> Caught {
    let begin = Instant::now();
    let walked = walk(seed, Some(rule), u64::MAX, time);
    let mut caught = Caught {
        rule,
        by: None,
        seed: None,
        tries: walked.walks,
        steps: walked.steps,
        took: begin.elapsed(),
        violation: None,
    };
    if let Some((seed, violation)) = walked.violation {
        caught.by = Some("walk".to_owned());
        caught.seed = Some(seed);
        caught.violation = Some(violation);
        return caught;
    }
    for mut scenario in scenarios() {
        scenario.setup.dropped = Some(rule);
        let explored = explore(&scenario.setup, usize::MAX, time);
        if explored.violation.is_some() {
            caught.by = Some(scenario.name.to_owned());
            caught.tries = explored.states as u64;
            caught.steps = explored.steps as u64;
            caught.violation = explored.violation;
            break;
        }
    }
    caught.took = begin.elapsed();
    caught
}
