//! Measures the Python package with a script: `fetch` compared with Rust's and with other packages, and whole epochs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::python::{seconds_per_round, write_order};
use crate::data::workload::{BATCH, Workload};
use crate::report::Figures;
use crate::{Result, Settings};

/// The Python that has the other packages, and the folder of the installed wheel: `cargo xtask bench` provides both.
const PROVIDED: [&str; 2] = ["TCX_BENCH_PYTHON", "TCX_BENCH_PACKAGE"];

/// How much faster the package is than others, and what it costs in an epoch.
pub(crate) fn measure<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let [Some(interpreter), Some(package)] = PROVIDED.map(std::env::var_os) else {
        figures.skip("the Python package: `cargo xtask bench` has not provided it");
        return Ok(());
    };
    let (dir, rows) = (settings.dir.join(W::NAME), W::rows(settings));
    write_order(&dir, rows)?;
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python_package.py");
    let mut python = Command::new(interpreter);
    // The libtorch of this program is not that of the interpreter.
    python.env_remove("LD_LIBRARY_PATH").env("PYTHONPATH", package);
    python.arg(script).arg(&dir).args([rows, W::WIDTH, BATCH].map(|number| number.to_string()));
    let output = python.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err("the script that measures the Python package has failed".into());
    }
    let found: Value = serde_json::from_slice(&output.stdout)?;
    if let Some(seconds) = found["seconds"].as_f64() {
        figures.add("python.fetch.vs_rust", seconds_per_round::<W>(&dir, rows)? / seconds);
    }
    for (name, value) in found["figures"].as_object().ok_or("no figures")? {
        figures.add(format!("python.{name}"), value.as_f64().ok_or("a figure is no number")?);
    }
    for (name, why) in found["skipped"].as_object().ok_or("no reasons")? {
        figures.skip(format!("python: {name}: {why}"));
    }
    Ok(())
}
