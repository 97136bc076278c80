//! Taking a lock that is held while files are read or written.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for the lock, whatever became of its last holder.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A simulated thread must not wait for one that is not allowed to go on.
    #[cfg(test)]
    crate::testing::simulation::wait_while(|| {
        matches!(mutex.try_lock(), Err(std::sync::TryLockError::WouldBlock))
    });
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
