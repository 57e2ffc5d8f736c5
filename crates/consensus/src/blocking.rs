use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use tokio::runtime::{Handle, RuntimeFlavor};

static IN_PLACE: AtomicBool = AtomicBool::new(false);

/// From now on everything that may block is done at once where it is asked for, in this process:
/// for a simulation, whose disk never blocks and whose order of events must not depend on threads.
pub fn work_in_place() {
    IN_PLACE.store(true, Ordering::Relaxed);
}

/// Runs `work`, which may take long, where it is asked for, while the other tasks of this thread
/// go on on another one.
pub(crate) fn long<T>(work: impl FnOnce() -> T) -> T {
    let elsewhere = Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if elsewhere && !IN_PLACE.load(Ordering::Relaxed) {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// Runs `work`, which may block, on a thread that may.
///
/// # Errors
///
/// Those of `work`; a panic in it is one too.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if IN_PLACE.load(Ordering::Relaxed) {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The runtime ends, and this task with it: nothing is to be concluded from that.
        Err(error) if error.is_cancelled() => std::future::pending().await,
        Err(error) => Err(io::Error::other(error)),
    }
}
