//! Very many seeds, on all processors: the tests that `cargo xtask simulate` runs.

use std::any::Any;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[cfg(test)]
use super::tests::{RUNS, check};

/// How often the progress is printed.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// A range of seeds, which threads take one by one.
struct Seeds {
    first: u64,
    count: u64,
    taken: AtomicU64,
    done: AtomicU64,
    failed: AtomicBool,
    start: Instant,
}

impl Seeds {
    /// The next seed; `None` at the end, and after a violation.
    fn next(&self) -> Option<u64> {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        (taken < self.count && !self.failed.load(Ordering::Relaxed)).then(|| self.first + taken)
    }

    /// Runs seeds until none is left, as the worker of this number.
    ///
    /// # Errors
    ///
    /// Returns the first violation on this thread, with its seed.
    fn work(&self, worker: usize, check: impl Fn(u64)) -> Result<(), Box<dyn Any + Send>> {
        #[cfg(target_os = "linux")]
        stay_on_one_processor(worker);
        while let Some(seed) = self.next() {
            catch_unwind(AssertUnwindSafe(|| check(seed)))
                .inspect_err(|_| self.failed.store(true, Ordering::Relaxed))?;
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn report(&self) {
        let (done, count, seconds) =
            (self.done.load(Ordering::Relaxed), self.count, self.start.elapsed().as_secs_f64());
        eprintln!("{done} of {count} seeds in {seconds:.0} s, {:.0} a second", done as f64 / seconds);
    }
}

/// Keeps this thread, and those that it starts, on one processor: of simulated threads only one runs at a time, and it wakes the next in
/// half of the time if that one is on its own processor.
#[cfg(target_os = "linux")]
fn stay_on_one_processor(worker: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    let mut own = CpuSet::new();
    own.set(allowed[worker % allowed.len()]);
    // Where that is refused, the runs take longer.
    let _ = sched_setaffinity(None, &own);
}

#[test]
#[ignore = "takes minutes: `cargo xtask simulate`, or TCX_MODEL_SEEDS seeds from TCX_MODEL_FIRST_SEED"]
fn nothing_is_wrong_or_lost_in_very_many_runs() {
    check_many(|seed| RUNS.into_iter().for_each(|way| check(seed, way)));
}

/// Checks the seeds that the environment names: those from `TCX_MODEL_FIRST_SEED`, `TCX_MODEL_SEEDS` of them.
pub fn check_many(check: impl Fn(u64) + Copy + Send) {
    let number = |name: &str, or: u64| env::var(name).map_or(or, |value| value.parse().unwrap());
    let (first, count) = (number("TCX_MODEL_FIRST_SEED", 1_000_000), number("TCX_MODEL_SEEDS", 20_000));
    let (taken, done, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let seeds = &Seeds { first, count, taken, done, failed, start: Instant::now() };
    let violation = thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> =
            (0..processors).map(|number| scope.spawn(move || seeds.work(number, check))).collect();
        let mut reported = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(Duration::from_millis(50));
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                seeds.report();
            }
        }
        workers.into_iter().find_map(|worker| worker.join().expect("violations are caught").err())
    });
    seeds.report();
    if let Some(violation) = violation {
        // Printed already, with the seed and the end of the trace.
        std::panic::resume_unwind(violation);
    }
}
