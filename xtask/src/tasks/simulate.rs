//! `cargo xtask simulate`: many seeds of the engine's model, optimized, on all processors; with `--remote`, over an object store.

use std::process::{Command, ExitCode};

use crate::failure::Result;
use crate::process;
use crate::workspace::{Workspace, cargo};

/// A package, and its tests that run the seeds which their environment names (`tcx-store/src/testing/simulation/seeds.rs`).
struct Simulated {
    package: &'static str,
    tests: &'static [&'static str],
}

/// Of the engine, and of workers that share work.
const ENGINE: Simulated = Simulated {
    package: "tcx-store",
    tests: &[
        "testing::simulation::seeds::nothing_is_wrong_or_lost_in_very_many_runs",
        "leases::tests::every_range_is_computed_in_very_many_runs",
    ],
};

/// Of machines that know a module by the objects of a store.
const REMOTE: Simulated = Simulated {
    package: "tcx-remote",
    tests: &["testing::simulation::nothing_is_wrong_or_lost_in_very_many_runs_on_machines"],
};

/// Not `--release`: assertions and overflow checks find something too. The workspace has a level of its own for the engine, which wins
/// over that of the whole profile.
const PROFILES: [&str; 2] =
    ["profile.dev.package.tcx-store.opt-level=2", "profile.dev.package.tcx-remote.opt-level=2"];

/// Builds the tests and becomes those that run `seeds` seeds from `first` on, one after the other.
pub(crate) fn run(workspace: &Workspace, seeds: u64, first: u64, is_remote: bool) -> Result<ExitCode> {
    let simulated = if is_remote { REMOTE } else { ENGINE };
    let mut simulate = command(workspace, &simulated);
    simulate.arg("--").args(simulated.tests);
    simulate.args(["--exact", "--ignored", "--nocapture", "--test-threads", "1"]);
    simulate.env("TCX_MODEL_SEEDS", seeds.to_string()).env("TCX_MODEL_FIRST_SEED", first.to_string());
    process::hand_over(&mut simulate)
}

/// Cargo, about to build the tests of the package.
fn command(workspace: &Workspace, simulated: &Simulated) -> Command {
    let mut test = cargo("test");
    test.args(["--package", simulated.package, "--lib"]);
    test.args(PROFILES.iter().flat_map(|profile| ["--config", profile]));
    test.arg("--manifest-path").arg(workspace.root().join("Cargo.toml"));
    test
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_engine_is_built_at_the_level_that_is_asked_for() {
        let workspace = Workspace::find().unwrap();
        for simulated in [ENGINE, REMOTE] {
            is_built_at_level_2(command(&workspace, &simulated));
        }
    }

    fn is_built_at_level_2(mut plan: Command) {
        plan.args(["--unit-graph", "-Z", "unstable-options"]).env("RUSTC_BOOTSTRAP", "1");
        let plan: Value = serde_json::from_str(&process::output(&mut plan).unwrap()).unwrap();
        let units = plan["units"].as_array().unwrap();
        let mut engine = units.iter().filter(|unit| unit["target"]["name"] == "tcx_store").peekable();
        assert!(engine.peek().is_some());
        assert!(engine.all(|unit| unit["profile"]["opt_level"] == "2"));
    }
}
