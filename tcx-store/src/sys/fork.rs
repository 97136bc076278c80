//! Notices that this process is a fork of another: the only place where the store asks to be called by the system.
//!
//! A child of `fork` has the memory of its parent and one of its threads. A lock that another thread held at that moment is
//! locked forever in the child, what that thread was changing is half changed, and background threads do not exist. The child
//! therefore never waits for an inherited lock and never drops what an inherited lock guards.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use super::runtime;

/// How many forks lie between this process and the one that loaded this code.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// Whether the system increments [`FORKS`] in a child.
static COUNTED: AtomicBool = AtomicBool::new(false);

/// The process that made a value. A child of `fork` has the values of its parent, and is another process.
///
/// ```
/// let process = tcx_store::Process::current();
/// assert!(process.is_current()); // false in a child that forks from here
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// The process that calls this.
    pub fn current() -> Self {
        if !COUNTED.load(Ordering::Acquire) && count_forks() {
            COUNTED.store(true, Ordering::Release);
        }
        Self(forks())
    }

    /// Whether this is the process that calls it.
    #[inline]
    pub fn is_current(self) -> bool {
        // The child has one thread when the number changes: every later thread sees it.
        self.0 == forks()
    }
}

#[inline]
fn forks() -> u64 {
    // A simulated process forks without the system.
    FORKS.load(Ordering::Relaxed) + runtime::forks()
}

impl Default for Process {
    fn default() -> Self {
        Self::current()
    }
}

/// Asks the system to count forks. Two threads may ask at once: forks count twice then, and only the difference matters. A lock
/// here could be held at a fork.
#[cfg(unix)]
fn count_forks() -> bool {
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    #[expect(unsafe_code, reason = "the system calls back")]
    // SAFETY: `forked` has the signature that the function asks for and lives as long as this code, whose removal from a process
    // (`dlclose`) removes the handler too. In a child of a process with several threads, only async-signal-safe functions may be
    // called: the handler adds to an atomic number, allocates nothing, takes no lock and cannot panic.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    if failed != 0 {
        tracing::warn!("cannot detect forks of this process: {}", std::io::Error::from_raw_os_error(failed));
    }
    failed == 0
}

/// There are no forks.
#[cfg(not(unix))]
fn count_forks() -> bool {
    true
}

/// A value of which each process has its own: a child begins with a new one.
pub(crate) struct PerProcess<T>(ArcSwapOption<Made<T>>);

/// A value and the process that made it.
pub(crate) struct Made<T> {
    by: Process,
    value: T,
}

impl<T> Deref for Made<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    /// The value of this process; without one, that of `make`.
    ///
    /// # Errors
    ///
    /// Returns the errors of `make`.
    pub(crate) fn get_or_try_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<Made<T>>, E> {
        let found = self.0.load();
        if let Some(own) = found.as_ref().filter(|own| own.by.is_current()) {
            return Ok(own.clone());
        }
        let new = Arc::new(Made { by: Process::current(), value: make()? });
        let before = self.0.compare_and_swap(&found, Some(new.clone()));
        if let Some(faster) = before.as_ref().filter(|own| own.by.is_current()) {
            return Ok(faster.clone());
        }
        // Another thread of the parent may have been changing it at the fork: it is never dropped.
        std::mem::forget(arc_swap::Guard::into_inner(before));
        Ok(new)
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        // As above.
        if let Some(made) = self.0.load_full().filter(|made| !made.by.is_current()) {
            std::mem::forget(made);
        }
    }
}

impl<T: Default> PerProcess<T> {
    /// The value of this process.
    pub(crate) fn get(&self) -> Arc<Made<T>> {
        match self.get_or_try_make(|| Ok::<_, std::convert::Infallible>(T::default())) {
            Ok(own) => own,
            Err(never) => match never {},
        }
    }
}

impl<T> std::fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerProcess").field("is_made", &self.0.load().is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_process_has_a_value_of_its_own_and_one_only() {
        static VALUE: PerProcess<Mutex<u32>> = PerProcess::new();
        *VALUE.get().lock().unwrap() += 1;
        assert_eq!(*VALUE.get().lock().unwrap(), 1);
        let of_parent = Arc::new(Made { by: Process(u64::MAX), value: Mutex::new(9) });
        let kept = Arc::downgrade(&of_parent);
        VALUE.0.store(Some(of_parent));
        assert_eq!(*VALUE.get().lock().unwrap(), 0);
        assert!(kept.upgrade().is_some(), "the parent's was dropped");
        let of_parent = Arc::new(Made { by: Process(u64::MAX), value: Mutex::new(9) });
        let kept = Arc::downgrade(&of_parent);
        drop(PerProcess(ArcSwapOption::new(Some(of_parent))));
        assert!(kept.upgrade().is_some(), "the parent's was dropped with what held it");
        let failed: Result<_, &str> = PerProcess::<u32>::new().get_or_try_make(|| Err("no"));
        assert_eq!(failed.err(), Some("no"));
    }
}
