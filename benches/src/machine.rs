//! The machine that runs the bench.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Result;

/// A folder under the checkout's `target`.
pub(crate) fn target() -> std::io::Result<PathBuf> {
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    std::fs::create_dir_all(&target)?;
    Ok(target)
}

/// The name of the processor and the number of its threads.
pub(crate) fn describe() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{threads} threads of {name}, tcx {}", env!("CARGO_PKG_VERSION"))
}

/// Resident memory of this process, in MiB.
pub(crate) fn resident_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.)
}

/// Drops the cached pages of these files; `false` if the system cannot.
pub(crate) fn forget(dir: &Path) -> Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            if !forget(&path)? {
                return Ok(false);
            }
            continue;
        }
        let file = format!("if={}", path.display());
        // `dd` advises the system to drop the pages of the file.
        let dd = Command::new("dd").args([&file, "iflag=nocache", "count=0", "status=none"]).status();
        if !dd.is_ok_and(|status| status.success()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What this process has read from the disk.
pub(crate) fn bytes_read() -> Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    Ok(line.ok_or("/proc/self/io does not say what was read")?.trim().parse()?)
}

/// The CPU time of this thread.
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Touches memory and frees it. A hypervisor may take back free memory; the next use would then wait for each page, up to ten
/// times as long as the work to measure. So every measurement begins with memory in place.
pub(crate) fn touch_memory(bytes: usize) {
    let mut memory: Vec<u8> = Vec::with_capacity(bytes);
    for page in memory.spare_capacity_mut().chunks_mut(4096) {
        page[0].write(1);
    }
    std::hint::black_box(&mut memory);
}
