//! The only seam between the engine and the simulator of its tests: time, locks, threads, random bits and forks.
//!
//! Whatever makes two runs of the engine differ goes through here or through [`Storage`](crate::storage::Storage), so that the
//! simulator decides it. In a program nothing is simulated, and every function is what the operating system does.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

#[cfg(any(test, feature = "testing"))]
use crate::testing::runtime as simulated;

/// In a program: nothing is simulated.
#[cfg(not(any(test, feature = "testing")))]
mod simulated {
    use std::time::{Duration, Instant, SystemTime};

    #[inline]
    pub(crate) fn is_simulated() -> bool {
        false
    }

    #[inline]
    pub(crate) fn now() -> Option<Instant> {
        None
    }

    #[inline]
    pub(crate) fn wall() -> Option<SystemTime> {
        None
    }

    #[inline]
    pub(crate) fn random() -> Option<[u8; 16]> {
        None
    }

    #[inline]
    pub(crate) fn forks() -> u64 {
        0
    }

    #[inline]
    pub(crate) fn wait_while(_: impl Fn() -> bool) {}

    #[inline]
    pub(crate) fn wait_once() -> bool {
        false
    }

    #[inline]
    pub(crate) fn sleep(_: Duration) -> bool {
        false
    }

    #[inline]
    #[expect(clippy::unnecessary_wraps, reason = "a simulated process keeps the task")]
    pub(crate) fn spawn<T: FnOnce() + Send + 'static>(task: T) -> Option<T> {
        Some(task)
    }

    pub(crate) use spawn as spawn_lasting;
}

pub(crate) use simulated::forks;

/// Whether this is a thread of a simulation, where one thread runs at a time: what is worth it in large numbers only is worth it there in
/// small ones, and what several threads would do together one does.
pub fn is_simulated() -> bool {
    simulated::is_simulated()
}

/// Lets other threads of a simulation go on once; `false` if this is no thread of one.
pub fn wait_once() -> bool {
    simulated::wait_once()
}

/// The monotonic time by which the engine decides something.
pub fn now() -> Instant {
    simulated::now().unwrap_or_else(Instant::now)
}

/// The time of day by which the engine decides something.
pub fn wall() -> SystemTime {
    simulated::wall().unwrap_or_else(SystemTime::now)
}

/// 128 bits of the operating system's generator.
///
/// # Panics
///
/// If the operating system has no random numbers to give; nothing that needs a unique name could go on.
pub fn random() -> [u8; 16] {
    simulated::random().unwrap_or_else(|| {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).expect("the operating system gives random numbers");
        bits
    })
}

/// Takes a lock that is held while files are read or written, whatever became of its last holder.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A simulated thread must not wait for one that is not allowed to go on.
    simulated::wait_while(|| matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread that works for the engine.
pub(crate) fn spawn(name: &str, task: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A simulated process has a thread for this, which goes on when it is allowed to.
    let Some(task) = simulated::spawn(task) else { return Ok(()) };
    thread::Builder::new().name(name.to_owned()).spawn(task).map(drop)
}

/// Starts a thread that goes on beside the others and may [sleep](sleep).
pub fn spawn_lasting(name: &str, task: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let Some(task) = simulated::spawn_lasting(task) else { return Ok(()) };
    thread::Builder::new().name(name.to_owned()).spawn(task).map(drop)
}

/// The calling thread does nothing for so long.
pub fn sleep(time: Duration) {
    if !simulated::sleep(time) {
        thread::sleep(time);
    }
}
