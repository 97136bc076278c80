//! A lock that refuses to wait without end: in the thread that already holds it, and in a process forked from its own.
//!
//! In a child of `fork`, a lock that another thread of the parent held is locked forever, and the value may be half changed. So
//! the child neither locks nor drops it.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use tcx_store::Process;

/// A value that one thread at a time works with, in the process that made it.
#[derive(Debug, Default)]
pub(crate) struct Alone<T> {
    /// The [mark](this_thread) of the thread that holds the lock, 0 if none does.
    holder: AtomicUsize,
    process: Process,
    /// Never shared: a reference that is forgotten keeps the value from being dropped.
    value: Arc<Mutex<T>>,
}

/// Why a lock is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// This thread holds it.
    Held,
    /// This process was forked from the one that has the lock.
    Forked,
}

/// The value, as long as the lock is held.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    /// Dropped before the guard: the mark goes before the lock is released.
    mark: Mark<'a>,
    value: MutexGuard<'a, T>,
}

/// The mark of the thread that holds a lock. A guard of a mutex never leaves its thread, so it is this thread's mark.
#[derive(Debug)]
struct Mark<'a>(&'a AtomicUsize);

impl<'a> Mark<'a> {
    fn new(holder: &'a AtomicUsize) -> Self {
        holder.store(this_thread(), Ordering::Relaxed);
        Self(holder)
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl<T> Alone<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { holder: AtomicUsize::new(0), process: Process::current(), value: Arc::new(Mutex::new(value)) }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock would never be released: see [`Refused`].
    pub(crate) fn lock(&self) -> Result<Held<'_, T>, Refused> {
        self.check_free()?;
        // A panic has left nothing half-done behind: rows are stored whole or not at all.
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Held { mark: Mark::new(&self.holder), value })
    }

    /// Takes the lock if no other thread holds it.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    pub(crate) fn try_lock(&self) -> Result<Option<Held<'_, T>>, Refused> {
        self.check_free()?;
        let value = match self.value.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Ok(value) => value,
        };
        Ok(Some(Held { mark: Mark::new(&self.holder), value }))
    }

    fn check_free(&self) -> Result<(), Refused> {
        // First: a thread that forked while it held the lock holds it in the child, too.
        if !self.process.is_current() {
            return Err(Refused::Forked);
        }
        // No other thread ever writes the mark of this one, so what this thread reads of it is what it wrote itself: the order
        // in which other marks become visible does not matter.
        if self.holder.load(Ordering::Relaxed) == this_thread() {
            return Err(Refused::Held);
        }
        Ok(())
    }
}

/// In a forked process nothing is freed: another thread of the parent may have been changing it at the fork.
impl<T> Drop for Alone<T> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            mem::forget(self.value.clone());
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Held<'_, T> {
    /// Releases the lock until `changed` is notified, or wakes up for nothing, and takes it again.
    pub(crate) fn wait(self, changed: &Condvar) -> Self {
        let Self { mark, value } = self;
        let holder = mark.0;
        drop(mark);
        let value = changed.wait(value).unwrap_or_else(PoisonError::into_inner);
        Self { mark: Mark::new(holder), value }
    }
}

/// A number that no other living thread has, and never 0: where a byte of this thread's own is.
pub(crate) fn this_thread() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| ptr::from_ref(mark).addr())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn the_thread_that_holds_the_lock_is_refused_and_others_wait() {
        let alone = Alone::new(1);
        let held = alone.lock().unwrap();
        assert_eq!(alone.lock().err(), Some(Refused::Held));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut held = alone.lock().unwrap();
                *held += 1;
                *held
            });
            drop(held);
            assert_eq!(other.join().unwrap(), 2);
        });
        assert_eq!(*alone.lock().unwrap(), 2);
    }

    #[test]
    fn a_panic_releases_the_lock() {
        let alone = Alone::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = alone.lock().unwrap();
            panic!("as asked");
        }));
        assert!(panicked.is_err());
        assert_eq!(*alone.lock().unwrap(), 1);
    }
}
