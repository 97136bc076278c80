//! Makes system calls fail with libfiu: a process continues to compute, no acknowledged row is lost, and writing works again
//! when the calls do.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tcx_engine_tests::endure::{acknowledged, durable, failed};
use tcx_engine_tests::{Dice, Findings, Worker};

use crate::arguments::{Arguments, workers};
use crate::budget::Budget;
use crate::machine::runs;
use crate::outcome::Outcome;

/// The calls that fail, in libfiu's names. They never report a missing file, which only another process can cause. `mmap` does
/// not fail, because Rust ends a process that has no memory for the signal stack of a new thread.
const CALLS: [&str; 7] = [
    "posix/io/oc/open",
    "posix/io/rw/pread",
    "posix/io/rw/write",
    "posix/io/rw/write/reduce",
    "posix/io/sync/fsync",
    "posix/io/dir/rename",
    "posix/io/dir/unlink",
];
/// Input/output error, out of memory, too many open files, no space left, permission denied.
const ERRORS: [usize; 5] = [5, 12, 24, 28, 13];

/// The time in which a process makes its first rows.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn run(budget: &Budget, _: &Arguments, outcome: &mut Outcome) {
    if !runs("fiu-run", &["-x", "true"]) {
        return outcome.skip("fiu-run is not installed (Debian and Ubuntu: `apt install fiu-utils`)");
    }
    for round in 1..=budget.count(80) as u64 {
        if round > 1 && budget.is_over() {
            return;
        }
        let findings = try_one(round, outcome);
        outcome.tried(findings);
    }
}

fn try_one(seed: u64, outcome: &mut Outcome) -> Findings {
    let (dir, mut dice) = (tempfile::tempdir().unwrap(), Dice(seed));
    let (cache, control) = (dir.path().join("cache"), dir.path().join("control"));
    let mut under_fiu = Command::new("fiu-run");
    // Every other process reads its files, where a read may fail, instead of mapping them.
    let words: &[&str] = if seed.is_multiple_of(2) { &["f", "read"] } else { &["f"] };
    let worker = workers().command("endure", &cache, words);
    under_fiu.arg("-x").arg("-f").arg(&control).arg(worker.get_program()).args(worker.get_args());
    let mut worker = Worker::start(&mut under_fiu);
    if !worker.waits_for("durable 0") {
        return Findings::of_wrong(format!("it did not begin: {}{}", worker.said(), worker.complaints()));
    }
    // Failures begin now: starting a process is not part of the trial.
    let failing: Vec<String> = (0..=dice.roll(3)).map(|_| enable(&mut dice)).collect();
    for what in &failing {
        if !send(&control, worker.id(), what) {
            return Findings::of_wrong(format!(
                "fiu-ctrl does not reach the process: {}",
                worker.complaints()
            ));
        }
    }
    std::thread::sleep(Duration::from_millis(300 + dice.roll(2500) as u64));
    let complaints = worker.complaints();
    let mut findings = Findings::default();
    let said = worker.kill().unwrap_or_else(|why| {
        findings.wrong.push(why);
        String::new()
    });
    if complaints.contains("panicked") {
        findings.wrong.push(complaints);
    }
    let kept = durable(&said);
    outcome.count("batches kept", kept.len());
    outcome.count("flushes failed", failed(&said));
    findings.add(acknowledged(&cache, "f", &kept));
    let mut again = workers().start("endure", &cache, &["again"]);
    if !again.waits_for("durable 2") {
        findings.wrong.push(format!("writing does not work again: {}{}", again.said(), again.complaints()));
    }
    findings.add(acknowledged(&cache, "f", &kept));
    for what in findings.wrong.iter_mut().chain(&mut findings.lost) {
        *what = format!("{failing:?}: {what}");
    }
    findings
}

fn enable(dice: &mut Dice) -> String {
    let (call, error) = (CALLS[dice.roll(CALLS.len())], ERRORS[dice.roll(ERRORS.len())]);
    let probability = [0.003, 0.03, 0.3][dice.roll(3)];
    // For a shortened write, it is the number of bytes to cut.
    let info = if call.ends_with("reduce") { 1 + dice.roll(4000) } else { error };
    format!("enable_random name={call},probability={probability},failinfo={info}")
}

/// Makes calls fail in a running process.
fn send(control: &Path, process: u32, what: &str) -> bool {
    let mut controller = Command::new("fiu-ctrl");
    controller.args(["-c", what, "-f"]).arg(control).arg(process.to_string());
    Worker::start(&mut controller)
        .end_within(PATIENCE)
        .is_some_and(|ended| ended.status.success() && ended.said.is_empty())
}
