//! Tries of a request: again after failures that may pass, with growing pauses of random length, until the deadline of the call.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use tcx_store::unstable::runtime;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::error::Failure;
use super::requests::ANSWER;

/// The pause after the first failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The slowest transfer that is waited for: bytes in a second.
const SLOWEST: u64 = 1 << 20;

/// The time that a call has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    /// The longest time of a single try.
    attempt: Duration,
    failures: u32,
}

impl Deadline {
    /// Of a call that transfers `bytes` bytes. A connection that hangs is given up early enough for another try.
    pub(crate) fn new(call: Duration, bytes: u64) -> Self {
        let transfer = Duration::from_secs_f64(bytes as f64 / SLOWEST as f64);
        Self { at: Instant::now() + call + transfer, attempt: call / 3 + transfer, failures: 0 }
    }

    /// Waits before the next try; `false` if there is no time left for one.
    pub(crate) async fn pause(&mut self) -> bool {
        self.failures += 1;
        let longest = (PAUSES.0 * 2_u32.saturating_pow(self.failures.min(16) - 1)).min(PAUSES.1);
        // Between a half and the whole: machines that were refused together do not come back together.
        let next = Instant::now() + longest.mul_f64(0.5 + 0.5 * random());
        if next >= self.at {
            return false;
        }
        sleep_until(next).await;
        true
    }

    /// One try.
    pub(crate) async fn attempt<T>(
        &self,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Failure> {
        let until = self.at.min(Instant::now() + self.attempt);
        let observed = ANSWER.scope(Cell::new(None), async {
            let answer = timeout_at(until, request).await;
            (answer, ANSWER.with(Cell::get))
        });
        match observed.await {
            (Ok(Ok(answer)), _) => Ok(answer),
            (Ok(Err(error)), last) => Err(Failure::of(&error, last)),
            (Err(_), _) => Err(Failure::timed_out()),
        }
    }

    /// Tries until something else than a failure that may pass comes of it.
    pub(crate) async fn attempts<T, F: Future<Output = object_store::Result<T>>>(
        mut self,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Failure> {
        loop {
            match self.attempt(request()).await {
                Err(failure) if failure.is_transient && self.pause().await => {}
                done => return done,
            }
        }
    }
}

/// From 0 to 1.
fn random() -> f64 {
    let [first, second, third, fourth, ..] = runtime::random();
    f64::from(u32::from_le_bytes([first, second, third, fourth])) / f64::from(u32::MAX)
}
