//! `cargo xtask remote`: the trial of several machines on one store, for minutes, and the tests of stores on servers of others.

mod servers;

use std::process::ExitCode;

use crate::failure::Result;
use crate::process;
use crate::tasks::skipped::LeftOut;
use crate::workspace::{Workspace, cargo};

/// The trial in `tcx-remote/tests/trial`, which reads how many seconds it takes.
const TRIAL: &str = "machines_that_fill_one_module_for_minutes_find_no_wrong_row_and_lose_none";

/// Runs the trial for this number of minutes, then the tests on each available server.
pub(crate) fn run(workspace: &Workspace, minutes: u64) -> Result<ExitCode> {
    let mut left_out = LeftOut::new(workspace, "remote")?;
    let servers = servers::run_tests(workspace, &mut left_out);
    eprintln!("\n{}\n", left_out.list()?);
    servers?;
    let mut trial = cargo("test");
    trial.current_dir(workspace.root()).args(["--package", "tcx-remote", "--test", "trial"]);
    trial.args(["--", "--exact", TRIAL, "--ignored", "--nocapture"]);
    process::hand_over(trial.env("TCX_TRIAL_SECONDS", minutes.saturating_mul(60).to_string()))
}
