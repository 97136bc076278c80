//! `cargo xtask bench`: the programs that measure, in release mode.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::failure::Result;
use crate::process;
use crate::provision::{libtorch, pytorch, toolchain};
use crate::tasks::python;
use crate::workspace::{Workspace, cargo};

/// Measures reads, fills and epochs, with the rivals. `flag` is one of the program's own.
pub(crate) fn run(workspace: &Workspace, flag: Option<&str>) -> Result<ExitCode> {
    toolchain::require_compiler()?;
    eprintln!("{}", libtorch::provide(workspace)?);
    for (package, what) in [
        ("tcx-cli", "building the command `tcx`, which is measured"),
        ("tcx-engine-benches", "building `index`"),
    ] {
        let mut build = cargo("build");
        build.args(["--release", "--package", package, "--manifest-path"]);
        process::run(build.arg(workspace.root().join("Cargo.toml")), what)?;
    }
    let mut bench = cargo("run");
    bench.args(["--release", "--package", "tcx-benches", "--features", "full", "--manifest-path"]);
    bench.arg(workspace.root().join("Cargo.toml")).arg("--").args(flag);
    // As with other stores, what cannot be provided is not measured.
    match pytorch::provide_recipes(workspace).and_then(|python| Ok((python, python::package(workspace)?))) {
        Ok((python, package)) => {
            bench.env("TCX_BENCH_PYTHON", python).env("TCX_BENCH_PACKAGE", package);
        }
        Err(failure) => eprintln!("without the Python package: {failure}"),
    }
    process::hand_over(&mut bench)
}

/// Measures a cache in an object store, which is a test server. It needs no libtorch.
pub(crate) fn remote(workspace: &Workspace) -> Result<ExitCode> {
    let mut remote = cargo("run");
    remote.args(["--release", "--package", "tcx-engine-benches", "--bin", "remote", "--manifest-path"]);
    process::hand_over(remote.arg(workspace.root().join("Cargo.toml")))
}

/// Measures a cache in each of the folders, in the user's folder. It needs no libtorch.
pub(crate) fn disks(workspace: &Workspace, folders: &[OsString]) -> Result<ExitCode> {
    let mut disks = cargo("run");
    disks.args(["--release", "--package", "tcx-engine-benches", "--bin", "disks", "--manifest-path"]);
    disks.arg(workspace.root().join("Cargo.toml")).arg("--").args(folders);
    process::hand_over(&mut disks)
}
