//! `tcx`: inspects, verifies and maintains the cache directories of tcx. Programs may use a directory at the same time.
//!
//! `docs/cli.md` documents each command, its JSON and the exit codes.

use std::process::ExitCode;

fn main() -> ExitCode {
    tcx_cli::run(std::env::args_os()).into()
}
