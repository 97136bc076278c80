//! Locks between the processes of a machine. The system releases those of a process that has ended, however it ended.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use tcx_store::unstable::runtime;

/// So long another process is waited for. One that is stopped, and not dead, keeps its locks: what cannot be done twice is left for later.
pub(crate) const WAIT_AT_MOST: Duration = Duration::from_mins(2);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that was forked from this one has it open as well.
        let _ = self.0.unlock();
    }
}

/// What became of an attempt to get a lock.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// It is held until this is dropped. `None` on a file system without locks: what it protects may then be done twice.
    Own(Option<Lock>),
    /// Another process has it, or another thread. To receive a file a second time does no harm. To send a segment without the lock does:
    /// the holder may be about to remove what is sent.
    Busy,
}

/// A lock that is held until this is dropped; it is busy if another process holds it for too long.
///
/// # Errors
///
/// Returns an error if there is no such directory, or if it cannot be written.
pub(crate) fn lock(path: &Path) -> io::Result<Attempt> {
    lock_within(path, WAIT_AT_MOST)
}

/// As [`lock`], which is waited for at most so long.
///
/// # Errors
///
/// As [`lock`].
pub(crate) fn lock_within(path: &Path, longest: Duration) -> io::Result<Attempt> {
    let start = runtime::now();
    loop {
        match try_lock(path)? {
            Attempt::Busy if runtime::now().duration_since(start) < longest => pause(),
            attempt => return Ok(attempt),
        }
    }
}

/// As [`lock`], without waiting.
///
/// # Errors
///
/// As [`lock`].
pub(crate) fn try_lock(path: &Path) -> io::Result<Attempt> {
    loop {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        return match file.try_lock() {
            // Another process has removed the file in between: the next one to come would lock another file.
            Ok(()) if !is_same_file(&file, path) => continue,
            Ok(()) => Ok(Attempt::Own(Some(Lock(file)))),
            Err(TryLockError::WouldBlock) => Ok(Attempt::Busy),
            // A file system without locks: each process does its work.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                Ok(Attempt::Own(None))
            }
            Err(TryLockError::Error(error)) => Err(error),
        };
    }
}

/// Removes the file of a lock unless it is held. It is locked while it is removed: two processes would hold one lock if one locked a file that the
/// other removes. Best effort.
pub(crate) fn remove_unless_held(path: &Path) {
    if let Ok(Attempt::Own(Some(_held))) = try_lock(path) {
        let _ = fs::remove_file(path);
    }
}

fn pause() {
    // In a simulation, the holder goes on in the meantime.
    if !runtime::wait_once() {
        runtime::sleep(PAUSE);
    }
}

/// Whether a process holds this lock now.
pub(crate) fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    match file.try_lock() {
        Ok(()) => {
            drop(Lock(file));
            false
        }
        Err(error) => matches!(error, TryLockError::WouldBlock),
    }
}

/// Whether an open file is the one that has this name now.
pub(crate) fn is_same_file(file: &File, path: &Path) -> bool {
    let (own, named) = (file.metadata(), fs::metadata(path));
    #[cfg(unix)]
    let id = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    #[cfg(not(unix))]
    let id = |_: &Metadata| ();
    matches!((own, named), (Ok(own), Ok(named)) if id(&own) == id(&named))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_lock_has_one_holder_though_its_file_is_removed_again_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let (holders, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let hold = || {
            for _ in 0..5000 {
                let Attempt::Own(Some(held)) = try_lock(&path).unwrap() else { continue };
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "another one holds it");
                std::thread::yield_now();
                holders.fetch_sub(1, Ordering::SeqCst);
                drop(held);
            }
        };
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    remove_unless_held(&path);
                }
            });
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(hold)).collect();
            let ended: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            is_over.store(true, Ordering::SeqCst);
            remover.join().unwrap();
            assert!(ended.iter().all(Result::is_ok), "two have held it");
        });
    }
}
