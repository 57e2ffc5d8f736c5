use std::{fmt::Display, sync::OnceLock};

type Hook = Box<dyn Fn(&str) + Send + Sync>;

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Exit code of a process whose disk failed (`EX_IOERR`).
pub const FAIL_STOP_EXIT_CODE: i32 = 74;

/// Says what happens when the disk fails, once per process: the first call counts. The hook should
/// not return; without one a line goes to standard error and the process exits with
/// [`FAIL_STOP_EXIT_CODE`].
pub fn on_fail_stop(hook: impl Fn(&str) + Send + Sync + 'static) {
    let _ = HOOK.set(Box::new(hook));
}

/// The disk failed: from now on nothing this process would say could be trusted (P9). A failed
/// fsync is never tried again. Returns only if the hook does.
pub fn fail_stop(reason: impl Display) {
    let reason = reason.to_string();
    tracing::error!(%reason, "the disk failed, this node stops");
    match HOOK.get() {
        Some(hook) => hook(&reason),
        None => {
            eprintln!("trellis: {reason}; a node whose disk failed stops");
            std::process::exit(FAIL_STOP_EXIT_CODE);
        }
    }
}
