//! `cargo xtask stress`: the trials of `tests/stress`, and the fuzzer of `fuzz/` for one of them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::failure::{Failure, Result};
use crate::process;
use crate::provision::toolchain;
use crate::workspace::{Workspace, cargo};

/// Coverage for libFuzzer, on the stable compiler: no sanitizer. `fuzzing` opens tcx-store's door to its decoders.
const FUZZING: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Builds what is needed and becomes the trials.
pub(crate) fn run(workspace: &Workspace, arguments: &[OsString]) -> Result<ExitCode> {
    let mut stress = cargo("run");
    stress.args(["--release", "--package", "tcx-stress", "--manifest-path"]);
    stress.arg(workspace.root().join("Cargo.toml")).arg("--").args(arguments);
    if wants_fuzzing(arguments) {
        match fuzzer(workspace) {
            Ok(fuzzer) => drop(stress.arg("--fuzzer").arg(fuzzer)),
            // The other trials do not need it, and the report counts this one as skipped.
            Err(failure) => eprintln!("the trial `fuzz` is skipped: {failure}"),
        }
    }
    process::hand_over(&mut stress)
}

fn wants_fuzzing(arguments: &[OsString]) -> bool {
    let mut only =
        arguments.windows(2).filter(|words| words[0] == "--only").map(|words| &words[1]).peekable();
    only.peek().is_none() || only.any(|name| name == "fuzz")
}

fn fuzzer(workspace: &Workspace) -> Result<PathBuf> {
    toolchain::require_compiler()?;
    // With a target, the flags are not those of build scripts too.
    let (host, target) = (host()?, workspace.root().join("target/fuzz"));
    let mut build = cargo("build");
    build.args(["--release", "--target", &host, "--manifest-path"]);
    build.arg(workspace.root().join("fuzz/Cargo.toml")).arg("--target-dir").arg(&target);
    build.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", FUZZING);
    process::run(&mut build, "building the fuzzer")?;
    Ok(target.join(host).join("release/decode"))
}

/// The platform that the compiler runs on.
fn host() -> Result<String> {
    let version = process::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| Failure::new("`rustc -vV` printed no line `host: …`; check the Rust toolchain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzer_is_built_only_for_its_trial() {
        let wants =
            |line: &str| wants_fuzzing(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        assert!(
            wants("") && wants("--minutes 5") && wants("--only fuzz") && wants("--only keys --only fuzz")
        );
        assert!(!wants("--only keys") && !wants("--minutes 5 --only keys"));
    }
}
