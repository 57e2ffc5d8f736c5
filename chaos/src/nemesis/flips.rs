use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom as _};

use super::{Broken, Nemesis, files::files};
use crate::arena::{Arena, READY_MAX, name, wait};

/// How long making a snapshot may take.
const SAVED_MAX: Duration = Duration::from_secs(30);

/// Which files are hit.
#[derive(Clone, Copy, Debug)]
enum Where {
    Log,
    State,
    Snapshot,
}

/// One bit of a file of a stopped node is turned over, somewhere in its middle. The node must be
/// out, or as good as before; which of the two is told, and that it is never silently wrong is
/// for the checker and the digests to say.
#[derive(Debug)]
pub(super) struct Flip {
    place: Where,
    node: Option<usize>,
}

impl Flip {
    pub(super) fn log() -> Self {
        Self {
            place: Where::Log,
            node: None,
        }
    }

    pub(super) fn state() -> Self {
        Self {
            place: Where::State,
            node: None,
        }
    }

    pub(super) fn snapshot() -> Self {
        Self {
            place: Where::Snapshot,
            node: None,
        }
    }

    /// A file that holds something, of those that the place has.
    fn pick(&self, data: &Path, random: &mut StdRng) -> Result<PathBuf> {
        let folder = match self.place {
            Where::Log => "log",
            Where::State => "state",
            Where::Snapshot => "snapshots",
        };
        let mut found = files(&data.join(folder))?;
        found.retain(|file| {
            let kind = file.file_name().unwrap_or_default().to_string_lossy();
            // What RocksDB writes for people, and its lock, is read by nobody.
            let is_read =
                !kind.starts_with("LOG") && kind != "LOCK" && !kind.starts_with("OPTIONS");
            is_read && fs::metadata(file).is_ok_and(|it| it.len() > 0)
        });
        let file = found.choose(random);
        file.cloned()
            .with_context(|| format!("there is no file in {folder}"))
    }
}

impl Nemesis for Flip {
    fn begin(&mut self, arena: &mut Arena, random: &mut StdRng) -> Result<Broken> {
        let node = arena.follower(random)?;
        if matches!(self.place, Where::Snapshot) {
            let answer = arena.order(node, "POST", "/v1/snapshot", "{}", SAVED_MAX)?;
            if answer.status != 200 {
                bail!("snapshot: {} {}", answer.status, answer.body);
            }
        }
        let data = arena.data_dir(node);
        if matches!(self.place, Where::Snapshot) {
            wait(SAVED_MAX, "the snapshot is there", || {
                self.pick(&data, random).map(|_| ())
            })?;
        }
        arena.kill(node)?;
        let file = self.pick(&data, random)?;
        let handle = fs::File::options().read(true).write(true).open(&file)?;
        let length = handle.metadata()?.len();
        // In the middle: a torn tail is another fault.
        let offset = random.random_range(length / 8..=(length * 7 / 8).min(length - 1));
        let mut byte = [0];
        handle.read_exact_at(&mut byte, offset)?;
        byte[0] ^= 1 << random.random_range(0..8);
        handle.write_all_at(&byte, offset)?;
        self.node = Some(node);
        let file = file.strip_prefix(&data).unwrap_or(&file);
        let seen = format!(
            "{}: a bit in byte {offset} of {length} of {}",
            name(node),
            file.display()
        );
        Ok(Broken::new([node], seen))
    }

    fn end(&mut self, arena: &mut Arena, _: &mut StdRng) -> Result<()> {
        let Some(node) = self.node.take() else {
            return Ok(());
        };
        // Whenever it finds the damage: it is started again, and rebuilt if it says that it must.
        arena.suspect(node);
        arena.start(node)?;
        arena.settle(READY_MAX).map(|_| ())
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(1)
    }
}
