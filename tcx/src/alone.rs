//! A lock that refuses the thread that already holds it, which would otherwise wait for itself for ever.

use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that one thread at a time works with.
#[derive(Debug, Default)]
pub(crate) struct Alone<T> {
    /// The [mark](this_thread) of the thread that holds the lock, 0 if none does.
    holder: AtomicUsize,
    value: Mutex<T>,
}

/// The value, as long as the lock is held.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    holder: &'a AtomicUsize,
    value: MutexGuard<'a, T>,
}

impl<T> Alone<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { holder: AtomicUsize::new(0), value: Mutex::new(value) }
    }

    /// Waits for the lock; `None` if this thread holds it.
    pub(crate) fn lock(&self) -> Option<Held<'_, T>> {
        // No other thread ever writes the mark of this one, so what this thread reads of it is what it wrote itself: the order
        // in which other marks become visible does not matter.
        if self.holder.load(Ordering::Relaxed) == this_thread() {
            return None;
        }
        // A panic has left nothing half-done behind: rows are stored whole or not at all.
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        self.holder.store(this_thread(), Ordering::Relaxed);
        Some(Held { holder: &self.holder, value })
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

/// The mark goes before the lock is released, which happens when the fields are dropped. A guard of a mutex never leaves its
/// thread, so it is this thread's mark.
impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}

/// A number that no other living thread has, and never 0: where a byte of this thread's own is.
fn this_thread() -> usize {
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
        assert!(alone.lock().is_none());
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
