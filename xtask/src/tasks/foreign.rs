//! `cargo xtask foreign`: SQL, and other programs that read caches and exports. It is no part of `test`: DataFusion takes
//! minutes to build, and the Python packages are large.

use tcx_test_skips::require_also;

use crate::failure::Result;
use crate::process;
use crate::provision::{environment, toolchain};
use crate::workspace::{Workspace, cargo};

/// The Python packages, each in one version.
const REQUIREMENTS: &str = include_str!("foreign.txt");

/// Those whose tests must not be skipped.
const REQUIRED: &str = "pyarrow,numpy,polars,duckdb,datasets";

/// The packages together, so that DataFusion is built once.
const PACKAGES: [&str; 8] = [
    "--profile",
    "foreign",
    "--package",
    "tcx-sql",
    "--package",
    "tcx-cli",
    "--features",
    "tcx-cli/sql,tcx-cli/remote,tcx-sql/parquet,tcx-sql/remote,tcx-sql/distributed",
];

/// Provides what is needed, then tests, lints and documents what `test` leaves out.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    toolchain::require_compiler()?;
    let place = workspace.root().join("target/foreign-python");
    let python = environment::provide(&place, REQUIREMENTS, "the packages that read caches and exports")?;
    let cargo = |subcommand| {
        let mut command = cargo(subcommand);
        command.current_dir(workspace.root()).args(PACKAGES);
        command
    };
    let mut tests = cargo("test");
    tests.env("TCX_PYTHON", python).env("TCX_REQUIRE", require_also(REQUIRED));
    process::run(&mut tests, "`cargo test` of SQL and other readers")?;
    let mut lints = cargo("clippy");
    lints.args(["--all-targets", "--", "-D", "warnings"]);
    process::run(&mut lints, "`cargo clippy` of SQL")?;
    let mut documentation = cargo("doc");
    documentation.arg("--no-deps").env("RUSTDOCFLAGS", "-D warnings");
    process::run(&mut documentation, "`cargo doc` of SQL")
}
