//! `cargo xtask backends`: the tensor libraries besides tch. It is no part of `test`, which builds ndarray only: candle takes
//! minutes to build, and ONNX Runtime is a download.

use crate::failure::Result;
use crate::process;
use crate::provision::{libtorch, onnxruntime, toolchain};
use crate::workspace::{Workspace, cargo};

/// The library without libtorch.
const WITHOUT_LIBTORCH: [&str; 5] =
    ["--package", "tcx-cache", "--no-default-features", "--features", "candle,ndarray,ort"];

/// The packages that have the features `candle` and `ort`, which are off by default.
const WITH_ALL: [&str; 8] = [
    "--package",
    "tcx-library-examples",
    "--package",
    "tcx-library-tests",
    "--package",
    "tcx-ui-tests",
    "--features",
    "tcx-library-examples/candle,tcx-library-tests/candle,tcx-ui-tests/candle,tcx-library-examples/ort,tcx-library-tests/ort",
];

/// Tests and lints what `test` leaves out.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    toolchain::require_compiler()?;
    eprintln!("{}", libtorch::provide(workspace)?);
    let library = onnxruntime::provide(workspace)?;
    eprintln!("ONNX Runtime: {}", library.display());
    let run = |what: &str, words: &[&[&str]]| {
        let words = words.concat();
        let mut command = cargo(words[0]);
        command.current_dir(workspace.root()).args(&words[1..]).env(onnxruntime::VARIABLE, &library);
        process::run(&mut command, what)
    };
    let lints: &[&str] = &["--all-targets", "--", "-D", "warnings"];
    run("`cargo clippy` without libtorch", &[&["clippy"], &WITHOUT_LIBTORCH, lints])?;
    run("`cargo test` without libtorch", &[&["test"], &WITHOUT_LIBTORCH, &["--lib"]])?;
    let examples = ["--package", "tcx-library-examples", "--features", "candle,ort", "--example"];
    run("the example with candle, without libtorch", &[&["run"], &examples, &["candle"]])?;
    run("the example with ONNX Runtime, without libtorch", &[&["run"], &examples, &["onnx"]])?;
    run("`cargo clippy` with all libraries", &[&["clippy"], &WITH_ALL, lints])?;
    run("`cargo test` with all libraries", &[&["test"], &WITH_ALL])?;
    let documents = ["--package", "tcx-cache", "--features", "candle,ndarray,ort", "--doc"];
    run("the documentation tests of candle", &[&["test"], &documents, &["candle"]])?;
    run("the documentation tests of ONNX Runtime", &[&["test"], &documents, &["onnx"]])
}
