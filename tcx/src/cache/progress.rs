//! What people are shown who wait. Nothing is drawn unless stderr is a terminal.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::cache::alone::Alone;

const TEMPLATE: &str = "{prefix} {wide_bar} {human_pos}/{human_len}, {eta} left";
const COMPUTING: &str = "{spinner} {wide_msg}";

/// Who computes for less than this is shown nothing.
const SHOWN_AFTER: Duration = Duration::from_secs(2);
/// An epoch that computes nothing for so long has been through what was missing.
const OVER_AFTER: Duration = Duration::from_secs(3);

/// How far a long computation has come.
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

/// What a module computes batch by batch, as in a first epoch: nobody knows how much there is to do.
#[derive(Default)]
pub(crate) struct Computing {
    /// Looked at in every batch.
    is_going_on: AtomicBool,
    /// Left alone in a forked process: a spinner has locks of its own, and the terminal is the parent's.
    epoch: Alone<Option<Epoch>>,
    /// How many bars are shown in its place.
    bars: AtomicUsize,
}

/// Batches with something missing, one soon after the other.
struct Epoch {
    began: Instant,
    last: Instant,
    computed: u64,
    /// Once it takes long.
    spinner: Option<ProgressBar>,
}

impl Computing {
    /// So many samples of the module `id` were computed, by `now`; `hits` tells how many were found, all in all.
    pub(crate) fn computed(&self, id: &str, samples: usize, hits: impl FnOnce() -> u64, now: Instant) {
        if self.bars.load(Ordering::Relaxed) > 0 {
            return;
        }
        let Ok(mut epoch) = self.epoch.lock() else { return };
        let epoch = epoch.get_or_insert_with(|| Epoch { began: now, last: now, computed: 0, spinner: None });
        self.is_going_on.store(true, Ordering::Relaxed);
        (epoch.last, epoch.computed) = (now, epoch.computed + samples as u64);
        let took = now.saturating_duration_since(epoch.began);
        if took >= SHOWN_AFTER {
            let spinner = epoch.spinner.get_or_insert_with(spinner);
            spinner.set_message(said(id, epoch.computed, hits(), took));
            spinner.tick();
        }
    }

    /// Nothing was missing in a batch.
    #[inline]
    pub(crate) fn found_all(&self) {
        if self.is_going_on.load(Ordering::Relaxed) {
            self.end_if_over(Instant::now());
        }
    }

    #[cold]
    fn end_if_over(&self, now: Instant) {
        let Ok(mut epoch) = self.epoch.lock() else { return };
        let is_over = |epoch: &Epoch| now.saturating_duration_since(epoch.last) >= OVER_AFTER;
        if epoch.as_ref().is_none_or(is_over) {
            self.is_going_on.store(false, Ordering::Relaxed);
            *epoch = None;
        }
    }

    /// A bar is shown in its place, as long as this is kept.
    pub(crate) fn behind_bar(&self) -> impl Drop + '_ {
        self.bars.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut epoch) = self.epoch.lock() {
            *epoch = None;
        }
        BehindBar(self)
    }
}

struct BehindBar<'a>(&'a Computing);

impl Drop for BehindBar<'_> {
    fn drop(&mut self) {
        self.0.bars.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}

fn spinner() -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template(COMPUTING) {
        spinner.set_style(style);
    }
    spinner
}

fn said(id: &str, computed: u64, hits: u64, took: Duration) -> String {
    let rate = computed as f64 / took.as_secs_f64().max(1e-3);
    format!("{id}: {} computed, {} hits, {rate:.0}/s", HumanCount(computed), HumanCount(hits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_shown(computing: &Computing) -> bool {
        let epoch = computing.epoch.lock().unwrap();
        epoch.as_ref().is_some_and(|epoch| epoch.spinner.is_some())
    }

    #[test]
    fn an_epoch_that_takes_long_is_shown_until_nothing_is_missing_for_a_while() {
        let (computing, start) = (Computing::default(), Instant::now());
        let compute = |seconds| computing.computed("m", 10, || 5, start + Duration::from_secs(seconds));
        compute(0);
        compute(1);
        assert!(!is_shown(&computing), "it may be over at once");
        compute(2);
        assert!(is_shown(&computing));
        computing.end_if_over(start + Duration::from_secs(4));
        assert!(is_shown(&computing), "the next batch may compute again");
        computing.end_if_over(start + Duration::from_secs(5));
        assert!(!is_shown(&computing) && !computing.is_going_on.load(Ordering::Relaxed));
        compute(9);
        assert!(!is_shown(&computing), "another one begins");
    }

    #[test]
    fn a_bar_takes_its_place() {
        let (computing, start) = (Computing::default(), Instant::now());
        computing.computed("m", 10, || 5, start);
        computing.computed("m", 10, || 5, start + SHOWN_AFTER);
        let bar = computing.behind_bar();
        assert!(!is_shown(&computing));
        computing.computed("m", 10, || 5, start + SHOWN_AFTER * 2);
        assert!(computing.epoch.lock().unwrap().is_none());
        drop(bar);
        computing.computed("m", 10, || 5, start + SHOWN_AFTER * 3);
        assert!(computing.epoch.lock().unwrap().is_some());
    }

    #[test]
    fn what_is_shown_is_one_line() {
        let said = said("resnet50_v1", 1888, 48_112, Duration::from_secs(4));
        assert_eq!(said, "resnet50_v1: 1,888 computed, 48,112 hits, 472/s");
    }
}
