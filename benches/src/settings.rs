//! The settings of a run.

use std::path::PathBuf;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The settings of a phase.
pub(crate) struct Settings {
    /// Fewer rows and shorter rounds.
    pub(crate) quick: bool,
    /// The folder for the data of all phases.
    pub(crate) dir: PathBuf,
}

impl Settings {
    /// `rows`, or half of them in a quick run.
    pub(crate) fn rows(&self, rows: usize) -> usize {
        if self.quick { rows / 2 } else { rows }
    }
}
