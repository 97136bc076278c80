//! `cargo xtask simulate`: many seeds of the engine's model, optimized, on all processors.

use std::process::{Command, ExitCode};

use crate::failure::Result;
use crate::process;
use crate::workspace::{Workspace, cargo};

/// The tests that run the seeds which their environment names (`tcx-store/src/testing/simulation/seeds.rs`): of the engine, and of
/// workers that share work.
const TESTS: [&str; 2] = [
    "testing::simulation::seeds::nothing_is_wrong_or_lost_in_very_many_runs",
    "leases::tests::every_range_is_computed_in_very_many_runs",
];

/// Not `--release`: assertions and overflow checks find something too. The workspace has a level of its own for the engine, which wins
/// over that of the whole profile.
const PROFILE: &str = "profile.dev.package.tcx-store.opt-level=2";

/// Builds the engine's tests and becomes those that run `seeds` seeds from `first` on, one after the other.
pub(crate) fn run(workspace: &Workspace, seeds: u64, first: u64) -> Result<ExitCode> {
    let mut simulate = command(workspace);
    simulate.arg("--").args(TESTS).args(["--exact", "--ignored", "--nocapture", "--test-threads", "1"]);
    simulate.env("TCX_MODEL_SEEDS", seeds.to_string()).env("TCX_MODEL_FIRST_SEED", first.to_string());
    process::hand_over(&mut simulate)
}

/// Cargo, about to build the engine's tests.
fn command(workspace: &Workspace) -> Command {
    let mut test = cargo("test");
    test.args(["--package", "tcx-store", "--lib", "--config", PROFILE, "--manifest-path"]);
    test.arg(workspace.root().join("Cargo.toml"));
    test
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_engine_is_built_at_the_level_that_is_asked_for() {
        let mut plan = command(&Workspace::find().unwrap());
        plan.args(["--unit-graph", "-Z", "unstable-options"]).env("RUSTC_BOOTSTRAP", "1");
        let plan: Value = serde_json::from_str(&process::output(&mut plan).unwrap()).unwrap();
        let units = plan["units"].as_array().unwrap();
        let mut engine = units.iter().filter(|unit| unit["target"]["name"] == "tcx_store").peekable();
        assert!(engine.peek().is_some());
        assert!(engine.all(|unit| unit["profile"]["opt_level"] == "2"));
    }
}
