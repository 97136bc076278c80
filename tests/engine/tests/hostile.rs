//! Directories that an attacker has prepared.

use tcx_engine_tests::hostile::{forgery, traps};
use tcx_engine_tests::{Dice, Findings, Workers};

fn workers() -> Workers {
    Workers::new([env!("CARGO_BIN_EXE_worker")])
}

#[test]
fn whatever_lies_in_a_directory_nothing_outside_is_touched_nothing_hangs_and_errors_name_the_place() {
    let mut findings = Findings::default();
    for trap in traps() {
        findings.add(trap.visit(&workers()));
    }
    findings.assert_none();
}

#[test]
fn files_that_are_forged_at_random_neither_panic_nor_hang() {
    let mut dice = Dice(0xf0e);
    for _ in 0..40 {
        forgery(&mut dice).visit(&workers()).assert_none();
    }
}
