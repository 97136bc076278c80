//! `tcx`: looks into the cache directories of tcx, checks and tends them, while programs use them and after.
//!
//! What each command does, its JSON and the exit codes stand in `docs/cli.md`.

#![expect(clippy::struct_field_names, reason = "fields are named as they are in JSON")]

mod add;
mod args;
mod ask;
mod cache;
mod columns;
mod commands;
mod failure;
mod human;
mod ids;
mod nested;
mod npy;
mod output;
mod progress;
mod report;
mod specs;
mod values;

use std::process::ExitCode;

use clap::Parser;

use args::Args;
use output::Output;

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
