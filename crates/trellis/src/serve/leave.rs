//! How the process ends, whatever holds it up.

use std::{
    fmt::Display,
    io::{self, Write as _},
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
        begin(Exit::Disk);
        end(
            Exit::Disk,
            format_args!("{reason}; a node whose disk failed stops and says nothing more"),
        );
    });
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        begin(Exit::Defect);
        report(info);
        // A half-done step is nothing to go on from, and the other nodes carry on.
        end(Exit::Defect, "this is a defect of Trellis; the node stops");
    }));
}

/// The data folder is damaged and quarantined: ends the process.
pub(super) fn damaged(reason: &str) {
    begin(Exit::Damaged);
    end(
        Exit::Damaged,
        format_args!(
            "{reason}; this node is quarantined, its data folder is kept as it is: `trellis rebuild` \
             moves it aside and gets everything from the others (docs/errors/quarantined.md)"
        ),
    );
}

/// The first failure is the reason; what others meet until the process is gone are its consequences, and waits here for
/// the end. An operator (and a supervisor's log) finds one reason, as the last line.
fn begin(exit: Exit) {
    static FAILED: AtomicBool = AtomicBool::new(false);
    if FAILED.swap(true, Ordering::SeqCst) {
        loop {
            thread::park();
        }
    }
    // Before the first word: standard error may be a pipe that is full and that nobody reads.
    watch(FAIL_WITHIN, exit);
    telemetry::fall_silent();
}

/// Says the last line, and ends the process. `eprintln!` would panic where nobody hears it any more.
fn end(exit: Exit, reason: impl Display) -> ! {
    let _ = writeln!(io::stderr(), "trellis: {reason}");
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
    use std::{
        process::{Command, Output, Stdio},
        sync::Barrier,
        time::Instant,
    };

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;
    use crate::{
        config::{Config, Said},
        settings::Settings,
    };

    /// Set for the process that is to fail: this very test, run again.
    const FAILS: &str = "TRELLIS_TEST_FAILS";

    /// Whether this is the process that is to fail.
    fn is_to_fail() -> bool {
        std::env::var_os(FAILS).is_some()
    }

    /// The test of this name as a process that fails.
    fn failing(name: &str) -> Command {
        let (_, path) = module_path!().split_once("::").expect("a module");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", &format!("{path}::{name}"), "--nocapture"])
            .stdout(Stdio::null())
            .env(FAILS, "yes");
        command
    }

    #[test]
    fn a_panic_in_any_thread_ends_the_process_and_says_so() {
        if is_to_fail() {
            on_failure();
            let apply = thread::spawn(|| panic!("half a step"));
            // The process is gone before this returns.
            drop(apply.join());
            return;
        }
        let ended = failing("a_panic_in_any_thread_ends_the_process_and_says_so")
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

    /// Log, state and snapshots have threads of their own, and all meet the broken disk in the same moment.
    #[test]
    fn of_all_who_meet_the_broken_disk_at_once_one_has_the_last_word() {
        const AT_ONCE: usize = 8;
        if is_to_fail() {
            let said = Said {
                config: Config::default(),
                places: Vec::new(),
            };
            let settings = Settings::check(&said).expect("sound");
            telemetry::start(&settings, None);
            on_failure();
            let together = Barrier::new(AT_ONCE);
            thread::scope(|scope| {
                for part in 0..AT_ONCE {
                    let together = &together;
                    scope.spawn(move || {
                        together.wait();
                        trellis_consensus::fail_stop(format_args!("part {part} can't be written"));
                    });
                }
            });
            return;
        }
        for round in 1..=40 {
            let Output { status, stderr, .. } =
                failing("of_all_who_meet_the_broken_disk_at_once_one_has_the_last_word")
                    .output()
                    .expect("it starts");
            let said = String::from_utf8_lossy(&stderr);
            assert_eq!(status.code(), Some(Exit::Disk as i32), "{round}: {said}");
            let reasons = said.lines().filter(|line| line.starts_with("trellis: "));
            assert_eq!(reasons.count(), 1, "{round}: {said}");
            let last = said.lines().last().unwrap_or_default();
            assert!(last.starts_with("trellis: "), "{round}: {said}");
        }
    }

    /// A supervisor that hangs, or a terminal's `| head` that has seen enough, keeps no node alive whose disk failed.
    #[test]
    fn a_node_that_nobody_hears_ends_all_the_same() {
        if is_to_fail() {
            on_failure();
            trellis_consensus::fail_stop("the log can't be written");
            return;
        }
        let fails = || failing("a_node_that_nobody_hears_ends_all_the_same");

        let (reads, writes) = io::pipe().expect("a pipe");
        drop(reads);
        let left = fails().stderr(writes).spawn().expect("it starts");
        assert_eq!(ends(left), Some(Exit::Disk as i32), "nobody reads any more");

        let (reads, mut writes) = io::pipe().expect("a pipe");
        fcntl_setfl(&writes, OFlags::NONBLOCK).expect("it is ours");
        while writes.write(&[b'.'; 512]).is_ok() {}
        fcntl_setfl(&writes, OFlags::empty()).expect("it is ours");
        let stuck = fails().stderr(writes).spawn().expect("it starts");
        assert_eq!(ends(stuck), Some(Exit::Disk as i32), "the pipe is full");
        drop(reads);
    }

    /// Waits for the end; its exit code.
    fn ends(mut child: process::Child) -> Option<i32> {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = child.try_wait().expect("it is ours") {
                return status.code();
            }
            if Instant::now() >= until {
                let _ = child.kill();
                panic!("it has not ended within 30 s: {:?}", child.wait());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
