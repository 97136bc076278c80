//! `cargo xtask stress`: runs the trials of the engine's tests, which take seconds, for up to an hour.
//!
//! | trial | |
//! |---|---|
//! | `kill` | processes that fill a cache, and processes that compute, invalidate, join and remove, killed at any moment |
//! | `full` | a disk that is full, read-only or missing, and later works again |
//! | `faults` | system calls that fail |
//! | `moved` | a folder that is moved away under running processes, and comes back |
//! | `growth` | 20,000 small flushes |
//! | `hostile` | directories that an attacker has prepared |
//! | `damage` | flipped bits and cut files of every kind |
//! | `crowd` | eight writers, four readers and two that join and remove, on one directory |
//! | `readers` | 800 processes that read one cache, to which another adds rows |
//! | `keys` | 100 million keys in the index |
//! | `fuzz` | coverage-guided fuzzing of everything that decodes bytes |
//!
//! A row that is lost after an acknowledged flush, a wrong one, a panic or a process that hangs is a failure. So is a trial
//! that is skipped, if `TCX_REQUIRE` contains its name or `all`.

#![expect(clippy::unwrap_used, reason = "a trial that cannot continue panics, which the report shows")]

mod arguments;
mod budget;
mod crowd;
mod damage;
mod faults;
mod full;
mod fuzz;
mod growth;
mod hostile;
mod keys;
mod kill;
mod machine;
mod moved;
mod outcome;
mod readers;
mod report;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use arguments::Arguments;
use budget::Budget;
use outcome::Outcome;
use report::Report;

/// One of the trials.
struct Trial {
    name: &'static str,
    /// Its share of the hour. Unused time is left to later trials.
    minutes: f64,
    run: fn(&Budget, &Arguments, &mut Outcome),
}

const TRIALS: [Trial; 11] = [
    // `fuzz` is late, because it uses all remaining time. `keys` is after it, because it needs much memory in this process: the
    // system counts the peak memory of a process for the programs that it starts, and the fuzzer has a limit.
    Trial { name: "kill", minutes: 8.0, run: kill::run },
    Trial { name: "full", minutes: 3.0, run: full::run },
    Trial { name: "faults", minutes: 4.0, run: faults::run },
    Trial { name: "moved", minutes: 4.0, run: moved::run },
    Trial { name: "growth", minutes: 6.0, run: growth::run },
    Trial { name: "hostile", minutes: 3.0, run: hostile::run },
    Trial { name: "damage", minutes: 5.0, run: damage::run },
    Trial { name: "crowd", minutes: 5.0, run: crowd::run },
    Trial { name: "readers", minutes: 4.0, run: readers::run },
    Trial { name: "fuzz", minutes: 7.0, run: fuzz::run },
    Trial { name: "keys", minutes: 11.0, run: keys::run },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        // The program is its own workers.
        Some("worker") => tcx_engine_tests::worker::run(&words[1..]),
        Some(full::INSIDE) => full::inside(&words[1..]),
        Some(keys::MEASURE) => keys::measure(&words[1..]),
        _ => return stress(&words),
    }
    ExitCode::SUCCESS
}

fn stress(words: &[String]) -> ExitCode {
    let arguments = match Arguments::parse(words, &TRIALS.map(|trial| trial.name)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    let trials = TRIALS.iter().filter(|trial| arguments.wants(trial.name));
    let mut shares: f64 = trials.clone().map(|trial| trial.minutes).sum();
    let begin = Instant::now();
    let mut report = Report::new(&arguments);
    for trial in trials {
        let left = arguments.minutes - begin.elapsed().as_secs_f64() / 60.0;
        let granted = left.max(0.0) * trial.minutes / shares;
        shares -= trial.minutes;
        eprintln!("==> {}, up to {granted:.1} minutes", trial.name);
        let budget = Budget::new(Duration::from_secs_f64(granted * 60.0), granted / trial.minutes);
        let (start, mut outcome) = (Instant::now(), Outcome::default());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (trial.run)(&budget, &arguments, &mut outcome)))
        {
            outcome.wrong(format!("the trial panicked: {}", message(&*panic)));
        }
        outcome.end();
        eprintln!("    {}", outcome.line());
        report.add(trial.name, outcome, start.elapsed());
    }
    if report.write() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message").to_owned()
}
