//! Reads how much memory this process may use, and how much of it is available: the memory of the machine, or that of a control
//! group.
//!
//! The default of `Options::memory_cache_bytes` is a share of it. A constant would be too much for a small container, or
//! leave a large machine unused. The crates that report such limits inspect the whole system, for the two kinds of files
//! that are read here, and the limits of groups above the own one count as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::runtime;

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

/// The memory that is available to this process now, in bytes: what it can take before the machine or one of its control groups has
/// to reclaim more than the page cache. `None` where nothing says so.
pub(crate) fn available() -> Option<usize> {
    // What a simulated process does must not depend on the machine.
    if runtime::is_simulated() { None } else { read_available(Path::new("/")) }
}

/// The memory that the files under `root` report, which is `/` outside of tests.
fn read(root: &Path) -> Option<usize> {
    let limits = groups(root).into_iter().filter_map(|group| group.limit());
    machine(root, "MemTotal:").into_iter().chain(limits).min()
}

fn read_available(root: &Path) -> Option<usize> {
    let available = groups(root).into_iter().filter_map(|group| group.available());
    machine(root, "MemAvailable:").into_iter().chain(available).min()
}

/// A number of what the machine has.
fn machine(root: &Path, name: &str) -> Option<usize> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"))?;
    kib.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// A control group, and the names of its files.
struct Group {
    dir: PathBuf,
    limit: &'static str,
    usage: &'static str,
    /// Parts of the usage that the system reclaims before memory runs out: pages of files.
    reclaimable: [&'static str; 2],
}

impl Group {
    /// `None` without a limit.
    fn limit(&self) -> Option<usize> {
        number(&self.dir.join(self.limit))
    }

    fn available(&self) -> Option<usize> {
        let limit = self.limit()?;
        let usage = number(&self.dir.join(self.usage))?;
        let text = fs::read_to_string(self.dir.join("memory.stat")).unwrap_or_default();
        let of = |name: &&str| {
            text.lines().find_map(|line| line.strip_prefix(*name)?.strip_prefix(' ')?.parse::<usize>().ok())
        };
        let reclaimable: usize = self.reclaimable.iter().filter_map(of).fold(0, usize::saturating_add);
        Some(limit.saturating_sub(usage.saturating_sub(reclaimable)))
    }
}

/// The groups that this process is in, and those above them.
fn groups(root: &Path) -> Vec<Group> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    text.lines().flat_map(|line| groups_of(root, line)).collect()
}

/// The groups of a line, which is `number:controllers:path`; version 2 has one line, without controllers.
fn groups_of(root: &Path, line: &str) -> Vec<Group> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (mounted, limit, usage, reclaimable) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max", "memory.current", ["inactive_file", "active_file"]),
        _ if controllers.split(',').any(|name| name == "memory") => (
            "sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            ["total_inactive_file", "total_active_file"],
        ),
        _ => return Vec::new(),
    };
    let mounted = root.join(mounted);
    // In a container the path may be that of the host, while the mounted tree begins with the own group: its root counts.
    let group = Path::new(path.trim_start_matches('/'));
    let groups = group.ancestors().filter(|group| !has_parents(group));
    groups.map(|group| Group { dir: mounted.join(group), limit, usage, reclaimable }).collect()
}

fn has_parents(path: &Path) -> bool {
    path.components().any(|part| part == std::path::Component::ParentDir)
}

/// The number in a file; `max` is not a number.
fn number(file: &Path) -> Option<usize> {
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

    fn available_in(files: &[(&str, &str)]) -> Option<usize> {
        read_available(root(files).path())
    }

    const SHORT: (&str, &str) = ("proc/meminfo", "MemTotal:       16 kB\nMemAvailable:        3 kB\n");

    #[test]
    fn pages_of_files_are_available_to_a_group() {
        assert_eq!(available_in(&[SHORT]), Some(3 << 10));
        assert_eq!(available_in(&[MACHINE]), None, "an old kernel does not say");
        let cgroup = ("proc/self/cgroup", "0::/a/b\n");
        let max = ("sys/fs/cgroup/a/b/memory.max", "2000\n");
        let current = ("sys/fs/cgroup/a/b/memory.current", "1900\n");
        let stat = ("sys/fs/cgroup/a/b/memory.stat", "anon 1200\ninactive_file 500\nactive_file 100\n");
        assert_eq!(available_in(&[SHORT, cgroup, max]), Some(3 << 10), "what is used is not known");
        assert_eq!(available_in(&[SHORT, cgroup, max, current]), Some(100));
        assert_eq!(available_in(&[SHORT, cgroup, max, current, stat]), Some(700));
        let above = ("sys/fs/cgroup/a/memory.max", "1000\n");
        let used = ("sys/fs/cgroup/a/memory.current", "5000\n");
        assert_eq!(available_in(&[SHORT, cgroup, max, current, stat, above, used]), Some(0));
        let unlimited = ("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(available_in(&[SHORT, cgroup, unlimited, current]), Some(3 << 10));
    }

    #[test]
    fn groups_of_version_1_have_available_memory_too() {
        let files = [
            SHORT,
            ("proc/self/cgroup", "4:memory:/docker/abc\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1900\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "inactive_file 1\ntotal_inactive_file 500\ntotal_active_file 0\n",
            ),
        ];
        assert_eq!(available_in(&files), Some(600));
    }
}
