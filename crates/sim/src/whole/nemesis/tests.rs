use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use trellis_checker::{
    history::{Bounds, Demands, Header, Recorder, VERSION},
    workload::{Profile, Workload},
};

use super::{
    super::{client::Shared, doing::Undo, fault::Fault, net::Net, world::World},
    Nemesis,
    old_disk::put_back,
};

/// What all three nodes may take to be ready.
const BOUND_MS: u64 = 60_000;

/// Three nodes, and nobody who writes down what becomes of them.
fn three(seed: u64) -> World {
    let net = Net::new(seed);
    let header = Header {
        version: VERSION,
        instrument: "test".to_owned(),
        seed,
        commit: "test".to_owned(),
        profile: "mixed".to_owned(),
        bounds: Bounds::default(),
        demands: Demands {
            acknowledged: 0,
            faults: 0,
            finals: 0,
        },
        local_reads: false,
    };
    let shared = Arc::new(Shared {
        net: net.clone(),
        recorder: Recorder::new(Box::new(std::io::sink()), header),
        workload: Workload::new(seed, Profile::named("mixed").expect("a profile")),
        nodes: (0..3).map(|n| format!("trellis-{n}")).collect(),
        over: AtomicBool::new(false),
        answered: AtomicU64::new(0),
        newest: AtomicU64::new(0),
        playing: AtomicU64::new(0),
    });
    World::new(seed, net, shared, Duration::from_secs(4)).expect("a world")
}

fn all_become_ready(world: &mut World) {
    let ready = |world: &mut World| world.houses.iter().all(|house| house.is_ready());
    let became = world.run_until(BOUND_MS, ready);
    assert!(
        became && world.wrong.is_empty(),
        "{:?}\n{}",
        world.wrong,
        world.picture()
    );
}

/// Seed 133 had its last fault an eighth of a second before the end: the node had been told, nobody
/// had looked, and then it was said to stop without a reason.
#[test]
fn faults_may_end_at_any_moment_of_an_old_disk() {
    trellis_consensus::work_in_place();
    let mut stopped = 0;
    for early in [0, 60, 125, 350, 700] {
        let seed = 133 + early;
        let mut world = three(seed);
        for place in 0..3 {
            world.start(place);
        }
        all_become_ready(&mut world);
        let mut nemesis = Nemesis::new(seed, world.now);
        world.kill(0, true, 0);
        nemesis.keep_copy(&mut world, 0);
        world.start(0);
        // It is ready before the others know its new run.
        all_become_ready(&mut world);
        world.run_until(3_000, |_| false);

        let copy = nemesis.copies.remove(&0).expect("a copy was kept");
        put_back(&mut world, 0, copy);
        let until = world.now + 8_000;
        nemesis.note(
            &world,
            Fault::Stale,
            "stale disk",
            vec![0],
            until,
            Undo::Start,
        );
        world.run_until(early, |_| false);
        nemesis.rest(&mut world);
        stopped += nemesis
            .done
            .get(&Fault::Stale.number())
            .copied()
            .unwrap_or(0);
        all_become_ready(&mut world);
    }
    assert!(stopped > 0, "no old disk was noticed, so nothing was tried");
}
