//! `cargo xtask simulate`: many seeds of the engine's model, optimized, on all processors.

use std::process::ExitCode;

use crate::failure::Result;
use crate::process;
use crate::workspace::{Workspace, cargo};

/// The test that runs the seeds which its environment names (`tcx-store/src/testing/simulation/seeds.rs`).
const TEST: &str = "testing::simulation::seeds::nothing_is_wrong_or_lost_in_very_many_runs";

/// Builds the engine's tests and becomes the one that runs `seeds` seeds from `first` on.
pub(crate) fn run(workspace: &Workspace, seeds: u64, first: u64) -> Result<ExitCode> {
    let mut simulate = cargo("test");
    // Not `--release`: assertions and overflow checks find something too, and the dependencies of the tests are optimized.
    simulate.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
    simulate.args(["--package", "tcx-store", "--lib", "--manifest-path"]);
    simulate.arg(workspace.root().join("Cargo.toml"));
    simulate.args(["--", "--exact", TEST, "--ignored", "--nocapture"]);
    simulate.env("TCX_MODEL_SEEDS", seeds.to_string()).env("TCX_MODEL_FIRST_SEED", first.to_string());
    process::hand_over(&mut simulate)
}
