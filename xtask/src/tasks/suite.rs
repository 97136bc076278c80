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

/// These build and pass without a libtorch.
const WITHOUT_LIBTORCH: [&str; 6] =
    ["tcx-store", "tcx-cli", "tcx-derive", "tcx-engine-tests", "tcx-stress", "tcx-test-skips"];

/// The examples that need neither arguments nor a model.
const WITHOUT_ARGUMENTS: [&str; 14] = [
    "quickstart",
    "readme",
    "guide",
    "structured",
    "kfold",
    "shared_backbone",
    "progressive",
    "views",
    "chain",
    "lazy",
    "budget",
    "dataset",
    "ddp",
    "async_service",
];

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
    let result = run_steps(&mut steps(workspace), &mut left_out);
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
    let lints = ["--workspace", "--all-targets", "--", "-D", "warnings"];
    let mut documentation = cargo("doc");
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    let mut package = cargo("package");
    packages::pack(&mut package);
    let mut steps = vec![
        Step::new("formatting", cargo("fmt"), &["--all", "--check"]),
        Step::new("lints", cargo("clippy"), &lints),
        Step::new("documentation", documentation, &["--workspace", "--no-deps"]),
        Step::new(
            "tests without libtorch",
            without_libtorch(cargo("test")),
            &[&packages("--package")[..], &["--features", "tcx-store/metrics"]].concat(),
        ),
        Step::new(
            "tests with libtorch",
            cargo("test"),
            &[&["--workspace"], &packages("--exclude")[..]].concat(),
        ),
        Step::new("packages, each built from what is packed", package, &[]),
        Step::new(
            "instructions of the hot paths",
            cargo("run"),
            &["--quiet", "--package", "xtask", "counts"],
        ),
    ];
    for (name, arguments) in examples(workspace) {
        let mut run = cargo("run");
        run.args(["--package", "tcx-examples", "--example", name, "--"]).args(arguments);
        steps.push(Step::new(format!("example {name}"), run, &[]));
        if name == "minilm" {
            steps.push(command_on_minilm(workspace, cargo("test")));
        }
    }
    steps
}

/// The command `tcx` on the cache that the example has left. Built as for the other tests, so that nothing is built again.
fn command_on_minilm(workspace: &Workspace, test: Command) -> Step {
    let mut test = without_libtorch(test);
    test.env("TCX_MINILM_CACHE", workspace.root().join("target/xtask/minilm-cache/rows"));
    let only = [
        "--features",
        "tcx-store/metrics",
        "--test",
        "sessions",
        "--",
        "the_commands_work_on_the_cache_of_a_real",
    ];
    Step::new("the command on the cache of minilm", test, &[&packages("--package")[..], &only].concat())
}

/// Every example, with arguments with which it ends within seconds.
fn examples(workspace: &Workspace) -> Vec<(&'static str, Vec<OsString>)> {
    // Under `target/`, and made anew by `--fresh`: what an earlier run left must not make this one pass.
    let small = |cache: &str, limit: &str| -> [OsString; 5] {
        let cache = workspace.root().join("target/xtask").join(cache);
        ["--cache".into(), cache.into(), "--limit".into(), limit.into(), "--fresh".into()]
    };
    let model = ["--model".into(), workspace.model().into()];
    let minilm = model.into_iter().chain(small("minilm-cache", "40")).collect();
    let resnet50 = small("resnet50-cache", "8").into();
    let alone = WITHOUT_ARGUMENTS.map(|name| (name, Vec::new()));
    alone.into_iter().chain([("minilm", minilm), ("resnet50", resnet50)]).collect()
}

/// A folder that does not exist: should a dependency on tch creep in, building it fails at once.
fn without_libtorch(mut command: Command) -> Command {
    command.env_remove("LIBTORCH_USE_PYTORCH").env("LIBTORCH", "/no-libtorch-for-these-packages");
    command
}

fn packages(option: &'static str) -> Vec<&'static str> {
    WITHOUT_LIBTORCH.iter().flat_map(|package| [option, package]).collect()
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_is_tested_once() {
        let steps = steps(&Workspace::find().unwrap());
        let line = |name: &str| {
            let step = steps.iter().find(|step| step.name == name).unwrap();
            step.command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        for package in WITHOUT_LIBTORCH {
            assert!(line("tests without libtorch").contains(&format!("--package {package}")));
            assert!(line("tests with libtorch").contains(&format!("--exclude {package}")));
        }
    }

    #[test]
    fn every_example_is_run() {
        let workspace = Workspace::find().unwrap();
        let manifest = std::fs::read_to_string(workspace.root().join("examples/Cargo.toml")).unwrap();
        let names =
            manifest.split("[[example]]\nname = \"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let mut names: Vec<&str> = names.collect();
        let mut run: Vec<&str> = examples(&workspace).into_iter().map(|(name, _)| name).collect();
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
