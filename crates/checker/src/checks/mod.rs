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

use std::collections::BTreeSet;

use trellis_types::TubeName;

use crate::{Coverage, Finding, Run, partition::Plan};

/// All necessary conditions. A tube in `broken` has a job whose life is broken, and so no order that
/// could be looked at.
pub(crate) fn conditions(
    run: &Run,
    plan: &Plan,
    broken: &BTreeSet<TubeName>,
    coverage: &mut Coverage,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(ids::check(run, coverage));
    findings.extend(answers::check(run, plan, coverage));
    findings.extend(order::check(run, plan, broken, coverage));
    findings.extend(disk::check(run, coverage));
    findings.extend(nodes::check(run, coverage));
    findings.extend(clock::check(run, plan, coverage));
    findings.extend(rest::check(run, plan, coverage));
    findings
}
