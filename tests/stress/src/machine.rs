//! The machine of the trials, and their files.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder under the checkout's `target`.
pub(crate) fn target() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/stress");
    std::fs::create_dir_all(&target).unwrap();
    target.canonicalize().unwrap()
}

/// The name of the processor.
pub(crate) fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The machine, without its name.
pub(crate) fn description() -> String {
    let (system, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    let memory = kibibytes.map_or(String::new(), |kibibytes| format!(", {} GiB of memory", kibibytes >> 20));
    format!("{} cores of {}{memory}, {system} on {architecture}", cores(), processor())
}

/// The commit of the checkout, if git knows it, with a mark if files differ from it.
pub(crate) fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let run =
            Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
        let said = String::from_utf8(run.stdout).ok()?;
        run.status.success().then(|| said.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let is_changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if is_changed { format!("{commit}, changed") } else { commit })
}

/// Bytes that can be written to the file system of this folder.
pub(crate) fn free_bytes(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Whether a program is installed and runs.
pub(crate) fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}
