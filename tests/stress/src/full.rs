//! A disk that is full, read-only or missing, and later works again: processes continue to compute, no acknowledged row is
//! lost, and writing works again. The disk is a small tmpfs in a mount namespace of its own.

mod outage;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tcx_engine_tests::endure::{acknowledged, durable, failed};
use tcx_engine_tests::{Dice, Findings, Worker, get_or_compute, lookup, open};
use tcx_store::{Keys, Store};

use crate::arguments::{Arguments, workers};
use crate::budget::Budget;
use crate::machine::free_bytes;
use crate::outcome::Outcome;
use outage::Outage;

/// The command of the process that runs on the small disk.
pub(crate) const INSIDE: &str = "in-small-disk";

/// The time in which a process must notice that the disk has failed, or works again: it notices at a flush.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn run(budget: &Budget, _: &Arguments, outcome: &mut Outcome) {
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let (rounds, seconds) = (budget.count(60).to_string(), budget.left().as_secs().to_string());
    // Other users become root of a user namespace.
    let options: &[&str] = if is_root() { &["-m"] } else { &["-rm"] };
    let script =
        "mount -t tmpfs -o size=256m,mode=0755 tcx-stress \"$1\" && exec \"$0\" \"$2\" \"$1\" \"$3\" \"$4\"";
    let output = Command::new("unshare")
        .args(options)
        .args(["sh", "-c", script])
        .arg(exe)
        .arg(dir.path())
        .args([INSIDE, &rounds, &seconds])
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return outcome.skip(format!("cannot run unshare: {error}")),
    };
    let (said, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let report = said.lines().last().and_then(|line| serde_json::from_str(line).ok());
    match report.and_then(|report| outcome.add_json(&report)) {
        Some(()) => {}
        None if is_refused(&complaints) => {
            outcome.skip(format!("no small disk: {}", complaints.lines().last().unwrap_or_default()));
        }
        None => outcome.wrong(format!("{}: {said}{complaints}", output.status)),
    }
}

/// Whether the system lets no such disk be mounted.
fn is_refused(complaints: &str) -> bool {
    complaints.lines().any(|line| line.starts_with("unshare: ") || line.starts_with("mount: "))
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Prints its outcome as the last line.
pub(crate) fn inside(words: &[String]) {
    let [dir, rounds, seconds] = words else { panic!("{INSIDE} DIR ROUNDS SECONDS, found {words:?}") };
    let (dir, rounds): (&Path, u64) = (dir.as_ref(), rounds.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds.parse().unwrap());
    let mut outcome = Outcome::default();
    for round in 1..=rounds {
        if round > 1 && Instant::now() > end {
            break;
        }
        let cache = dir.join(format!("c{round}"));
        for outage in Outage::ALL {
            let mut findings = writers(dir, &cache, outage, round, &mut outcome);
            for what in findings.wrong.iter_mut().chain(&mut findings.lost) {
                *what = format!("{outage:?}: {what}");
            }
            outcome.tried(findings);
            fs::remove_dir_all(&cache).unwrap();
        }
        outcome.tried(invalidation(dir, &cache));
        fs::remove_dir_all(&cache).unwrap();
    }
    println!("{}", outcome.to_json());
}

/// Two processes that meet an outage while they write.
fn writers(dir: &Path, cache: &Path, outage: Outage, seed: u64, outcome: &mut Outcome) -> Findings {
    let mut dice = Dice(seed);
    let mut findings = Findings::default();
    let mut writers = ["a", "b"].map(|name| (name, workers().start("endure", cache, &[name])));
    let began = wait(&mut writers, || {}, |said| !durable(said).is_empty());
    std::thread::sleep(Duration::from_millis(dice.roll(500) as u64));
    outage.begin(dir);
    let noticed = wait(&mut writers, || outage.go_on(dir), |said| failed(said) > 3);
    std::thread::sleep(Duration::from_millis(dice.roll(500) as u64));
    let before: Vec<usize> = writers.iter().map(|(_, writer)| durable(&writer.said()).len()).collect();
    outage.end(dir);
    let last_are_durable = |said: &str| {
        let last = said.lines().rev().take(3);
        last.filter(|line| line.starts_with("durable")).count() == 3
    };
    let again = wait(&mut writers, || {}, last_are_durable);
    for ((name, writer), before) in writers.into_iter().zip(before) {
        let complaints = writer.complaints();
        let said = match writer.kill() {
            Ok(said) => said,
            Err(why) => {
                findings.wrong.push(why);
                continue;
            }
        };
        if !began || !noticed || !again || complaints.contains("panicked") {
            findings.wrong.push(format!(
                "{name}: began: {began}, met the outage: {noticed}, wrote again: {again}, {} bytes free: {}{complaints}",
                free_bytes(dir),
                said.lines().last().unwrap_or_default(),
            ));
        }
        // The next flush may report rows that were not stored during the outage.
        if let Some(other) = said.lines().find(|line| line.starts_with("failed") && !outage.is_told_by(line))
        {
            findings.wrong.push(format!("{name}: an error that does not name the disk: {other}"));
        }
        let after = durable(&said);
        outcome.count("batches kept", after.len());
        outcome.count("batches kept after an outage", after.len() - before);
        outcome.count("flushes failed", failed(&said));
        findings.add(acknowledged(cache, name, &after));
    }
    findings
}

/// Waits until the condition holds for every process and calls `during` again and again; `false` if it takes too long or a
/// process has ended.
fn wait<const N: usize>(
    writers: &mut [(&str, Worker); N],
    during: impl Fn(),
    is_so: impl Fn(&str) -> bool,
) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE && writers.iter_mut().all(|(_, writer)| writer.is_running()) {
        if writers.iter().all(|(_, writer)| is_so(&writer.said())) {
            return true;
        }
        during();
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Rows invalidated while the disk is full are dead in this process at once, and in others when the change is written.
fn invalidation(dir: &Path, cache: &Path) -> Findings {
    let ids: Vec<String> = (0..50).map(|id| format!("i{id}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (dead, alive) = ids.split_at(20);
    let store = open(cache);
    get_or_compute(&store, &ids);
    store.flush().unwrap();
    outage::fill(dir);
    let mut findings = Findings::default();
    if store.invalidate(&Keys::text(dead, 0).unwrap()).is_ok() {
        findings.wrong.push("an invalidation that is not on disk was acknowledged".to_owned());
    }
    if missing(&store, dead) != dead.len() {
        findings.wrong.push("rows that could not be invalidated on disk are served here".to_owned());
    }
    outage::make_room(dir);
    get_or_compute(&store, &["another"]);
    store.flush().unwrap();
    drop(store);
    let said = workers().start("check", cache, &["i", "50"]).end().well();
    if said.trim() != dead.len().to_string() {
        findings.wrong.push(format!("another process misses {} rows, {} are dead", said.trim(), dead.len()));
    }
    let store = open(cache);
    if missing(&store, alive) > 0 {
        findings.lost.push("rows that were not invalidated".to_owned());
    }
    findings
}

fn missing(store: &Store, ids: &[&str]) -> usize {
    lookup(store, ids).missing()
}
