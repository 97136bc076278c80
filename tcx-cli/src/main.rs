//! `tcx`: inspects, verifies and maintains the cache directories of tcx. Programs may use a directory at the same time.
//!
//! `docs/cli.md` documents each command, its JSON and the exit codes.

#![expect(clippy::struct_field_names, reason = "fields are named as they are in JSON")]

mod args;
mod cache;
mod commands;
mod console;
mod failure;
mod formats;
mod report;
mod text;

use std::process::ExitCode;

use clap::Parser;

use args::Args;
use console::output::Output;

fn main() -> ExitCode {
    let args = Args::parse();
    let output = Output::new(args.global.json, args.global.color);
    match commands::run(args.command, &output) {
        Ok(verdict) => verdict.into(),
        Err(failure) => {
            output.fail(&failure);
            failure.code.into()
        }
    }
}
