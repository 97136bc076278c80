//! `cargo xtask ballista`: a cluster of Ballista on this machine queries a cache. It is no part of `test`: Ballista takes a quarter of an
//! hour to build.

use crate::failure::Result;
use crate::process;
use crate::provision::toolchain;
use crate::workspace::{Workspace, cargo};

/// Builds the example, and runs its test: a scheduler and two executors, each a process of its own.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    toolchain::require_compiler()?;
    let call = |subcommand| {
        let mut call = cargo(subcommand);
        call.arg("--locked")
            .arg("--manifest-path")
            .arg(workspace.root().join("examples/ballista/Cargo.toml"));
        call.arg("--target-dir").arg(workspace.root().join("target/ballista"));
        call
    };
    process::run(&mut call("test"), "`cargo test` of examples/ballista")?;
    let mut lints = call("clippy");
    lints.args(["--all-targets", "--", "-D", "warnings"]);
    process::run(&mut lints, "`cargo clippy` of examples/ballista")
}
