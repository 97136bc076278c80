//! What threads of a test do: work that has to end, and requests that look random.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Fails the test where `work` takes longer; a thread that hangs ends with the process.
pub fn ends_within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    thread::spawn(move || done.send(work()));
    match result.recv_timeout(limit) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("threads wait for each other"),
        Err(RecvTimeoutError::Disconnected) => panic!("it panicked"),
    }
}

/// `work` in threads, with the number of each.
pub fn in_threads(threads: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for at in 0..threads {
            let work = &work;
            scope.spawn(move || work(at));
        }
    });
}

/// Numbers that look random, the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Up to `count` ids, of which some may be the same.
    pub fn ids(&mut self, count: u64, end: u64) -> Vec<i64> {
        (0..=self.below(count)).map(|_| self.below(end) as i64).collect()
    }
}
