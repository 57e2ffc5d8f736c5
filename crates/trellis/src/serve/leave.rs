//! How the process ends, whatever holds it up.

use std::{
    process,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{exit::Exit, telemetry};

/// Ending in good order closes files and joins threads. One of them may hang with the disk.
const END_WITHIN: Duration = Duration::from_secs(5);

/// After a failure there is nothing to wait for.
const FAIL_WITHIN: Duration = Duration::from_secs(1);

/// From now on a failed disk and a defect end the process, each with its own code.
pub(super) fn on_failure() {
    trellis_consensus::on_fail_stop(|reason| {
        only_once();
        eprintln!("trellis: {reason}; a node whose disk failed stops and says nothing more");
        fail(Exit::Disk);
    });
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        only_once();
        report(info);
        // A half-done step is nothing to go on from, and the other nodes carry on.
        eprintln!("trellis: this is a defect of Trellis; the node stops");
        fail(Exit::Defect);
    }));
}

/// The first failure is the reason; what others meet until the process is gone are its consequences, and waits here for
/// the end. An operator (and a supervisor's log) finds one reason, as the last line.
fn only_once() {
    static FAILED: AtomicBool = AtomicBool::new(false);
    telemetry::fall_silent();
    if FAILED.swap(true, Ordering::SeqCst) {
        loop {
            thread::park();
        }
    }
}

/// The data folder is damaged and quarantined: ends the process.
pub(super) fn damaged(reason: &str) {
    only_once();
    eprintln!(
        "trellis: {reason}; this node is quarantined, its data folder is kept as it is: `trellis \
         rebuild` moves it aside and gets everything from the others (docs/errors/quarantined.md)"
    );
    fail(Exit::Damaged);
}

/// Ends the process now: the kernel closes its sockets.
fn fail(exit: Exit) {
    watch(FAIL_WITHIN, exit);
    process::exit(exit as i32);
}

/// Lets the process end by itself, but not for long.
pub(super) fn within_bounds(exit: Exit) {
    watch(END_WITHIN, exit);
}

/// Ends the process after `within` if it has not ended by then. A disk that hangs may hold up
/// `exit` itself (it runs destructors), so a second look ends it for good.
fn watch(within: Duration, exit: Exit) {
    let watching = thread::Builder::new()
        .name("trellis-end".to_owned())
        .spawn(move || {
            thread::sleep(within);
            let exiting = thread::Builder::new().spawn(move || process::exit(exit as i32));
            thread::sleep(within);
            drop(exiting);
            process::abort();
        });
    if watching.is_err() {
        process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set for the process that is to panic: this very test, run again.
    const PANICS: &str = "TRELLIS_TEST_PANICS";

    #[test]
    fn a_panic_in_any_thread_ends_the_process_and_says_so() {
        if std::env::var_os(PANICS).is_some() {
            on_failure();
            let apply = thread::spawn(|| panic!("half a step"));
            // The process is gone before this returns.
            drop(apply.join());
            return;
        }
        let (_, path) = module_path!().split_once("::").expect("a module");
        let name = format!("{path}::a_panic_in_any_thread_ends_the_process_and_says_so");
        let this = std::env::current_exe().expect("this program");
        let ended = process::Command::new(this)
            .args(["--exact", &name, "--nocapture"])
            .env(PANICS, "yes")
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(Exit::Defect as i32), "{said}");
        assert!(said.contains("half a step"), "{said}");
        assert!(
            said.contains("a defect of Trellis; the node stops"),
            "{said}"
        );
    }
}
