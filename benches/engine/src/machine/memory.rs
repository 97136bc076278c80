//! The memory of a process, as the kernel counts it.

use std::path::Path;

use crate::Result;

/// Memory of a process in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Resident pages, each divided by the processes that share it.
    pub(crate) proportional: u64,
    /// Anonymous pages: heap and stacks.
    pub(crate) anonymous: u64,
}

/// The memory of the process `pid` (a number, or `self`).
pub(crate) fn of(pid: &str) -> Result<Memory> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let mut memory = Memory::default();
    for line in rollup.lines() {
        match bytes(line) {
            Some(("Pss", bytes)) => memory.proportional = bytes,
            Some(("Anonymous", bytes)) => memory.anonymous = bytes,
            _ => {}
        }
    }
    Ok(memory)
}

/// Bytes of the files below `dir` in the page tables of this process, and the part of them in huge pages.
pub(crate) fn mapped_below(dir: &Path) -> Result<(u64, u64)> {
    let dir = dir.canonicalize()?;
    let (mut mapped, mut huge, mut inside) = (0, 0, false);
    for line in std::fs::read_to_string("/proc/self/smaps")?.lines() {
        match bytes(line) {
            Some(("Rss", bytes)) if inside => mapped += bytes,
            Some(("FilePmdMapped", bytes)) if inside => huge += bytes,
            None if line.split(' ').next().is_some_and(|range| range.contains('-')) => {
                inside = line.find('/').is_some_and(|path| Path::new(&line[path..]).starts_with(&dir));
            }
            _ => {}
        }
    }
    Ok((mapped, huge))
}

/// `Name:   12 kB`, in bytes.
fn bytes(line: &str) -> Option<(&str, u64)> {
    let (name, value) = line.split_once(':')?;
    let kilobytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some((name, kilobytes << 10))
}
