//! Measures Python stores, which a script fills from the same plain file and reads in the same order.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::read::in_turns;
use crate::data::rows::Batches;
use crate::data::workload::{BATCH, Workload, shuffled};
use crate::report::{Figures, median};
use crate::rivals::Ours;
use crate::{Result, Settings};

/// How much faster tcx is than each store that is installed.
pub(crate) fn measure<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let (dir, rows) = (settings.dir.join(W::NAME), W::rows(settings));
    write_order(&dir, rows)?;
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("rivals.py");
    let interpreter = std::env::var_os("TCX_PYTHON").unwrap_or_else(|| "python3".into());
    let mut python = Command::new(interpreter);
    python.arg(script).arg(&dir).args([rows, W::WIDTH, BATCH].map(|number| number.to_string()));
    let Ok(output) = python.stderr(Stdio::inherit()).output() else {
        figures.skip(format!("{}: Python's stores: no Python is installed", W::NAME));
        return Ok(());
    };
    if !output.status.success() {
        figures.skip(format!("{}: Python's stores: the script has failed", W::NAME));
        return Ok(());
    }
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let ours = seconds_per_round::<W>(&dir, rows)?;
    for (store, seconds) in found.as_object().ok_or("no object")? {
        match seconds.as_f64() {
            Some(seconds) => figures.add(format!("{}.random_read.vs_{store}", W::NAME), seconds / ours),
            None => figures.skip(format!("{}: {store}: {seconds}", W::NAME)),
        }
    }
    Ok(())
}

/// Writes the order of the rows for a script.
pub(super) fn write_order(dir: &Path, rows: usize) -> Result<()> {
    let order: Vec<u8> = shuffled(rows).iter().flat_map(|row| (*row as u64).to_le_bytes()).collect();
    Ok(std::fs::write(dir.join("order"), order)?)
}

/// The median time in which tcx reads all rows in shuffled batches.
pub(super) fn seconds_per_round<W: Workload>(dir: &Path, rows: usize) -> Result<f64> {
    let mut ours = Ours::<W>::new(dir)?;
    let batches = Batches::new(shuffled(rows));
    let times = in_turns(&mut [&mut ours], &batches)?;
    Ok(median(&times[0]))
}
