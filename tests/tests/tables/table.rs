//! Every dtype and rank in every form of output: computed, found, partly found and found by another process;
//! on disk and in memory.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::process::Command;

use tcx_tests::table::{Step, cases};

fn is_exact(form: &str) {
    let dir = tempfile::tempdir().unwrap();
    let cases: Vec<_> = cases().into_iter().filter(|case| case.form == form).collect();
    assert!(cases.len() >= 10, "every dtype");
    for case in &cases {
        case.run(dir.path(), Step::First);
    }
    let other = Command::new(env!("CARGO_BIN_EXE_table")).arg(dir.path()).arg(form).output().unwrap();
    assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stderr));
    for case in &cases {
        case.run(dir.path(), Step::Again);
        case.run_in_memory();
    }
}

#[test]
fn structs_are_exact() {
    is_exact("struct");
}

#[test]
fn nested_structs_are_exact() {
    is_exact("nested");
}

#[test]
fn tuples_are_exact() {
    is_exact("tuple");
}

#[test]
fn outputs_declared_in_place_are_exact() {
    is_exact("inline");
}

#[test]
fn direct_returns_are_exact() {
    is_exact("direct");
}
