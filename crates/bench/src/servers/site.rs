use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use super::Launch;

/// The variable by which a server's processes are known for those of a site. `TRELLIS_*` would be a node's setting.
pub(super) const MARK: &str = "BENCH_SITE";

/// Waits for the end of its input, which comes when the benchmark ends in whatever way; then ends all that bear the mark
/// and removes the folder. Both until nothing is left: a server may be about to start another, or to write.
const SWEEP: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
for _ in $(seq 200); do
    pids=$(grep -lzxF "$1=$2" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n')
    [ -z "$pids" ] || kill -9 $pids 2>/dev/null
    rm -rf -- "$2" 2>/dev/null
    [ -n "$pids" ] || [ -e "$2" ] || exit 0
    sleep 0.05
done
echo "trellis-bench: can't clear $2" >&2
exit 1
"#;

/// Held while a process is started, and for good by an interruption: it must not overtake the sweeping.
static STARTING: Mutex<()> = Mutex::new(());

pub(super) fn starting() -> MutexGuard<'static, ()> {
    STARTING.lock().unwrap_or_else(|held| held.into_inner())
}

/// A folder in which servers run. When the run ends, in good order, by Ctrl-C or because this process was killed, then
/// the folder is gone and so is every process that was started for it.
#[derive(Debug)]
pub(crate) struct Site {
    path: PathBuf,
    logs: PathBuf,
    sweeper: Arc<Mutex<Child>>,
}

impl Site {
    /// Makes one in `data_dir`, which is made too and stays. What servers say stays there as well, for whoever looks why
    /// one did not start.
    pub(crate) fn new(data_dir: &Path) -> anyhow::Result<Self> {
        use std::os::unix::process::CommandExt;

        std::fs::create_dir_all(data_dir)
            .with_context(|| format!("can't create {}", data_dir.display()))?;
        let logs = data_dir.canonicalize()?;
        let path = tempfile::TempDir::with_prefix_in("run-", &logs)?.keep();
        let sweeper = Command::new("sh")
            .args(["-c", SWEEP, "sweep", MARK])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // A terminal's Ctrl-C is not for it.
            .process_group(0)
            .spawn()
            .context("can't start sh")?;
        let sweeper = Arc::new(Mutex::new(sweeper));
        sweep_when_interrupted(Arc::clone(&sweeper))?;
        Ok(Self {
            path,
            logs,
            sweeper,
        })
    }

    /// An empty folder for a server, named `name`: what an earlier one of this name left is removed.
    pub(crate) fn launch(&self, name: &str) -> anyhow::Result<Launch> {
        let dir = self.path.join(name);
        remove(&dir)?;
        std::fs::create_dir(&dir).with_context(|| format!("can't create {}", dir.display()))?;
        Ok(Launch {
            dir,
            log: self.logs.join(format!("{name}.out")),
            trace: None,
            site: self.path.clone(),
        })
    }

    /// Removes what servers that are stopped have left.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(&self.path)? {
            remove(&entry?.path())?;
        }
        Ok(())
    }
}

fn remove(dir: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("can't clear {}", dir.display()))
        }
        _ => Ok(()),
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        sweep(&self.sweeper);
    }
}

/// Has everything swept away, and waits until it is.
fn sweep(sweeper: &Mutex<Child>) {
    let mut sweeper = sweeper.lock().unwrap_or_else(|held| held.into_inner());
    // This closes its input first.
    let _ = sweeper.wait();
}

/// From now on an interruption sweeps and ends this process.
fn sweep_when_interrupted(sweeper: Arc<Mutex<Child>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        let asked: std::io::Result<()> = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut hang_up = signal(SignalKind::hangup())?;
            tokio::select! {
                it = tokio::signal::ctrl_c() => it,
                _ = terminate.recv() => Ok(()),
                _ = hang_up.recv() => Ok(()),
            }
        });
        if asked.is_err() {
            return;
        }
        let _nothing_starts = starting();
        eprintln!("trellis-bench: interrupted");
        sweep(&sweeper);
        std::process::exit(130);
    });
    Ok(())
}
