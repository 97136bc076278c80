//! Whether a store can be reached: after a failure, the next requests are not made before a pause is over, so that lookups go on
//! without them.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tcx_store::unstable::runtime;

use crate::client::error::is_slow;

/// The pause after the first failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What the last requests have shown.
#[derive(Debug)]
pub(crate) struct Reach {
    start: Instant,
    /// Milliseconds after the start.
    next: AtomicU64,
    /// Since the last success.
    failures: AtomicU32,
}

impl Reach {
    pub(crate) fn new() -> Self {
        Self { start: runtime::now(), next: AtomicU64::new(0), failures: AtomicU32::new(0) }
    }

    fn elapsed(&self) -> Duration {
        runtime::now().duration_since(self.start)
    }

    /// Whether it is time for a request.
    pub(crate) fn is_time(&self) -> bool {
        self.elapsed().as_millis() as u64 >= self.next.load(Ordering::Relaxed)
    }

    /// Whether the last request has failed.
    pub(crate) fn is_away(&self) -> bool {
        self.failures.load(Ordering::Relaxed) > 0
    }

    /// The next request is made, whenever it comes.
    pub(crate) fn try_now(&self) {
        self.next.store(0, Ordering::Relaxed);
    }

    /// A request has come to this end.
    pub(crate) fn note<T>(&self, result: &io::Result<T>) {
        if !result.as_ref().is_err_and(|error| is_away(error) && !is_slow(error)) {
            self.failures.store(0, Ordering::Relaxed);
            self.next.store(0, Ordering::Relaxed);
            return;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).min(16);
        let pause = (PAUSES.0 * 2_u32.saturating_pow(failures)).min(PAUSES.1);
        self.next.store((self.elapsed() + pause).as_millis() as u64, Ordering::Relaxed);
    }
}

/// Whether an error says nothing of the files: the store does not answer, or not to this process. It rejects requests whose credentials
/// have expired, which has the status of other requests that it rejects.
pub(crate) fn is_away(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::TimedOut
            | ErrorKind::NotConnected
            | ErrorKind::ResourceBusy
            | ErrorKind::UnexpectedEof
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidInput
            | ErrorKind::Other
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_no_request_is_made_for_a_while_unless_a_caller_waits_for_it() {
        let reach = Reach::new();
        assert!(reach.is_time() && !reach.is_away());
        reach.note::<()>(&Err(ErrorKind::NotFound.into()));
        assert!(reach.is_time() && !reach.is_away(), "the store has answered");
        reach.note::<()>(&Err(ErrorKind::TimedOut.into()));
        assert!(!reach.is_time() && reach.is_away());
        reach.try_now();
        assert!(reach.is_time() && reach.is_away());
        reach.note(&Ok(()));
        assert!(reach.is_time() && !reach.is_away());
    }
}
