//! Two short stories for every commit; `make disks` tells all of them, at length.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use trellis_chaos_disk::Plug;
use trellis_testkit::process::trellis_binary;

/// One at a time: each looks for free ports by its own pid, and those of two would lie side by side.
static ALONE: Mutex<()> = Mutex::new(());

/// Tells a story; its own words are shown if it falls short.
fn holds(story: &str, rounds: u32) {
    if !Plug::is_possible() {
        let why = "mounting needs /dev/fuse and root";
        assert!(env::var_os("CI").is_none(), "{why}");
        println!("not told here: {why}");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = Path::new(env!("CARGO_BIN_EXE_trellis-chaos-disk"));
    let told = Command::new(program)
        .args(["story", story, "--rounds", &rounds.to_string()])
        .arg("--trellis")
        .arg(trellis_binary().expect("a trellis binary"))
        .stdin(Stdio::null())
        .output()
        .expect("it can be told");
    let words = String::from_utf8_lossy(&told.stdout);
    println!("{words}");
    assert!(
        told.status.success(),
        "{words}\n{}",
        String::from_utf8_lossy(&told.stderr)
    );
}

#[test]
fn the_power_of_all_nodes_goes_at_once_and_nothing_acknowledged_is_lost() {
    holds("power-cut", 2);
}

/// The node stops with one reason, the last line of its log, and comes back when the disk does.
#[test]
fn one_failed_sync_ends_a_node_with_one_line_and_its_own_code() {
    holds("sync-error", 1);
}
