//! The library across processes: a killed fill continues where it stopped, and of two modules with different weights that start
//! at once, one is refused.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tcx::{Cache, Cached};
use tcx_tests::Scaled;

fn filler(dir: &Path, weight: f64, count: usize) -> Child {
    Command::new(env!("CARGO_BIN_EXE_filler"))
        .arg(dir)
        .args([weight.to_string(), count.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn open(dir: &Path, weight: f64) -> Cached<Scaled> {
    Cache::open(dir).unwrap().module(Scaled::new(weight)).unwrap()
}

/// Requests the ids below `count`, checks their rows, and returns the number of computed ones.
fn computed(cached: &Cached<Scaled>, count: i64, weight: f64) -> u64 {
    let ids: Vec<i64> = (0..count).collect();
    let before = cached.stats().misses;
    Scaled::check(&cached.forward(&ids, &Scaled::input(&ids)).unwrap(), &ids, weight);
    cached.stats().misses - before
}

#[test]
fn a_killed_fill_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut filler = filler(dir.path(), 3., 1_000_000);
    // The fill is killed at some point; this process watches its progress.
    let cached = open(dir.path(), 3.);
    while cached.stats().segments < 5 {
        cached.refresh().unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    filler.kill().unwrap();
    let said = filler.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    let durable = said.lines().rev().find_map(|line| line.strip_prefix("durable ")?.parse().ok()).unwrap();
    assert!(durable >= 80, "four segments and more were acknowledged: {durable}");
    cached.refresh().unwrap();
    assert_eq!(computed(&cached, durable, 3.), 0, "what was acknowledged is not computed again");
    assert!(computed(&cached, durable + 1000, 3.) > 0, "and the rest is");
}

#[test]
fn of_two_modules_with_different_weights_that_start_at_once_one_is_refused() {
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let fillers = [3., 5.].map(|weight| (weight, filler(dir.path(), weight, 2000)));
        let ends = fillers.map(|(weight, filler)| {
            let output = filler.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            (weight, String::from_utf8_lossy(&output.stdout).into_owned())
        });
        let (refused, won): (Vec<_>, Vec<_>) = ends.iter().partition(|(_, said)| said.contains("refused"));
        let ([(_, said)], [(winner, _)]) = (&refused[..], &won[..]) else {
            panic!("one is refused: {ends:?}")
        };
        assert!(said.contains("`fc.weights`: blake3:") && said.contains("bump the id"), "{said}");
        assert_eq!(computed(&open(dir.path(), *winner), 2000, *winner), 0, "the cache stays good");
    }
}

#[cfg(unix)]
#[test]
fn rows_of_a_handle_in_a_static_are_written_when_the_process_ends() {
    for end in ["return", "exit", "thread", "panic"] {
        let dir = tempfile::tempdir().unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_static_handle")).arg(dir.path()).arg(end).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(if end == "panic" { 101 } else { 0 }), "{end}: {said}");
        assert_eq!(computed(&open(dir.path(), 3.), 100, 3.), 0, "{end}: {said}");
    }
}
