//! 40 jobs of 20 processes read one cache, to which another process adds rows that it joins: all answers are right, each process
//! has little memory of its own, the mapped files are in memory once, and few system calls reach the file system.

mod calls;
mod memory;

use std::fs::File;
use std::io::{PipeReader, PipeWriter};
use std::path::Path;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tcx_engine_tests::{Findings, Worker, get_or_compute, open};

use crate::arguments::{Arguments, workers};
use crate::budget::Budget;
use crate::machine::target;
use crate::outcome::Outcome;

/// Jobs, and the processes of each, which start together.
const JOBS: usize = 40;
const PROCESSES: usize = 20;
/// Rows that are stored before.
const ROWS: usize = 200_000;
/// Milliseconds between two batches of a reader, and between two flushes of the writer.
const READ_EVERY: usize = 500;
const FLUSH_EVERY: usize = 1000;
/// The time in which all processes read before anything is measured, and that in which calls are counted. In a shorter time, the
/// calls of one listing would be many a second.
const READS: Duration = Duration::from_secs(40);
const COUNTED: Duration = Duration::from_secs(20);
const COUNTED_AT_LEAST: Duration = Duration::from_secs(3);

/// The private memory of a reader: its heap and stacks.
const MOST_KIB: u64 = 4 << 10;
/// Calls a second that concern files: of a reader that finds all rows, and of one that asks for missing rows in each batch.
const MOST_CALLS: [f64; 2] = [60.0, 120.0];

pub(crate) fn run(budget: &Budget, _: &Arguments, outcome: &mut Outcome) {
    if let Err(why) = calls::are_counted() {
        return outcome.skip(format!("the system calls of a process cannot be counted with ptrace: {why}"));
    }
    allow_many_files();
    let dir = tempfile::tempdir_in(target()).unwrap();
    let (cache, log) = (dir.path().join("cache"), dir.path().join("log"));
    let rows = budget.count(ROWS).max(5_000);
    fill(&cache, rows);
    let file = File::options().create(true).read(true).append(true).open(&log).unwrap();
    let (writer_input, writer_end) = std::io::pipe().unwrap();
    let mut writer = workers().command("add", &cache, &[&FLUSH_EVERY.to_string()]);
    let writer = Worker::start_saying_to(writer.stdin(writer_input), file);
    let (mut readers, readers_end) =
        start(&cache, &log, rows, budget.count(JOBS * PROCESSES).div_ceil(PROCESSES).max(2), outcome);
    outcome.figure("processes", readers.len());
    outcome.figure("rows", rows);
    std::thread::sleep(READS.min(budget.left() / 2));
    count_calls(&readers, COUNTED.min(budget.left() / 2).max(COUNTED_AT_LEAST), outcome);
    measure_memory(&mut readers, &cache, outcome);
    // The readers learn from its log what they must find.
    drop(writer_end);
    let ended = writer.end();
    if !ended.status.success() {
        outcome.wrong(format!("the writer: {}", ended.complaints));
    }
    drop(readers_end);
    for reader in readers {
        take_report(reader, outcome);
    }
}

/// A process has two files of this program: what it says, and what it complains of.
fn allow_many_files() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(soft.max(8192)), hard).unwrap();
}

fn fill(cache: &Path, rows: usize) {
    let store = open(cache);
    for first in (0..rows).step_by(1000) {
        let ids: Vec<String> = (first..rows.min(first + 1000)).map(|row| format!("r{row}")).collect();
        get_or_compute(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    }
    store.flush().unwrap();
    store.compact().unwrap();
    store.collect(Duration::ZERO).unwrap();
}

/// Starts the readers of one job after those of another. They end when what is returned with them is dropped.
fn start(
    cache: &Path,
    log: &Path,
    rows: usize,
    jobs: usize,
    outcome: &mut Outcome,
) -> (Vec<Worker>, PipeWriter) {
    let (input, end) = std::io::pipe().unwrap();
    let mut readers = Vec::new();
    for _ in 0..jobs {
        let mut job: Vec<Worker> =
            (0..PROCESSES).map(|number| reader(cache, log, rows, number, &input)).collect();
        for reader in &mut job {
            if !reader.waits_for("ready") {
                outcome.wrong(format!("a reader did not begin: {}{}", reader.said(), reader.complaints()));
            }
        }
        readers.extend(job);
    }
    (readers, end)
}

fn reader(cache: &Path, log: &Path, rows: usize, number: usize, input: &PipeReader) -> Worker {
    let (rows, pause) = (rows.to_string(), READ_EVERY.to_string());
    let mut arguments = vec![log.to_str().unwrap(), &rows, &pause];
    if awaits(number) {
        arguments.push("awaits");
    }
    let mut reader = workers().command("browse", cache, &arguments);
    Worker::start(reader.stdin(input.try_clone().unwrap()))
}

/// Every other process of a job asks for missing rows.
fn awaits(number: usize) -> bool {
    number % 2 == 1
}

/// Counts the calls of one job.
fn count_calls(readers: &[Worker], time: Duration, outcome: &mut Outcome) {
    let job: Vec<u32> = readers[..PROCESSES].iter().map(Worker::id).collect();
    let calls = match calls::count(&job, time) {
        Ok(calls) => calls,
        Err(why) => {
            return outcome.wrong(format!("the calls of {PROCESSES} readers were not counted: {why}"));
        }
    };
    for (kind, name) in
        ["file calls a second, all found", "file calls a second, some missing"].into_iter().enumerate()
    {
        let own = calls.iter().enumerate().filter(|(number, _)| usize::from(awaits(*number)) == kind);
        let most = own.map(|(_, calls)| *calls as f64 / time.as_secs_f64()).fold(0.0, f64::max);
        outcome.figure(name, most);
        if most > MOST_CALLS[kind] {
            outcome.wrong(format!("{most:.1} {name}, expected at most {}", MOST_CALLS[kind]));
        }
    }
}

/// Compares the memory of all readers with what the documents say.
fn measure_memory(readers: &mut [Worker], cache: &Path, outcome: &mut Outcome) {
    let (mut private, mut shared) = (0, 0);
    for reader in readers.iter_mut().filter_map(|reader| reader.is_running().then_some(reader)) {
        match memory::of(reader.id()) {
            Some(memory) => {
                private = memory.private.max(private);
                shared += memory.shared;
            }
            None => outcome.wrong("the memory of a reader is unknown"),
        }
    }
    outcome.figure("private KiB of a process", private);
    outcome.figure("MiB of files in the memory of all", shared >> 10);
    if private > MOST_KIB {
        outcome.wrong(format!("{private} KiB of private memory in a process, expected at most {MOST_KIB}"));
    }
    // Removed files stay mapped until a reader looks at the folder again; programs and libraries are mapped, too.
    let most = 2 * folder_kib(cache) + (64 << 10);
    if shared > most {
        outcome.wrong(format!(
            "{shared} KiB of mapped files in all processes together, expected at most {most}"
        ));
    }
}

fn folder_kib(cache: &Path) -> u64 {
    let files = std::fs::read_dir(cache.join("m_v1")).unwrap();
    // The writer may remove a file during the listing.
    files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len() >> 10)).sum()
}

fn take_report(reader: Worker, outcome: &mut Outcome) {
    let ended = reader.end();
    let mut lines = ended.said.lines().skip_while(|line| *line == "ready");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let numbers = match words[..] {
        ["batches", batches, "misses", misses] => batches.parse().ok().zip(misses.parse().ok()),
        _ => None,
    };
    let Some((batches, misses)) = numbers.filter(|_| ended.status.success()) else {
        return outcome.wrong(format!("a reader: {}{}", ended.said, ended.complaints));
    };
    let mut findings = Findings::default();
    for line in lines {
        match line.strip_prefix("lost ") {
            Some(what) => findings.lost.push(what.to_owned()),
            None => findings.wrong.push(line.to_owned()),
        }
    }
    outcome.tried_many(batches, findings);
    outcome.count("misses", misses);
}
