//! How far an epoch is: a bar on a terminal, a line every ten seconds elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};

/// The time between two lines where no bar is drawn.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// The samples of an epoch that are done, and the time that is left.
pub(crate) struct Progress<'a> {
    what: &'a str,
    bar: ProgressBar,
    /// When the last line was printed, where lines take the place of the bar.
    last_line: Option<Instant>,
}

impl<'a> Progress<'a> {
    /// Of `count` samples; `what` names them.
    pub(crate) fn of(count: u64, what: &'a str) -> Self {
        let style = format!("{{wide_bar}} {{human_pos}} of {{human_len}} {what}, {{eta}} left");
        let style = ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar());
        let last_line = (!std::io::stderr().is_terminal()).then(Instant::now);
        Self { what, bar: ProgressBar::new(count).with_style(style), last_line }
    }

    /// Some more samples are done.
    pub(crate) fn add(&mut self, count: u64) {
        self.bar.inc(count);
        if let Some(last) = self.last_line.as_mut().filter(|last| last.elapsed() >= BETWEEN_LINES) {
            *last = Instant::now();
            eprintln!("  {}", line(&self.bar, self.what));
        }
    }

    /// The epoch has ended.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn line(bar: &ProgressBar, what: &str) -> String {
    let (done, all) = (HumanCount(bar.position()), HumanCount(bar.length().unwrap_or_default()));
    format!("{done} of {all} {what}, about {:#} left", HumanDuration(bar.eta()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_samples_that_are_done_and_the_time_that_is_left() {
        let bar = ProgressBar::hidden();
        bar.set_length(5548);
        bar.inc(1280);
        let line = line(&bar, "texts");
        assert!(line.starts_with("1,280 of 5,548 texts, about "), "{line}");
        assert!(line.ends_with(" left"), "{line}");
    }
}
