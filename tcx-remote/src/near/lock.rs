//! Locks between the processes of a machine. The system releases those of a process that has ended, however it ended.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use tcx_store::unstable::runtime;

/// So long another process is waited for. One that is stopped, and not dead, keeps its locks.
const WAIT_AT_MOST: Duration = Duration::from_mins(2);

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

/// A lock that is held until this is dropped. `None` if another process holds it for too long: what it protects may then be done twice.
///
/// # Errors
///
/// Returns an error if there is no such directory, or if it cannot be written.
pub(crate) fn lock(path: &Path) -> io::Result<Option<Lock>> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let start = runtime::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(Lock(file))),
            Err(TryLockError::WouldBlock) if runtime::now().duration_since(start) < WAIT_AT_MOST => pause(),
            Err(TryLockError::WouldBlock) => return Ok(None),
            // A file system without locks: each process does its work.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
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
