//! `cargo xtask`: provides libtorch, the model and Python for this workspace, and runs its two commands,
//! `demo` and `test`.
//!
//! Messages go to stderr; stdout is for `env`, whose output a shell evaluates.

mod cli;
mod failure;
mod process;
mod provision;
mod tasks;
mod workspace;

use std::process::ExitCode;

use cli::Command;
use failure::Result;
use provision::{libtorch, model, onnxruntime, shell, toolchain};
use tasks::{
    backends, ballista, bench, cluster, compile, counts, demo, foreign, packages, python, recipes, remote,
    simulate, stress, suite,
};
use workspace::Workspace;

/// The usual exit code for wrong arguments.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1).collect();
    let command = match cli::parse(arguments) {
        Ok(command) => command,
        Err(message) => {
            eprintln!("error: {message}\n\n`cargo xtask --help` lists the commands");
            return ExitCode::from(WRONG_USAGE);
        }
    };
    match run(command) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    match command {
        Command::Help => print!("{}", cli::USAGE),
        Command::Setup { model, onnxruntime } => setup(&workspace, model, onnxruntime)?,
        Command::Env => {
            print!(
                "{}{}",
                shell::exports(&libtorch::provide(&workspace)?),
                shell::library(&workspace.onnxruntime())
            );
        }
        Command::Demo { arguments } => return demo::run(&workspace, &arguments),
        Command::Bench { flag } => return bench::run(&workspace, flag),
        Command::BenchDisks { folders } => return bench::disks(&workspace, &folders),
        Command::Counts => counts::check(&workspace)?,
        Command::Stress { arguments } => return stress::run(&workspace, &arguments),
        Command::Simulate { seeds, first, is_remote } => {
            return simulate::run(&workspace, seeds, first, is_remote);
        }
        Command::BenchCompile => compile::bench(&workspace)?,
        Command::BenchRemote => return bench::remote(&workspace),
        Command::Foreign => foreign::run(&workspace)?,
        Command::Backends => backends::run(&workspace)?,
        Command::Ballista => ballista::run(&workspace)?,
        Command::Recipes => recipes::run(&workspace)?,
        Command::Remote { minutes } => return remote::run(&workspace, minutes),
        Command::Package => packages::run(&workspace)?,
        Command::Python { is_short: true } => python::short(&workspace)?,
        Command::Python { is_short: false } => python::run(&workspace)?,
        Command::Cluster { claims: None } => cluster::run(&workspace)?,
        Command::Cluster { claims: Some(counts) } => return cluster::claims(&workspace, &counts),
        Command::Test => suite::run(&workspace)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn setup(workspace: &Workspace, with_model: bool, with_onnxruntime: bool) -> Result<()> {
    toolchain::require_compiler()?;
    let libtorch = libtorch::provide(workspace)?;
    eprintln!("{libtorch}");
    if with_model {
        eprintln!("model: {}", model::provide(workspace)?.display());
    }
    if with_onnxruntime {
        eprintln!("ONNX Runtime: {}", onnxruntime::provide(workspace)?.display());
    }
    Ok(())
}
