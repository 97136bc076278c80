//! Room on a disk.

use std::path::Path;

/// How many bytes are free for this user on the disk of a directory, and how many it has. `None` if the system does not say it.
#[cfg(unix)]
pub fn disk_space(dir: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(dir).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Some((bytes(found.f_bavail), bytes(found.f_blocks)))
}

/// How many bytes are free for this user on the disk of a directory, and how many it has. `None` if the system does not say it.
#[cfg(not(unix))]
pub fn disk_space(_: &Path) -> Option<(u64, u64)> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_no_more_free_bytes_than_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (free, all) = disk_space(dir.path()).unwrap();
        assert!(free <= all && all > 0);
        assert_eq!(disk_space(&dir.path().join("missing")), None);
    }
}
