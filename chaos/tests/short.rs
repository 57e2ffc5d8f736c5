//! Three short stories for every commit: real processes in networks of their own, so this needs
//! root. `make chaos` tells the long ones.

use std::{
    env,
    sync::{Mutex, PoisonError},
};

use trellis_chaos::{Settings, Story, account::Word, tell};
use trellis_testkit::{network::Network, process::trellis_binary};

/// What a checked build on a busy machine acknowledges in a second, at least.
const RATE: f64 = 50.0;

/// One cluster at a time: two cores are few.
static TURN: Mutex<()> = Mutex::new(());

fn told(name: &str) {
    if !Network::is_possible() {
        let why = "networks need root";
        assert!(env::var_os("CI").is_none(), "{why}");
        println!("not told here: {why}");
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = env::var("CHAOS_SEED").ok();
    let seed = seed.and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("replay: CHAOS_SEED={seed} sh tests/cargo.sh test -p trellis-chaos --test short");
    let settings = Settings {
        binary: trellis_binary().expect("the binary was built"),
        profile: "busy".to_owned(),
        rate: RATE,
        commit: String::new(),
        keep: env::temp_dir().join("trellis-chaos-kept"),
    };
    let story = Story::named(name).expect("a story");
    let account = tell(&story, seed, &settings, &mut |line| println!("{line}"));
    let account = account.expect("a place for it");
    assert_eq!(account.verdict, Word::Sound, "{account:#?}");
}

#[test]
fn the_leader_is_killed_while_two_do_not_hear_each_other() {
    told("short-kill");
}

#[test]
fn the_leader_is_stopped_and_a_follower_dies_meanwhile() {
    told("short-freeze");
}

#[test]
fn the_leader_falls_silent_behind_a_load_balancer() {
    told("short-silence");
}
