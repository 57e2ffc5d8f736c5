use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

/// Room on a node's file system. Its mark for "low on disk" is a tenth of that.
const VOLUME_BYTES: u64 = 640 << 20;

/// A small file system of a node's own, in a file. Unmounted when dropped.
#[derive(Debug)]
pub struct Volume {
    mounted_at: PathBuf,
}

impl Volume {
    /// Makes one under `base` and mounts it.
    pub(super) fn make(base: &Path) -> Result<Self> {
        let image = base.with_extension("img");
        fs::File::create(&image)?.set_len(VOLUME_BYTES)?;
        let text = image.display().to_string();
        run(
            "mkfs.ext4",
            &["-q", "-m", "0", "-E", "lazy_itable_init=1", &text],
        )?;
        fs::create_dir_all(base)?;
        let at = base.display().to_string();
        run("mount", &["-o", "loop", &text, &at])?;
        Ok(Self {
            mounted_at: base.to_owned(),
        })
    }

    /// Where it is.
    pub fn mounted_at(&self) -> &Path {
        &self.mounted_at
    }

    /// Free bytes.
    ///
    /// # Errors
    ///
    /// As the system has it.
    pub fn free(&self) -> Result<u64> {
        let seen = rustix::fs::statvfs(&self.mounted_at)?;
        Ok(seen.f_bavail * seen.f_frsize)
    }

    /// Takes room away until about `left` bytes are free; with 0, until nothing more can be
    /// written.
    ///
    /// # Errors
    ///
    /// Another failure than a full disk.
    pub fn fill(&self, left: u64) -> Result<()> {
        let mut ballast = fs::File::options()
            .create(true)
            .append(true)
            .open(self.ballast())?;
        let block = vec![0xA5; 64 << 10];
        // Sizes fall, so that the last byte is found, too.
        for size in [block.len(), 4096, 512, 1] {
            while self.free()? > left || left == 0 {
                match ballast.write_all(&block[..size]) {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Gives the room back.
    ///
    /// # Errors
    ///
    /// As the system has it.
    pub fn clear(&self) -> Result<()> {
        Ok(fs::remove_file(self.ballast())?)
    }

    fn ballast(&self) -> PathBuf {
        self.mounted_at.join("ballast")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // A process that dies may hold it for a moment; the kernel then ends it later.
        let at = self.mounted_at.display().to_string();
        let _ = run("umount", &["-l", &at]);
    }
}

fn run(program: &str, words: &[&str]) -> Result<()> {
    let done = Command::new(program)
        .args(words)
        .output()
        .with_context(|| program.to_owned())?;
    if !done.status.success() {
        bail!(
            "{program} {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    Ok(())
}
