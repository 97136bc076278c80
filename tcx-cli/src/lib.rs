//! The command `tcx`: inspects, verifies and maintains the cache directories of tcx. Programs may use a directory at the same time.
//!
//! It is a library so that the Python package has the command too. Its only function is [`run`]; what the command prints, its
//! arguments and its exit codes are the interface, and `docs/cli.md` documents them.

#![expect(clippy::struct_field_names, reason = "fields are named as they are in JSON")]

mod args;
mod cache;
mod commands;
mod console;
mod failure;
mod formats;
mod report;
mod text;

use std::ffi::OsString;
use std::io::Write;

use clap::Parser;

use args::Args;
use console::output::Output;

/// Runs the command with these arguments, the name of the program first, and returns its exit code. It reads and writes the standard
/// streams of the process.
///
/// ```
/// assert_eq!(tcx_cli::run(["tcx", "--version"].map(Into::into)), 0);
/// assert_eq!(tcx_cli::run(["tcx", "ls", "no such directory"].map(Into::into)), 3);
/// ```
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let code = match Args::try_parse_from(args) {
        Ok(args) => execute(args),
        Err(error) => {
            // A closed stream does not change the exit code.
            let _ = error.print();
            u8::try_from(error.exit_code()).unwrap_or(u8::MAX)
        }
    };
    // Within another program, nothing else writes what is left of the last line. A reader that is gone is no failure.
    let _ = std::io::stdout().flush();
    code
}

fn execute(args: Args) -> u8 {
    let output = Output::new(args.global.json, args.global.color);
    match commands::run(args.command, &output) {
        Ok(verdict) => verdict as u8,
        Err(failure) => {
            output.fail(&failure);
            failure.code as u8
        }
    }
}
