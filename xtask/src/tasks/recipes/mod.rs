//! `cargo xtask recipes`: runs the recipes of `examples/recipes` with the tools that they are for. It is no part of `test`: the
//! Python packages of these tools are large.

use tcx_test_skips::require_also;

use crate::failure::Result;
use crate::process;
use crate::provision::{environment, toolchain};
use crate::tasks::suite::ALL;
use crate::workspace::{Workspace, cargo};

/// The tools, and the Python packages of each: they need different versions of some, so each has an environment.
const TOOLS: [(&str, &str); 3] = [
    ("mlflow", include_str!("mlflow.txt")),
    ("dvc", include_str!("dvc.txt")),
    ("snakemake", include_str!("snakemake.txt")),
];

/// Provides the tools, builds the command `tcx`, and runs each recipe on a small cache.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    toolchain::require_compiler()?;
    let environments = workspace.root().join("target/recipes-python");
    for (tool, requirements) in TOOLS {
        environment::provide(&environments.join(tool), requirements, &format!("{tool} for its recipe"))?;
    }
    let mut tests = cargo("test");
    // With the features of `cargo xtask test`, which may have built the command already.
    tests.current_dir(workspace.root()).args(ALL).args(["--test", "recipes"]);
    tests
        .env("TCX_RECIPES", environments)
        .env("TCX_REQUIRE", require_also(&TOOLS.map(|(tool, _)| tool).join(",")));
    process::run(&mut tests, "`cargo test` of the recipes")
}
