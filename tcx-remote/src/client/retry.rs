//! The time of a call: how long each try of a request may take, and the pauses of random length between tries, which grow until the
//! deadline of the call.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use tcx_store::unstable::runtime;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::error::Failure;
use super::requests::ANSWER;
use crate::options::Pace;

/// The pause after the first failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The longest time without a byte in an answer.
const SILENCE: Duration = Duration::from_secs(10);

/// The time of a call that is made beside another one, and whose end changes nothing for the caller.
const SHORT: Duration = Duration::from_secs(10);

/// The time that a call has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    /// The whole time of a call, and that of one that transfers nothing.
    call: Duration,
    bare: Duration,
    pace: Pace,
    /// The longest time of a single try, and of silence in it.
    attempt: Duration,
    silence: Duration,
    failures: u32,
}

impl Deadline {
    /// Of a call that transfers `bytes` bytes. A connection that hangs is given up early enough for another try.
    pub(crate) fn new(bare: Duration, bytes: u64, pace: Pace) -> Self {
        let attempt = bare / 3 + pace.time(bytes.min(pace.largest));
        let (silence, call) = ((bare / 6).min(SILENCE), bare + pace.time(bytes));
        Self { at: Instant::now() + call, call, bare, pace, attempt, silence, failures: 0 }
    }

    /// That of a call which begins now, and transfers this number of bytes.
    pub(crate) fn of(self, bytes: u64) -> Self {
        Self::new(self.bare, bytes, self.pace)
    }

    /// As [`of`](Self::of), of a call that nothing waits for.
    pub(crate) fn short(self) -> Self {
        Self::new(self.bare.min(SHORT), 0, self.pace)
    }

    /// The same, of a call whose tries transfer this number of bytes each, however large it is.
    pub(crate) fn in_one(self, bytes: u64) -> Self {
        Self { attempt: self.bare / 3 + self.pace.time(bytes), ..self }
    }

    /// The same, whose tries may take `times` times as long. The call takes as much longer.
    pub(crate) fn slower(self, times: u32) -> Self {
        let (attempt, longer) = (self.attempt * times, self.attempt * (times - 1));
        Self { attempt, at: self.at + longer, ..self }
    }

    /// The part of the time of a try that is over.
    pub(crate) fn share(&self, of: Duration) -> f64 {
        of.as_secs_f64() / self.attempt.as_secs_f64()
    }

    /// The same, of a call that begins now.
    pub(crate) fn again(self) -> Self {
        Self { at: Instant::now() + self.call, failures: 0, ..self }
    }

    /// The store was not asked for so long: that takes nothing of its time.
    pub(crate) fn extend(&mut self, by: Duration) {
        self.at += by;
    }

    /// As this one was extended, which was the same before.
    pub(crate) fn extend_as(&mut self, other: Self) {
        self.at = self.at.max(other.at);
    }

    /// The next part of an answer. A connection over which nothing comes is given up long before the time of the try is over.
    pub(crate) async fn next<T>(&self, part: impl Future<Output = T>) -> object_store::Result<T> {
        timeout(self.silence, part).await.map_err(|_| object_store::Error::Generic {
            store: "object store",
            source: "the store stopped in the middle of an answer".into(),
        })
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
}

/// From 0 to 1.
fn random() -> f64 {
    let [first, second, third, fourth, ..] = runtime::random();
    f64::from(u32::from_le_bytes([first, second, third, fourth])) / f64::from(u32::MAX)
}
