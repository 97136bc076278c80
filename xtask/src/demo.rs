//! `cargo xtask demo` and `cargo xtask bench`: programs of the workspace with everything they need.

use std::ffi::{OsStr, OsString};
use std::process::{Command, ExitCode};

use crate::failure::Result;
use crate::workspace::{Workspace, cargo};
use crate::{libtorch, model, process, toolchain};

/// Runs the example where the user stands, so that relative paths among the arguments mean what they say.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode> {
    toolchain::require_compiler()?;
    eprintln!("{}", libtorch::provide(workspace)?);
    let mut example = cargo("run");
    example.args(["--release", "--package", "tcx-examples", "--example", "minilm", "--manifest-path"]);
    example.arg(workspace.root().join("Cargo.toml")).arg("--");
    if !names_model(arguments) {
        example.arg("--model").arg(model::provide(workspace)?);
    }
    example.args(arguments);
    hand_over(&mut example)
}

/// Measures, in release mode.
pub(crate) fn bench(workspace: &Workspace) -> Result<ExitCode> {
    toolchain::require_compiler()?;
    eprintln!("{}", libtorch::provide(workspace)?);
    let mut bench = cargo("run");
    bench.args(["--release", "--package", "tcx-benches", "--manifest-path"]);
    bench.arg(workspace.root().join("Cargo.toml"));
    hand_over(&mut bench)
}

/// Becomes the example: it alone then gets Ctrl-C and ends in its own way, and its exit code is this one's.
#[cfg(unix)]
fn hand_over(example: &mut Command) -> Result<ExitCode> {
    use std::os::unix::process::CommandExt as _;
    let error = example.exec();
    Err(process::cannot_start(example, &error))
}

#[cfg(not(unix))]
fn hand_over(example: &mut Command) -> Result<ExitCode> {
    let status = example.status().map_err(|error| process::cannot_start(example, &error))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn names_model(arguments: &[OsString]) -> bool {
    let options = arguments.iter().take_while(|argument| *argument != "--").map(OsString::as_os_str);
    options.map(OsStr::as_encoded_bytes).any(|bytes| bytes == b"--model" || bytes.starts_with(b"--model="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> bool {
        names_model(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_model_of_the_user_s_is_noticed() {
        assert!(names("--limit 3 --model dir"));
        assert!(names("--model=dir"));
        assert!(!names("--limit 3"));
        assert!(!names("--models dir"));
        assert!(!names("-- --model"));
    }
}
