//! How much the memory cache may keep when the machine or the control group runs short of memory.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::sys::memory::memory;
use crate::sys::runtime;

/// Memory is read at most once in this time, and only when something was loaded.
const EVERY: Duration = Duration::from_secs(1);
/// Memory is short if less than this part of it is available: then half of the parts go.
const SHORT: usize = 32;
/// If less than this part of it is available, all of them go.
const SCARCE: usize = 128;
/// The first step from nothing back to the limit is this part of it; the next ones double it.
const STEPS: usize = 16;

/// The bytes of memory that are available; `None` where nothing says so.
pub(super) type Available = Box<dyn Fn() -> Option<usize> + Send + Sync>;

/// The limit of a memory cache, as memory allows.
pub(super) struct Pressure {
    limit: usize,
    allowed: AtomicUsize,
    shrinks: AtomicU64,
    start: Instant,
    /// When memory is read next, in milliseconds after `start`.
    next: AtomicU64,
    available: Available,
    now: fn() -> Instant,
}

impl Pressure {
    /// For a cache of at most `limit` bytes.
    pub(super) fn new(limit: usize, available: Available) -> Self {
        Self::with_clock(limit, available, runtime::now)
    }

    pub(super) fn with_clock(limit: usize, available: Available, now: fn() -> Instant) -> Self {
        let (allowed, shrinks, next) = (AtomicUsize::new(limit), AtomicU64::new(0), AtomicU64::new(0));
        Self { limit, allowed, shrinks, start: now(), next, available, now }
    }

    /// The most bytes to keep now; reads memory if it is time to. `kept` are the bytes that the cache has.
    pub(super) fn limit(&self, kept: impl FnOnce() -> usize) -> usize {
        let passed = (self.now)().duration_since(self.start).as_millis() as u64;
        let next = self.next.load(Ordering::Relaxed);
        let later = passed + EVERY.as_millis() as u64;
        // Another thread may be reading it: this one goes on with what is known.
        if passed >= next
            && self.next.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.read(kept());
        }
        self.allowed()
    }

    fn read(&self, kept: usize) {
        let (allowed, memory) = (self.allowed(), memory());
        let now = match (self.available)() {
            Some(available) if available < memory / SCARCE => 0,
            Some(available) if available < memory / SHORT => kept.min(allowed) / 2,
            // Slowly: what it takes may make memory short again.
            _ => allowed.saturating_mul(2).max(self.limit / STEPS).min(self.limit),
        };
        if now < allowed {
            self.shrinks.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(from = allowed, to = now, "memory is short: the memory cache is made smaller");
        }
        self.allowed.store(now, Ordering::Relaxed);
    }

    /// The most bytes to keep, as was found last.
    pub(super) fn allowed(&self) -> usize {
        self.allowed.load(Ordering::Relaxed)
    }

    pub(super) fn shrinks(&self) -> u64 {
        self.shrinks.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pressure")
            .field("limit", &self.limit)
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}
