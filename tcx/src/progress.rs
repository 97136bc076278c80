//! A bar for people who wait.

use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "{prefix} {wide_bar} {human_pos}/{human_len}, {eta} left";

/// How far a long computation has come. Nothing is drawn unless stderr is a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// For so many samples of the module `id`.
    pub(crate) fn new(id: &'static str, samples: usize, is_shown: bool) -> Self {
        let bar = if is_shown { ProgressBar::new(samples as u64) } else { ProgressBar::hidden() };
        let bar = bar.with_prefix(id);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// So many more were computed.
    pub(crate) fn computed(&self, samples: usize) {
        self.0.inc(samples as u64);
    }

    /// So many were there: they say nothing of how long the others take.
    pub(crate) fn found(&self, samples: usize) {
        self.0.inc(samples as u64);
        self.0.reset_eta();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
