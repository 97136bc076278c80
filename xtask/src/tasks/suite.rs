//! `cargo xtask test`: everything that must hold before a change is taken, in the order of quickest answer.

use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

use super::packages;
use super::skipped::LeftOut;
use crate::failure::{Failure, Result};
use crate::process;
use crate::provision::{libtorch, model, pyarrow, toolchain};
use crate::workspace::{self, Workspace};

/// The examples that need neither arguments nor a model.
const WITHOUT_ARGUMENTS: [&str; 20] = [
    "quickstart",
    "readme",
    "guide",
    "structured",
    "kfold",
    "shared_backbone",
    "progressive",
    "overlap",
    "views",
    "augment",
    "chain",
    "lazy",
    "budget",
    "dataset",
    "ddp",
    "llm",
    "async_service",
    "ndarray",
    "own_tensor",
    "cluster",
];

/// What the tests and examples are built with. All steps build the whole workspace with the same features, so that nothing is built
/// twice: Cargo chooses the features of shared dependencies by the packages that a command names.
const FEATURES: [&str; 2] = ["--features", "tcx-store/metrics,tcx-cli/remote"];
pub(super) const ALL: [&str; 3] = ["--workspace", FEATURES[0], FEATURES[1]];

/// The library and its examples for programs without libtorch: what needs it is in no other feature than `tch`. `cargo xtask backends` runs
/// them: to build candle takes minutes.
const WITHOUT_LIBTORCH: [&str; 5] =
    ["--package", "tcx-library-examples", "--examples", "--features", "candle,ort"];

/// The smallest library, in which a part that only others need is unused.
const NDARRAY_ALONE: [&str; 5] = ["--package", "tcx-cache", "--no-default-features", "--features", "ndarray"];

/// One check with a name.
struct Step {
    name: String,
    command: Command,
}

impl Step {
    fn new(name: impl Into<String>, mut command: Command, arguments: &[&str]) -> Self {
        command.args(arguments);
        Self { name: name.into(), command }
    }
}

/// Provides what the checks need and runs them, up to the first that fails.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    toolchain::require_compiler()?;
    eprintln!("{}", libtorch::provide(workspace)?);
    eprintln!("model: {}", model::provide(workspace)?.display());
    let mut left_out = LeftOut::new(workspace, "test")?;
    if let Some(why) = pyarrow::provide(workspace)? {
        left_out.add("pyarrow", &why)?;
    }
    let mut steps = steps(workspace);
    let result = run_steps(&mut steps, &mut left_out);
    eprintln!("\n{}", left_out.list()?);
    result
}

fn run_steps(steps: &mut [Step], left_out: &mut LeftOut) -> Result<()> {
    let total = steps.len();
    let mut times = Vec::new();
    for (index, step) in steps.iter_mut().enumerate() {
        eprintln!("\n==> {}/{total} {}", index + 1, step.name);
        let took = timed(step, left_out)?;
        eprintln!("    {} passed in {}", step.name, seconds(took));
        times.push(took);
    }
    eprintln!("\nall {total} steps passed in {}:", seconds(times.iter().sum()));
    for (step, took) in steps.iter().zip(&times) {
        eprintln!("{:>10}  {}", seconds(*took), step.name);
    }
    Ok(())
}

fn timed(step: &mut Step, left_out: &mut LeftOut) -> Result<Duration> {
    let start = Instant::now();
    left_out.watch(&mut step.command);
    let is_tests = step.command.get_args().next().is_some_and(|subcommand| subcommand == "test");
    let status = if is_tests { left_out.run_tests(&mut step.command) } else { step.command.status() };
    let status = status.map_err(|error| process::cannot_start(&step.command, &error))?;
    if status.success() {
        return Ok(start.elapsed());
    }
    Err(Failure::new(format!(
        "step `{}` failed after {} ({}); run it alone with: cargo {}",
        step.name,
        seconds(start.elapsed()),
        process::ended(status),
        step.command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    )))
}

fn steps(workspace: &Workspace) -> Vec<Step> {
    let cargo = |subcommand: &str| {
        let mut command = workspace::cargo(subcommand);
        command.current_dir(workspace.root());
        command
    };
    let lints = ["--workspace", "--all-targets", FEATURES[0], FEATURES[1], "--", "-D", "warnings"];
    let mut documentation = cargo("doc");
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    let mut package = cargo("package");
    packages::pack(&mut package);
    let mut steps = vec![
        Step::new("formatting", cargo("fmt"), &["--all", "--check"]),
        Step::new("packages", package, &["--no-verify", "--quiet"]),
        Step::new("lints", cargo("clippy"), &lints),
        Step::new("without libtorch", cargo("check"), &WITHOUT_LIBTORCH),
        Step::new(
            "ndarray alone",
            cargo("clippy"),
            &[&NDARRAY_ALONE[..], &["--", "-D", "warnings"]].concat(),
        ),
        Step::new("documentation", documentation, &["--workspace", "--no-deps"]),
        Step::new("tests", cargo("test"), &ALL),
        Step::new(
            "instructions of the hot paths",
            cargo("run"),
            &["--quiet", "--package", "xtask", "counts"],
        ),
    ];
    let short = ["--quiet", "--package", "xtask", "python", "--short"];
    steps.push(Step::new("the Python package", cargo("run"), &short));
    steps.push(command_on_minilm(workspace, cargo("test")));
    for (name, arguments) in examples(workspace) {
        let mut run = cargo("run");
        // Without `--package`, which would choose other features of what is shared, and build all of it again.
        run.args([FEATURES[0], FEATURES[1], "--example", name, "--"]).args(arguments);
        steps.push(Step::new(format!("example {name}"), run, &[]));
    }
    steps
}

/// The command `tcx` on the cache that the test of the example `minilm` has left.
fn command_on_minilm(workspace: &Workspace, mut test: Command) -> Step {
    test.env("TCX_MINILM_CACHE", workspace.root().join("target/xtask/minilm-cache/rows"));
    let only = ["--test", "sessions", "--", "the_commands_work_on_the_cache_of_a_real"];
    Step::new("the command on the cache of minilm", test, &[&ALL[..], &only].concat())
}

/// Every example but `minilm`, which has a test that runs it, with arguments with which it ends within seconds.
fn examples(workspace: &Workspace) -> Vec<(&'static str, Vec<OsString>)> {
    // Under `target/`, and emptied by `--fresh`: what an earlier run left must not make this one pass.
    let cache = workspace.root().join("target/xtask/resnet50-cache");
    let resnet50 = vec!["--cache".into(), cache.into(), "--limit".into(), "8".into(), "--fresh".into()];
    let alone = WITHOUT_ARGUMENTS.map(|name| (name, Vec::new()));
    alone.into_iter().chain([("resnet50", resnet50)]).collect()
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These build and pass without a libtorch.
    const WITHOUT_LIBTORCH: [&str; 12] = [
        "tcx-library-examples",
        "tcx-store",
        "tcx-cli",
        "tcx-derive",
        "tcx-python",
        "tcx-remote",
        "tcx-remote-tests",
        "tcx-sql",
        "tcx-engine-tests",
        "tcx-stress",
        "tcx-test-s3",
        "tcx-test-skips",
    ];

    #[test]
    fn packages_without_libtorch_depend_on_nothing_that_needs_it() {
        let workspace = Workspace::find().unwrap();
        let tree = |package: &str, features: &[&str]| {
            let mut tree = workspace::cargo("tree");
            tree.args(["--prefix", "none", "--edges", "normal,build,dev", "--package", package])
                .args(features);
            process::output(tree.current_dir(workspace.root())).unwrap()
        };
        let needs = |package: &str, features: &[&str]| {
            tree(package, features).lines().any(|line| line.starts_with("torch-sys "))
        };
        assert!(needs("tcx-cache", &[]));
        for package in WITHOUT_LIBTORCH {
            assert!(!needs(package, &[]), "{package} depends on torch-sys");
        }
        assert!(needs("tcx-minilm", &[]));
        for library in ["candle", "ort"] {
            let features = ["--no-default-features", "--features", library];
            assert!(!needs("tcx-minilm", &features), "the demo with {library} depends on torch-sys");
        }
    }

    #[test]
    fn every_example_is_run() {
        let workspace = Workspace::find().unwrap();
        let manifest = |path: &str| std::fs::read_to_string(workspace.root().join(path)).unwrap();
        let manifest = manifest("examples/Cargo.toml") + &manifest("examples/libraries/Cargo.toml");
        let names =
            manifest.split("[[example]]\nname = \"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let mut names: Vec<&str> = names.collect();
        let mut run: Vec<&str> = examples(&workspace).into_iter().map(|(name, _)| name).collect();
        // By `cargo xtask backends`.
        run.extend(["candle", "onnx"]);
        names.sort_unstable();
        run.sort_unstable();
        assert_eq!(names, run);
    }

    #[test]
    fn a_failed_step_is_named_with_the_command_to_repeat_it() {
        let mut step = Step::new("the check", Command::new("sh"), &["-c", "exit 4"]);
        let mut left_out = LeftOut::new(&Workspace::find().unwrap(), "failed-step").unwrap();
        let message = timed(&mut step, &mut left_out).unwrap_err().to_string();
        assert!(message.contains("`the check`") && message.contains("exit code 4"), "{message}");
        assert!(message.ends_with("cargo -c exit 4"), "{message}");
    }
}
