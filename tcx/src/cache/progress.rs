//! Progress of long computations: events of `tracing`, and what a person at a terminal sees. Nothing is drawn unless stderr is
//! a terminal.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};

use crate::cache::alone::Alone;

const TEMPLATE: &str = "{prefix} {wide_bar} {human_pos}/{human_len}{msg}";
const COMPUTING: &str = "{spinner} {wide_msg}";

/// A computation that is shorter than this reports no progress.
const REPORTED_AFTER: Duration = Duration::from_secs(2);
/// The time between two events.
const REPORTED_EVERY: Duration = Duration::from_secs(10);
/// An epoch that computes nothing for so long has been through what was missing.
const OVER_AFTER: Duration = Duration::from_secs(3);

/// What a person at a terminal sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shown {
    Nothing,
    /// The bars of `warm`, which its caller waits for. A library prints nothing else unless it is asked to.
    #[default]
    Bars,
    Everything,
}

impl Shown {
    /// Whether trouble is written to stderr if no subscriber of `tracing` is set up.
    pub(crate) fn has_notices(self) -> bool {
        self != Self::Nothing
    }

    pub(crate) fn has_bars(self) -> bool {
        self != Self::Nothing
    }

    /// Whether an epoch has a line of progress, and a module its line when the cache is closed.
    pub(crate) fn has_lines(self) -> bool {
        self == Self::Everything
    }
}

/// When an event is due: after the first seconds, then every few.
#[derive(Debug)]
struct Events {
    began: Instant,
    last: Cell<Option<Instant>>,
}

impl Events {
    fn new(now: Instant) -> Self {
        Self { began: now, last: Cell::new(None) }
    }

    /// How long it has taken by `now`.
    fn took(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Whether to report at `now`; the next event is due some time later.
    fn is_due(&self, now: Instant) -> bool {
        let is_due = match self.last.get() {
            None => self.took(now) >= REPORTED_AFTER,
            Some(last) => now.saturating_duration_since(last) >= REPORTED_EVERY,
        };
        if is_due {
            self.last.set(Some(now));
        }
        is_due
    }
}

/// How far a long computation has come.
pub(crate) struct Bar {
    id: &'static str,
    drawn: ProgressBar,
    events: Events,
    computed: Cell<usize>,
}

impl Bar {
    /// For `samples` samples of the module `id`.
    pub(crate) fn new(id: &'static str, samples: usize, shown: Shown) -> Self {
        let bar = if shown.has_bars() { ProgressBar::new(samples as u64) } else { ProgressBar::hidden() };
        let bar = bar.with_prefix(id);
        bar.set_length(samples as u64);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { id, drawn: bar, events: Events::new(Instant::now()), computed: Cell::new(0) }
    }

    /// `samples` more were computed.
    pub(crate) fn computed(&self, samples: usize) {
        let now = Instant::now();
        self.computed.set(self.computed.get() + samples);
        self.drawn.inc(samples as u64);
        let left = self.drawn.length().unwrap_or_default().saturating_sub(self.drawn.position());
        self.drawn.set_message(pace(self.computed.get(), self.events.took(now), left));
        if self.events.is_due(now) {
            let (done, samples) = (self.drawn.position(), self.drawn.length().unwrap_or_default());
            let (all, id) = (HumanCount(samples), self.id);
            tracing::info!(module = id, done, samples, "{id}: {} of {all} samples", HumanCount(done));
        }
    }

    /// `samples` were found: they do not count in the estimate of the time left.
    pub(crate) fn found(&self, samples: usize) {
        self.drawn.inc(samples as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.drawn.finish_and_clear();
    }
}

/// How fast samples are computed, and how long those that are left take, if none of them is found.
fn pace(computed: usize, took: Duration, left: u64) -> String {
    let rate = computed as f64 / took.as_secs_f64().max(1e-3);
    let rest = Duration::try_from_secs_f64(left as f64 / rate).unwrap_or(Duration::MAX);
    let digits = usize::from(rate < 10.);
    format!(", {rate:.digits$}/s, {:#} left", HumanDuration(rest))
}

/// What a module computes batch by batch, as in a first epoch, where the number of samples is not known.
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
    events: Events,
    last: Instant,
    computed: u64,
    /// Once it takes long, if lines are shown.
    spinner: Option<ProgressBar>,
}

impl Computing {
    /// The module `id` has computed this many samples by `now`; `hits` returns how many it has found, all in all.
    pub(crate) fn computed(
        &self,
        id: &str,
        samples: usize,
        shown: Shown,
        hits: impl FnOnce() -> u64,
        now: Instant,
    ) {
        if self.bars.load(Ordering::Relaxed) > 0 {
            return;
        }
        let Ok(mut epoch) = self.epoch.lock() else { return };
        let begin = || Epoch { events: Events::new(now), last: now, computed: 0, spinner: None };
        let epoch = epoch.get_or_insert_with(begin);
        self.is_going_on.store(true, Ordering::Relaxed);
        (epoch.last, epoch.computed) = (now, epoch.computed + samples as u64);
        let (took, computed) = (epoch.events.took(now), epoch.computed);
        let (is_drawn, is_due) = (shown.has_lines() && took >= REPORTED_AFTER, epoch.events.is_due(now));
        if !is_drawn && !is_due {
            return;
        }
        let hits = hits();
        let line = line(id, computed, hits, took);
        if is_due {
            tracing::info!(module = id, computed, hits, "{line}");
        }
        if is_drawn {
            let spinner = epoch.spinner.get_or_insert_with(spinner);
            spinner.set_message(line);
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

fn line(id: &str, computed: u64, hits: u64, took: Duration) -> String {
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
        let compute = |seconds| {
            computing.computed("m", 10, Shown::Everything, || 5, start + Duration::from_secs(seconds));
        };
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
        computing.computed("m", 10, Shown::Everything, || 5, start);
        computing.computed("m", 10, Shown::Everything, || 5, start + REPORTED_AFTER);
        let bar = computing.behind_bar();
        assert!(!is_shown(&computing));
        computing.computed("m", 10, Shown::Everything, || 5, start + REPORTED_AFTER * 2);
        assert!(computing.epoch.lock().unwrap().is_none());
        drop(bar);
        computing.computed("m", 10, Shown::Everything, || 5, start + REPORTED_AFTER * 3);
        assert!(computing.epoch.lock().unwrap().is_some());
    }

    #[test]
    fn no_line_is_drawn_unless_lines_are_asked_for() {
        for shown in [Shown::Nothing, Shown::default()] {
            let (computing, start) = (Computing::default(), Instant::now());
            computing.computed("m", 10, shown, || 5, start);
            computing.computed("m", 10, shown, || 5, start + REPORTED_AFTER);
            assert!(!is_shown(&computing), "{shown:?}");
        }
        assert!(Shown::default().has_bars() && !Shown::Nothing.has_bars());
    }

    #[test]
    fn an_event_is_due_after_two_seconds_and_then_every_ten() {
        let start = Instant::now();
        let events = Events::new(start);
        let due =
            [0, 1, 2, 3, 11, 12, 13, 21, 22].map(|second| events.is_due(start + Duration::from_secs(second)));
        assert_eq!(due, [false, false, true, false, false, true, false, false, true]);
    }

    #[test]
    fn the_time_left_is_that_of_samples_computed_so_far() {
        let second = Duration::from_secs(1);
        assert_eq!(pace(50, second, 500), ", 50/s, 10s left");
        assert_eq!(pace(3, second * 2, 9), ", 1.5/s, 6s left");
        assert!(pace(0, second, 9).starts_with(", 0.0/s, "));
    }

    #[test]
    fn what_is_shown_is_one_line() {
        let line = line("resnet50_v1", 1888, 48_112, Duration::from_secs(4));
        assert_eq!(line, "resnet50_v1: 1,888 computed, 48,112 hits, 472/s");
    }
}
