//! One that is to join and has bound itself, but was not taken in yet.

#[path = "membership/town.rs"]
#[allow(unreachable_pub, dead_code, missing_docs)]
mod town;

use town::{SHORT_LEASE, Town};
use trellis_node::membership::Identity as _;

#[test]
fn a_newcomer_that_heard_nobody_for_a_moment_is_taken_in_all_the_same() {
    let all = ["n1", "n2", "n3"];
    let mut town = Town::of(&all);
    town.lease = SHORT_LEASE;
    town.start_all();
    town.wait_ready(&all);
    town.put("n1", "letter");

    // Its empty disk is bound to the cluster, as by a request to join that was refused for now; and
    // then nobody answers, as if the cluster were still to be formed.
    let cluster = town.folder("n1").identity.cluster().expect("it is bound");
    town.kill_all();
    town.wipe("n3");
    let bound = town.folder("n3").identity.bind(cluster);
    bound.expect("it was bound to nothing");
    town.start("n3");
    town.wait("n3 to wait for a cluster that is being formed", |town| {
        (town.status("n3").stage == "hello").then_some(())
    });

    town.start("n1");
    town.start("n2");
    town.wait_ready(&all);
    town.wait_equal(&all);
    assert_eq!(town.status("n3").jobs, 1);
}
