//! Which file systems are far away.

use std::path::Path;

/// Whether the files of a directory, or of the one that it will be made in, come over a network or from another program:
/// a mapped page of a file that has vanished there kills the process that touches it.
#[cfg(target_os = "linux")]
pub(super) fn is_remote(dir: &Path) -> bool {
    let found = dir.ancestors().find_map(|dir| {
        let dir = if dir == Path::new("") { Path::new(".") } else { dir };
        rustix::fs::statfs(dir).ok()
    });
    found.is_some_and(|found| is_remote_type(found.f_type as u32))
}

/// Other systems have no such call.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_remote(_: &Path) -> bool {
    false
}

/// The numbers by which Linux knows file systems.
#[cfg(target_os = "linux")]
fn is_remote_type(number: u32) -> bool {
    const REMOTE: [(&str, u32); 16] = [
        ("nfs", 0x6969),
        ("cifs", 0xff53_4d42),
        ("smb", 0x517b),
        ("smb2", 0xfe53_4d42),
        // Also virtiofs, sshfs, s3fs, and every other program that plays a file system.
        ("fuse", 0x6573_5546),
        ("lustre", 0x0bd0_0bd0),
        ("9p", 0x0102_1997),
        ("ceph", 0x00c3_6400),
        ("afs", 0x5346_414f),
        ("kafs", 0x6b41_4653),
        ("coda", 0x7375_7245),
        ("gpfs", 0x4750_4653),
        ("beegfs", 0x1983_0326),
        ("orangefs", 0x2003_0528),
        ("gfs2", 0x0116_1970),
        ("ocfs2", 0x7461_636f),
    ];
    REMOTE.iter().any(|(_, remote)| *remote == number)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_remote_and_those_of_disks_and_memory_are_not() {
        let local = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1];
        assert!(local.iter().all(|number| !is_remote_type(*number)));
        assert!([0x6969, 0x6573_5546, 0x0bd0_0bd0, 0xff53_4d42].iter().all(|number| is_remote_type(*number)));
    }

    #[test]
    fn a_directory_that_is_not_there_yet_is_where_the_one_above_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        assert_eq!(is_remote(&deep), is_remote(dir.path()));
        assert!(!is_remote(Path::new("")) || is_remote(Path::new(".")));
    }
}
