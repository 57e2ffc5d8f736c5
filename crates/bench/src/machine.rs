//! The machine in words.

use std::path::Path;

use crate::figures::load_average;
use crate::servers::version_of;

/// Processor, memory, kernel, and what the data lies on.
pub(crate) fn described(data_dir: &Path) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
            .unwrap_or_else(|| "unknown".to_owned())
    };
    let memory = value(&read("/proc/meminfo"), "MemTotal");
    let gib = memory
        .trim_end_matches(" kB")
        .parse::<f64>()
        .map_or(f64::NAN, |kib| kib / f64::from(1 << 20));
    format!(
        "{}; {} cores of {}, {gib:.0} GiB of memory, Linux {}; data in {} ({}); load average {:.2} at the start",
        today(),
        std::thread::available_parallelism().map_or(0, usize::from),
        value(&read("/proc/cpuinfo"), "model name"),
        read("/proc/sys/kernel/osrelease").trim(),
        data_dir.display(),
        file_system(data_dir),
        load_average()
    )
}

fn today() -> String {
    version_of(Path::new("date"), "+%Y-%m-%d").unwrap_or_else(|| "some day".to_owned())
}

/// The kind of file system that holds a folder: that of the longest mount point above it.
fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(point, _)| dir.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}
