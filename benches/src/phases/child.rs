//! Runs each phase in a process of its own, which returns its figures as JSON.

use std::process::{Command, Stdio};

use crate::report::Figures;
use crate::{Result, Settings};

/// The first argument of a phase's process.
pub(crate) const WORD: &str = "phase";

/// A part of the bench.
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Settings, &mut Figures) -> Result<()>,
}

/// Runs a phase in this process.
pub(crate) fn run(phases: &[Phase], name: &str, settings: &Settings) -> Result<()> {
    let phase = phases.iter().find(|phase| phase.name == name).ok_or("no such phase")?;
    let mut figures = Figures::default();
    (phase.run)(settings, &mut figures)?;
    println!("{}", figures.to_json());
    Ok(())
}

/// Runs a phase in a process of its own.
pub(crate) fn start(name: &str, settings: &Settings) -> Result<Figures> {
    let length = if settings.quick { "quick" } else { "whole" };
    let mut child = Command::new(std::env::current_exe()?);
    child.args([WORD, name, length]).arg(&settings.dir).stderr(Stdio::inherit());
    let output = child.output()?;
    if !output.status.success() {
        return Err(format!("{name}: {}", output.status).into());
    }
    Figures::from_json(&String::from_utf8(output.stdout)?)
}
