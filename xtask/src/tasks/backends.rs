//! `cargo xtask backends`: the tensor libraries besides tch, and the demo with each of them. `test` checks that they compile; what is here
//! takes minutes to build.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Result;
use crate::process;
use crate::provision::{libtorch, model, onnxruntime, toolchain};
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

/// The demo.
const MINILM: [&str; 2] = ["--package", "tcx-minilm"];

/// The profile of `cargo xtask demo`: without optimisation, candle takes minutes for a few texts.
const OPTIMISED: [&str; 2] = ["--profile", "demo"];

/// The demo without libtorch, by the library that computes its network.
const WITH_CANDLE: [&str; 3] = ["--no-default-features", "--features", "candle"];
const WITH_ORT: [&str; 3] = ["--no-default-features", "--features", "ort"];

const LINTS: [&str; 4] = ["--all-targets", "--", "-D", "warnings"];

/// Tests and lints what `test` leaves out.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    toolchain::require_compiler()?;
    eprintln!("{}", libtorch::provide(workspace)?);
    eprintln!("model: {}", model::provide(workspace)?.display());
    let library = onnxruntime::provide(workspace)?;
    eprintln!("ONNX Runtime: {}", library.display());
    let checkout = Checkout { workspace, library };
    checkout.run("`cargo clippy` without libtorch", &[&["clippy"], &WITHOUT_LIBTORCH, &LINTS])?;
    checkout.run("`cargo test` without libtorch", &[&["test"], &WITHOUT_LIBTORCH, &["--lib"]])?;
    let examples = ["--package", "tcx-library-examples", "--features", "candle,ort", "--example"];
    checkout.run("the example with candle, without libtorch", &[&["run"], &examples, &["candle"]])?;
    checkout.run("the example with ONNX Runtime, without libtorch", &[&["run"], &examples, &["onnx"]])?;
    checkout.run("`cargo clippy` with all libraries", &[&["clippy"], &WITH_ALL, &LINTS])?;
    checkout.run("`cargo test` with all libraries", &[&["test"], &WITH_ALL])?;
    let documents = ["--package", "tcx-cache", "--features", "candle,ndarray,ort", "--doc"];
    checkout.run("the documentation tests of candle", &[&["test"], &documents, &["candle"]])?;
    checkout.run("the documentation tests of ONNX Runtime", &[&["test"], &documents, &["onnx"]])?;
    checkout.minilm()
}

/// Where commands run.
struct Checkout<'a> {
    workspace: &'a Workspace,
    /// The file of ONNX Runtime.
    library: PathBuf,
}

impl Checkout<'_> {
    /// A real network in each library. `test` has tested it with tch.
    fn minilm(&self) -> Result<()> {
        let all = ["--features", "candle,ort"];
        for features in [&WITH_CANDLE[..], &WITH_ORT, &all] {
            let what = format!("`cargo clippy` of minilm, {}", features.join(" "));
            self.run(&what, &[&["clippy"], &MINILM, features, &LINTS])?;
        }
        let cache = self.workspace.root().join("target/xtask/minilm-of-tch");
        let epoch = ["--", "--epoch", "--fresh", "--limit", "40", "--cache"];
        let mut fill = self.cargo(&[&["run"], &MINILM, &OPTIMISED, &epoch]);
        process::run(fill.arg(&cache).arg("docs"), "minilm with tch")?;
        let mut test = self.cargo(&[&["test"], &MINILM, &OPTIMISED, &WITH_CANDLE]);
        process::run(test.env("TCX_MINILM_OF_TCH", cache), "minilm with candle, on the cache of tch")?;
        self.run("minilm with ONNX Runtime", &[&["test"], &MINILM, &OPTIMISED, &WITH_ORT])?;
        let compared = ["--bin", "minilm", "the_libraries_agree"];
        self.run("minilm with all libraries", &[&["test"], &MINILM, &OPTIMISED, &all, &compared])
    }

    fn run(&self, what: &str, words: &[&[&str]]) -> Result<()> {
        process::run(&mut self.cargo(words), what)
    }

    fn cargo(&self, words: &[&[&str]]) -> Command {
        let words = words.concat();
        let mut command = cargo(words[0]);
        command
            .current_dir(self.workspace.root())
            .args(&words[1..])
            .env(onnxruntime::VARIABLE, &self.library);
        command
    }
}
