//! How the process ends, whatever holds it up.

use std::{process, thread, time::Duration};

use crate::exit::Exit;

/// Ending in good order closes files and joins threads. One of them may hang with the disk.
const END_WITHIN: Duration = Duration::from_secs(5);

/// After a failure there is nothing to wait for.
const FAIL_WITHIN: Duration = Duration::from_secs(1);

/// From now on a failed disk and a defect end the process, each with its own code.
pub(super) fn on_failure() {
    trellis_consensus::on_fail_stop(|reason| {
        eprintln!("trellis: {reason}; a node whose disk failed stops and says nothing more");
        fail(Exit::Disk);
    });
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        // A half-done step is nothing to go on from, and the other nodes carry on.
        eprintln!("trellis: this is a defect of Trellis; the node stops");
        fail(Exit::Defect);
    }));
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
