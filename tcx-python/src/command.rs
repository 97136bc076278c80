//! The command `tcx`, for the program that the wheel installs.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

/// The exit code of a program in Rust that panicked.
const PANICKED: u8 = 101;

/// Runs the command with these arguments, the name of the program first; its exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, args: Vec<OsString>) -> u8 {
    // An exception would end the program with 1, which says that the command has done its work. The panic has been printed.
    py.detach(|| catch_unwind(AssertUnwindSafe(|| tcx_cli::run(args))).unwrap_or(PANICKED))
}
