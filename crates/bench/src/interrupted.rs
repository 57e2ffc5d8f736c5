//! Ctrl-C in the middle of a run leaves nothing behind.

use std::path::Path;
use std::time::{Duration, Instant};

/// How long servers that are ending may still write into what is being removed.
const REMOVE_MAX: Duration = Duration::from_secs(5);

/// From now on an interruption removes `dir` and ends this process; the servers end with it.
pub(crate) fn removes(dir: &Path) -> anyhow::Result<()> {
    let dir = dir.to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        let asked = runtime.block_on(async {
            let mut term =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
            tokio::select! {
                it = tokio::signal::ctrl_c() => it,
                _ = term.recv() => Ok(()),
            }
        });
        if asked.is_err() {
            return;
        }
        eprintln!("trellis-bench: interrupted");
        let begun = Instant::now();
        while std::fs::remove_dir_all(&dir).is_err() && dir.exists() && begun.elapsed() < REMOVE_MAX
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::process::exit(130);
    });
    Ok(())
}
