//! What happens to the small disk, and is undone.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::PATIENCE;
use crate::machine::free_bytes;

/// What is wrong with the disk for a while.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outage {
    /// Something else takes all of it.
    Full,
    /// It is mounted again to be read only.
    ReadOnly,
    /// Where it was mounted is an empty directory that cannot be written.
    Gone,
}

impl Outage {
    pub(super) const ALL: [Self; 3] = [Self::Full, Self::ReadOnly, Self::Gone];

    pub(super) fn begin(self, dir: &Path) {
        match self {
            Self::Full => fill(dir),
            Self::ReadOnly => mount(&["-o", "remount,ro"], dir),
            Self::Gone => mount(&["-t", "tmpfs", "-o", "ro,size=4k", "tcx-nothing"], dir),
        }
    }

    /// Sees to it that it goes on: what the processes remove makes room on a full disk.
    pub(super) fn go_on(self, dir: &Path) {
        if matches!(self, Self::Full) {
            fill(dir);
        }
    }

    pub(super) fn end(self, dir: &Path) {
        match self {
            Self::Full => make_room(dir),
            Self::ReadOnly => mount(&["-o", "remount,rw"], dir),
            Self::Gone => run(Command::new("umount").arg(dir)),
        }
    }

    /// Whether an error names the disk as the cause.
    pub(super) fn is_told_by(self, error: &str) -> bool {
        match self {
            Self::Full => error.contains("No space left"),
            Self::ReadOnly => error.contains("Read-only file system"),
            Self::Gone => ["Read-only file system", "empty or gone", "No such file"]
                .iter()
                .any(|word| error.contains(word)),
        }
    }
}

/// Something else that takes all the room there is.
pub(super) fn fill(dir: &Path) {
    let mut ballast = File::options().create(true).append(true).open(dir.join("ballast")).unwrap();
    let zeros = vec![0; 1 << 20];
    // The last write is cut to the remaining room.
    while free_bytes(dir) > 0 && ballast.write_all(&zeros).is_ok() {}
}

pub(super) fn make_room(dir: &Path) {
    fs::remove_file(dir.join("ballast")).unwrap();
}

fn mount(options: &[&str], dir: &Path) {
    run(Command::new("mount").args(options).arg(dir));
}

/// Until it works: a disk that is being written to is busy.
fn run(command: &mut Command) {
    let start = Instant::now();
    loop {
        let output = command.output().unwrap();
        if output.status.success() {
            return;
        }
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(start.elapsed() < PATIENCE, "{command:?}: {why}");
        std::thread::sleep(Duration::from_millis(3));
    }
}
