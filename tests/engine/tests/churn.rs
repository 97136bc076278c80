//! Processes that compute, invalidate, join and remove on one directory, and are killed at any moment.

use tcx_engine_tests::Workers;
use tcx_engine_tests::churn::Churn;

/// So many processes at a time, one of which is killed and replaced in each round.
fn churn(processes: usize, rounds: usize, seed: u64) {
    let mut churn = Churn::new(&Workers::new([env!("CARGO_BIN_EXE_worker")]), processes, seed);
    for _ in 0..rounds {
        churn.round().assert_none();
    }
    let (findings, events) = churn.end();
    findings.assert_none();
    assert!(events > 100, "{events} events");
}

#[test]
fn of_two_processes_killed_at_any_moment_nothing_acknowledged_is_lost_and_nothing_dead_comes_back() {
    churn(2, 15, 7);
}

#[test]
fn of_eight_processes_killed_at_any_moment_nothing_acknowledged_is_lost_and_nothing_dead_comes_back() {
    churn(8, 20, 11);
}
