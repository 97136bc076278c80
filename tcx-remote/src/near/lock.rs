//! Locks between the processes of a machine. The system releases those of a process that has ended, however it ended.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use tcx_store::unstable::runtime;

/// So long another process is waited for. One that is stopped, and not dead, keeps its locks.
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
    /// Another process has it, or another thread. Who goes on may do what it protects a second time, or undo what the other one does.
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
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Attempt::Own(Some(Lock(file)))),
        Err(TryLockError::WouldBlock) => Ok(Attempt::Busy),
        // A file system without locks: each process does its work.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            Ok(Attempt::Own(None))
        }
        Err(TryLockError::Error(error)) => Err(error),
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
