//! Processes that compute, invalidate, join and remove on one directory, and are killed at any moment.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tcx_engine_tests::churn::{Event, check};
use tcx_engine_tests::{Dice, files, open};
use tcx_store::Store;

fn start(dir: &Path, prefix: &str) -> Child {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_worker"));
    worker.arg("churn").arg(dir).arg(prefix).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Kills the process and reads what it has said.
fn kill(mut child: Child) -> Vec<Event> {
    assert_eq!(
        child.try_wait().unwrap(),
        None,
        "it goes on for ever, unless something is wrong: {}",
        said(&mut child)
    );
    child.kill().unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.wait().unwrap();
    out.lines().filter_map(Event::parse).collect()
}

fn said(child: &mut Child) -> String {
    let mut said = String::new();
    if child.try_wait().unwrap().is_some() {
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    }
    said
}

fn name(number: usize) -> String {
    format!("p{number}")
}

fn check_all(store: &Store, dead: &[(usize, Vec<Event>)]) {
    for (number, events) in dead {
        check(store, &name(*number), events);
    }
}

/// So many processes at a time, one of which is killed and replaced in each round.
fn churn(processes: usize, rounds: usize, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice(seed);
    let mut alive: Vec<(usize, Child)> =
        (0..processes).map(|number| (number, start(dir.path(), &name(number)))).collect();
    let mut dead = Vec::new();
    for round in 0..rounds {
        std::thread::sleep(Duration::from_micros(dice.roll(400_000) as u64));
        let (number, child) = alive.remove(dice.roll(alive.len()));
        dead.push((number, kill(child)));
        let next = processes + round;
        alive.push((next, start(dir.path(), &name(next))));
        let store = open(dir.path());
        check_all(&store, &dead);
        assert_eq!(store.stats().damaged_segments, 0);
    }
    dead.extend(alive.into_iter().map(|(number, child)| (number, kill(child))));
    let store = open(dir.path());
    check_all(&store, &dead);
    let done = dead.iter().map(|(_, events)| events.len()).sum::<usize>();
    assert!(done > 100, "{done} events");
    store.compact().unwrap();
    store.collect(Duration::ZERO).unwrap();
    check_all(&store, &dead);
    assert_eq!(files(dir.path(), "seg-").len(), 1, "all that was joined has been removed");
    println!("{done} events, {} changes", files(dir.path(), "change-").len());
}

#[test]
fn of_two_processes_killed_at_any_moment_nothing_acknowledged_is_lost_and_nothing_dead_comes_back() {
    churn(2, 15, 7);
}

#[test]
fn of_eight_processes_killed_at_any_moment_nothing_acknowledged_is_lost_and_nothing_dead_comes_back() {
    churn(8, 20, 11);
}
