//! `cargo xtask backends`: the tensor libraries besides tch. It is no part of `test`, which builds ndarray only: candle takes
//! minutes to build.

use crate::failure::Result;
use crate::process;
use crate::provision::{libtorch, toolchain};
use crate::workspace::{Workspace, cargo};

/// The library without libtorch.
const WITHOUT_LIBTORCH: [&str; 5] =
    ["--package", "tcx-cache", "--no-default-features", "--features", "candle,ndarray"];

/// The packages that have the feature `candle`, which is off by default.
const WITH_CANDLE: [&str; 8] = [
    "--package",
    "tcx-library-examples",
    "--package",
    "tcx-library-tests",
    "--package",
    "tcx-ui-tests",
    "--features",
    "tcx-library-examples/candle,tcx-library-tests/candle,tcx-ui-tests/candle",
];

/// Tests and lints what `test` leaves out.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    toolchain::require_compiler()?;
    eprintln!("{}", libtorch::provide(workspace)?);
    let run = |what: &str, words: &[&[&str]]| {
        let words = words.concat();
        let mut command = cargo(words[0]);
        command.current_dir(workspace.root()).args(&words[1..]);
        process::run(&mut command, what)
    };
    let lints: &[&str] = &["--all-targets", "--", "-D", "warnings"];
    run("`cargo clippy` without libtorch", &[&["clippy"], &WITHOUT_LIBTORCH, lints])?;
    run("`cargo test` without libtorch", &[&["test"], &WITHOUT_LIBTORCH, &["--lib"]])?;
    let example = ["--package", "tcx-library-examples", "--features", "candle", "--example", "candle"];
    run("the example with candle, without libtorch", &[&["run"], &example])?;
    run("`cargo clippy` with candle", &[&["clippy"], &WITH_CANDLE, lints])?;
    run("`cargo test` with candle", &[&["test"], &WITH_CANDLE])?;
    let documents = ["--package", "tcx-cache", "--features", "candle,ndarray", "--doc", "candle"];
    run("the documentation tests of candle", &[&["test"], &documents])
}
