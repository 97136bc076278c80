//! Where the files of a module are until they are verified: a folder in the cache directory, which one process uses at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::local;
use crate::near::lock::is_same_file;

/// The folder of the stages. No module has such a name.
const STAGES: &str = ".tcx-pull";

/// A file in the stage that is locked while it is used.
const LOCK: &str = "lock";

/// Between two looks at a lock that another process holds.
const PAUSE: Duration = Duration::from_millis(50);

/// A process that waits says so after this time.
const SILENT: Duration = Duration::from_secs(1);

/// So often a stage is made that is removed at once.
const MADE_AT_MOST: usize = 100;

/// What is done while another process uses the stage.
pub(super) enum Busy<'a> {
    /// The caller gets an error of the kind `WouldBlock`.
    Refuse,
    /// The process is waited for, however long it takes. The function gets a message if that is more than a moment.
    Wait(&'a dyn Fn(&str)),
}

/// The stage of a module, until this is dropped. Two processes may copy from different stores.
pub(super) struct Stage {
    dir: PathBuf,
    lock: File,
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that was forked from this one has it open as well.
        let _ = self.lock.unlock();
    }
}

impl Stage {
    /// # Errors
    ///
    /// Returns an error if another process uses the stage and is not waited for, or if the directory cannot be written.
    pub(super) fn of(cache: &Path, module: &str, busy: &Busy<'_>) -> io::Result<Self> {
        let dir = cache.join(STAGES).join(module);
        for folder in [&cache.join(STAGES), &dir] {
            local::refuse_link(folder)?;
        }
        let path = dir.join(LOCK);
        let (start, mut is_silent) = (Instant::now(), true);
        loop {
            let lock = open(&dir, &path)?;
            match lock.try_lock() {
                // The file that was locked is no longer the one that others find.
                Ok(()) if !is_same_file(&lock, &path) => {}
                Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
                    return Err(local::failed("lock", &path, &error));
                }
                Err(TryLockError::WouldBlock) => {
                    let what = format!("another process copies `{module}` to {} now", cache.display());
                    match busy {
                        Busy::Refuse => {
                            let what = format!("{what}: try again when it has ended");
                            return Err(io::Error::new(ErrorKind::WouldBlock, what));
                        }
                        Busy::Wait(note) if is_silent && start.elapsed() >= SILENT => {
                            is_silent = false;
                            note(&format!("{what}: waiting until it has ended"));
                        }
                        Busy::Wait(_) => sleep(PAUSE),
                    }
                }
                // A file system without locks: the user sees to it that no other process copies there.
                _ => return Ok(Self { dir, lock }),
            }
        }
    }

    /// Whether there is a stage, which a process uses or has left.
    pub(super) fn exists(cache: &Path, module: &str) -> bool {
        cache.join(STAGES).join(module).symlink_metadata().is_ok()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes the folder of the module, if there is one. It comes here first, so that no process finds a part of it, also after an
    /// interruption.
    pub(super) fn take_away(&self, folder: &Path) -> io::Result<()> {
        local::refuse_link(folder)?;
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(io::Error::other)?;
        let aside = self.dir.join(format!("removed-{:032x}", u128::from_le_bytes(bits)));
        match fs::rename(folder, &aside) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(local::failed("remove", folder, &error)),
            Ok(()) => fs::remove_dir_all(&aside).map_err(|error| local::failed("remove", &aside, &error)),
        }
    }

    /// Best effort: what stays is used by the next copy. The lock goes last: who waits for it begins when it is gone.
    pub(super) fn remove(self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = fs::remove_dir_all(path);
            } else if entry.file_name() != LOCK {
                let _ = fs::remove_file(path);
            }
        }
        let _ = fs::remove_file(self.dir.join(LOCK));
        let _ = fs::remove_dir(&self.dir);
        if let Some(above) = self.dir.parent() {
            let _ = fs::remove_dir(above);
        }
    }
}

/// The file to lock. A process that has ended just now may remove the stage while it is made.
fn open(stage: &Path, path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let attempt = || {
        local::make(stage)?;
        open().map_err(|error| local::failed("lock", path, &error))
    };
    let mut opened = attempt();
    for _ in 0..MADE_AT_MOST {
        if !opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            break;
        }
        opened = attempt();
    }
    opened
}
