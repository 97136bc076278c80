//! Very many seeds: the tests that `cargo xtask simulate` runs, each in one process per processor.

use std::env;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[cfg(test)]
use super::tests::{RUNS, check};

/// How often the progress is printed.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// How often the processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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

/// Checks the seeds that the environment names: those from `TCX_MODEL_FIRST_SEED`, `TCX_MODEL_SEEDS` of them. A test calls it, which is
/// run again in a process for each processor.
///
/// Each of these has an address space of its own: where threads share one, each file that is mapped or let go of interrupts all their
/// processors, and seeds over an object store take 1.7 times as long.
///
/// # Panics
///
/// Panics at the first violation.
pub fn check_many(check: impl Fn(u64)) {
    let number = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let first = number("TCX_MODEL_FIRST_SEED").unwrap_or(1_000_000);
    let count = number("TCX_MODEL_SEEDS").unwrap_or(20_000);
    let workers = thread::available_parallelism().map_or(1, |processors| processors.get() as u64).min(count);
    let (worker, workers) = match (number(WORKER), number(WORKERS)) {
        (Some(worker), Some(workers)) => (worker, workers),
        _ if workers > 1 => return check_in_processes(workers),
        _ => (0, 1),
    };
    #[cfg(target_os = "linux")]
    stay_on_one_processor(worker as usize);
    let own = count.saturating_sub(worker).div_ceil(workers);
    let start = Instant::now();
    let report = |done: u64| {
        let seconds = start.elapsed().as_secs_f64();
        let (which, rate) = (worker + 1, done as f64 / seconds);
        eprintln!(
            "process {which} of {workers}: {done} of {own} seeds in {seconds:.0} s, {rate:.0} a second"
        );
    };
    let mut reported = start;
    for done in 0..own {
        check(first + worker + done * workers);
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            report(done + 1);
        }
    }
    report(own);
}

/// The number of such a process, from 0 on, and how many there are. Each takes the next seed that is not another one's.
const WORKER: &str = "TCX_MODEL_WORKER";
const WORKERS: &str = "TCX_MODEL_WORKERS";

/// Runs the test that calls this again, in so many processes, up to the first that fails.
fn check_in_processes(workers: u64) {
    let this = thread::current();
    // What runs tests names their threads after them.
    let test = this.name().expect("a test has its name");
    let mut running = Running(Vec::new());
    for worker in 0..workers {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([test, "--exact", "--include-ignored", "--nocapture"]);
        command.env(WORKER, worker.to_string()).env(WORKERS, workers.to_string());
        running.0.push(command.spawn().unwrap());
    }
    while !running.0.is_empty() {
        running.0.retain_mut(|process| match process.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success(), "a process that checks seeds has failed, see above");
                false
            }
            None => true,
        });
        thread::sleep(LOOK_EVERY);
    }
}

/// Processes that end with this.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
