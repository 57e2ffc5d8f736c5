//! What each invariant is held against. [`searching`] looks for orders; the others are conditions
//! that hold in every order.

mod answers;
mod clock;
mod disk;
mod ids;
mod nodes;
mod order;
mod rest;
pub(crate) mod searching;

use crate::{Coverage, Finding, Run, partition::Plan};

/// All necessary conditions.
pub(crate) fn conditions(run: &Run, plan: &Plan, coverage: &mut Coverage) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(ids::check(run, coverage));
    findings.extend(answers::check(run, plan, coverage));
    findings.extend(order::check(run, plan, coverage));
    findings.extend(disk::check(run, coverage));
    findings.extend(nodes::check(run, coverage));
    findings.extend(clock::check(run, plan, coverage));
    findings.extend(rest::check(run, plan, coverage));
    findings
}
