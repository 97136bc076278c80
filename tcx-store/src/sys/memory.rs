//! Reads how much memory this process may use: the memory of the machine, or the limit of a control group.
//!
//! The default of `Options::memory_cache_bytes` is a share of it. A constant would be too much for a small container, or
//! leave a large machine unused. The crates that report such limits inspect the whole system, for the two kinds of files
//! that are read here, and the limits of groups above the own one count as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is assumed where nothing says how much there is.
const ASSUMED: usize = 4 << 30;

/// The memory that this process may use, in bytes.
pub(crate) fn memory() -> usize {
    // Not a lock, which a thread of the parent could hold in a forked process: two threads may read it at once.
    static MEMORY: AtomicUsize = AtomicUsize::new(0);
    match MEMORY.load(Ordering::Relaxed) {
        0 => {
            let found = read(Path::new("/")).unwrap_or(ASSUMED).max(1);
            // All stores of a process have the same default, whatever becomes of a limit.
            MEMORY.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(found)
        }
        known => known,
    }
}

/// The memory that the files under `root` report, which is `/` outside of tests.
fn read(root: &Path) -> Option<usize> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limits_of(root, line));
    machine(root).into_iter().chain(limits).min()
}

/// What the machine has.
fn machine(root: &Path) -> Option<usize> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"))?;
    kib.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// The limits of a group that this process is in, and of the groups above it. A line is `number:controllers:path`; version 2
/// has one line, without controllers.
fn limits_of(root: &Path, line: &str) -> Vec<usize> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (mounted, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let mounted = root.join(mounted);
    // In a container the path may be that of the host, while the mounted tree begins with the own group: its root counts.
    let group = Path::new(path.trim_start_matches('/'));
    let groups = group.ancestors().filter(|group| !has_parents(group));
    groups.filter_map(|group| limit(&mounted.join(group).join(file))).collect()
}

fn has_parents(path: &Path) -> bool {
    path.components().any(|part| part == std::path::Component::ParentDir)
}

/// The number in a file; `max` is not a number.
fn limit(file: &PathBuf) -> Option<usize> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:       16 kB\nMemFree:        3 kB\n");

    fn read_from(files: &[(&str, &str)]) -> Option<usize> {
        read(root(files).path())
    }

    #[test]
    fn without_a_group_the_machine_decides() {
        assert_eq!(read_from(&[MACHINE]), Some(16 << 10));
        assert_eq!(read_from(&[]), None);
        let unlimited = [MACHINE, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")];
        assert_eq!(read_from(&unlimited), Some(16 << 10));
    }

    #[test]
    fn the_smallest_limit_of_a_group_and_those_above_it_counts() {
        let cgroup = ("proc/self/cgroup", "0::/a/b\n");
        let below = ("sys/fs/cgroup/a/b/memory.max", "9000\n");
        assert_eq!(read_from(&[MACHINE, cgroup, below]), Some(9000));
        let above = ("sys/fs/cgroup/a/memory.max", "8000\n");
        assert_eq!(read_from(&[MACHINE, cgroup, below, above]), Some(8000));
        let root = ("sys/fs/cgroup/memory.max", "7000\n");
        assert_eq!(read_from(&[MACHINE, cgroup, below, above, root]), Some(7000));
        let more = ("sys/fs/cgroup/a/b/memory.max", "99999999\n");
        assert_eq!(read_from(&[MACHINE, cgroup, more]), Some(16 << 10));
    }

    #[test]
    fn groups_of_version_1_are_known_too() {
        let cgroup = ("proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n");
        let inside = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "6000\n");
        assert_eq!(read_from(&[MACHINE, cgroup, inside]), Some(6000));
        let unlimited = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(read_from(&[MACHINE, cgroup, unlimited]), Some(16 << 10));
    }
}
