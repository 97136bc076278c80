//! The memory of a process, as the kernel counts it.

/// Memory of a process in KiB.
pub(super) struct Memory {
    /// Heap and stacks.
    pub(super) private: u64,
    /// Pages of mapped files, each divided by the number of processes that share it.
    pub(super) shared: u64,
}

/// The memory of a process; `None` if the system does not report it.
pub(super) fn of(process: u32) -> Option<Memory> {
    let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let of = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some(Memory { private: of("Anonymous")?, shared: of("Pss_File")? })
}
