//! `cargo xtask cluster`: the programs of `examples/cluster` with the launchers and clusters that they are for, on this machine.

use std::process::{Command, Stdio};

use crate::failure::Result;
use crate::process;
use crate::provision::{model, pytorch, slurm};
use crate::tasks::python::{self, Tests};
use crate::tasks::skipped::LeftOut;
use crate::tasks::suite::ALL;
use crate::workspace::{Workspace, cargo};

const FILES: &[&str] = &[
    "tests/test_cluster.py",
    "tests/test_slurm.py",
    "tests/test_dask.py",
    "tests/test_ray.py",
    "tests/test_ray_cluster.py",
];
const SPARK: Tests = Tests { files: &["tests/test_spark.py"], required: "spark", variables: &[] };

/// Runs them, with the library in the form that is built for tests. Ends with a list of what this machine cannot have.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut left_out = LeftOut::new(workspace, "cluster")?;
    let done = run_all(workspace, &mut left_out);
    eprintln!("\n{}", left_out.list()?);
    done
}

fn run_all(workspace: &Workspace, left_out: &mut LeftOut) -> Result<()> {
    let place = python::built(workspace)?;
    let mut build = cargo("build");
    build.current_dir(workspace.root()).args(ALL).args(["--example", "cluster"]);
    process::run(&mut build, "`cargo build` of the example `cluster`")?;
    let mut build = cargo("build");
    build.current_dir(workspace.root()).args(ALL).args(["--bin", "tcx"]);
    process::run(&mut build, "`cargo build` of the command `tcx`")?;
    model::provide(workspace)?;
    // Where it is missing, its tests report that.
    let required = if slurm::provide().is_none() { "ray,dask,slurm" } else { "ray,dask" };
    let python = pytorch::provide_cluster(workspace)?;
    let mut tests =
        python::tests(workspace, &python, Some(&place), &Tests { files: FILES, required, variables: &[] });
    tests.env("TCX_CLUSTER", python::target(workspace).join("debug/examples/cluster"));
    left_out.watch(&mut tests);
    process::run(&mut tests, "`pytest` of the programs of examples/cluster")?;
    spark(workspace, left_out, &place)
}

/// Spark is a large download, and needs Java.
fn spark(workspace: &Workspace, left_out: &mut LeftOut, place: &std::path::Path) -> Result<()> {
    let has_java = Command::new("java").arg("-version").stderr(Stdio::null()).status();
    let provided = match has_java {
        Ok(status) if status.success() => {
            pytorch::provide_spark(workspace).map_err(|failure| failure.to_string())
        }
        _ => Err("there is no Java, which Spark needs: install 17 or newer".to_owned()),
    };
    match provided {
        Ok(python) => process::run(
            &mut python::tests(workspace, &python, Some(place), &SPARK),
            "`pytest` of the program of examples/cluster for Spark",
        ),
        Err(why) => left_out.leave_out("spark", &why),
    }
}

/// Becomes the measurement of processes that share work.
pub(crate) fn claims(workspace: &Workspace, counts: &[String]) -> Result<std::process::ExitCode> {
    let mut run = cargo("run");
    run.current_dir(workspace.root()).args([
        "--release",
        "--package",
        "tcx-remote-tests",
        "--bin",
        "tcx-claims",
    ]);
    process::hand_over(run.arg("--").args(counts))
}
