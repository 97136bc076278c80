//! `cargo xtask remote`: the trial of several machines on one store, for minutes.

use std::process::ExitCode;

use crate::failure::Result;
use crate::process;
use crate::workspace::{Workspace, cargo};

/// The trial in `tcx-remote/tests/trial`, which reads how many seconds it takes.
const TRIAL: &str = "machines_that_fill_one_module_for_minutes_find_no_wrong_row_and_lose_none";

/// Becomes the trial, for this number of minutes.
pub(crate) fn run(workspace: &Workspace, minutes: u64) -> Result<ExitCode> {
    let mut trial = cargo("test");
    trial.current_dir(workspace.root()).args(["--package", "tcx-remote", "--test", "trial"]);
    trial.args(["--", "--exact", TRIAL, "--ignored", "--nocapture"]);
    process::hand_over(trial.env("TCX_TRIAL_SECONDS", minutes.saturating_mul(60).to_string()))
}
