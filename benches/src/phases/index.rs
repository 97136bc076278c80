//! Runs the program `index` of the engine, which measures what a cache of many keys takes of memory, and a flush of time.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::report::Figures;
use crate::{Result, Settings, machine};

/// Keys of the large cache, which is compared with one of 10,000.
const KEYS: usize = 10_000_000;
const FEWER_KEYS: usize = 1_000_000;

pub(crate) fn measure(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let index = std::env::current_exe()?.with_file_name("index");
    if !index.is_file() {
        figures.skip(
            "engine: there is no `index` beside this program: cargo build --release --package tcx-engine-benches",
        );
        return Ok(());
    }
    let keys = if settings.quick { FEWER_KEYS } else { KEYS };
    // Standard output is for the figures of this phase.
    let status = Command::new(index).arg(keys.to_string()).stdout(Stdio::from(std::io::stderr())).status()?;
    if !status.success() {
        return Err(format!("index: {status}").into());
    }
    let report: Value = serde_json::from_slice(&std::fs::read(machine::target()?.join("index.json"))?)?;
    for (name, value) in report["figures"].as_object().ok_or("index.json has no figures")? {
        figures.add(format!("engine.{name}"), value.as_f64().ok_or("a figure is no number")?);
    }
    Ok(())
}
