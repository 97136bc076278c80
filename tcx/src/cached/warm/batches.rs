//! The batches of a list of ids whose rows are missing, and computing them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tcx_store::Lookup;

use crate::Result;
use crate::cache::claims::{Claim, Claimant};
use crate::cache::mode::Rows;
use crate::cache::progress::Bar;
use crate::cache::stop::Stop;
use crate::cached::Cached;
use crate::cached::loading::Loads;
use crate::ids::Id;
use crate::module::extractor::CachedModule;

/// The number of ids that are looked up together: a list may be as long as a data set.
const TOGETHER: usize = 1 << 16;

/// The finished work that a killed process may lose, if flushing is fast.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// What is computed between two flushes takes at least this many times as long as the first: a flush reads all weights. The
/// writer writes by itself in between, after each `flush_interval`.
const FLUSH_SHARE: u32 = 100;

/// Samples of a list that are loaded and computed together.
pub(super) struct Batch {
    rows: Lookup,
    claim: Option<Claim>,
    /// Which of the rows are to be loaded, and where their ids are in the list.
    asked: Vec<usize>,
    pub(super) places: Vec<usize>,
    /// How many samples of the list it was made for.
    samples: usize,
}

/// What is missing of a list, batch by batch.
pub(super) struct Batches<'a, M, I> {
    cached: &'a Cached<M>,
    ids: &'a [I],
    view: u32,
    stop: &'a Stop,
    pub(super) stopped: bool,
    /// Where the part that is looked up together begins and ends in the list, its rows, and which of them were missing.
    start: usize,
    end: usize,
    part: Option<Lookup>,
    missing: VecDeque<usize>,
    /// Batches some of whose samples another request was loading.
    later: VecDeque<Vec<usize>>,
}

impl<'a, M: CachedModule, I: Id<M::Key>> Batches<'a, M, I> {
    pub(super) fn new(cached: &'a Cached<M>, ids: &'a [I], view: u32, stop: &'a Stop) -> Self {
        let (missing, later) = (VecDeque::new(), VecDeque::new());
        Self { cached, ids, view, stop, stopped: false, start: 0, end: 0, part: None, missing, later }
    }

    /// The next batch to load. It waits for other requests only if `is_idle`: no batch of its own keeps them waiting.
    pub(super) fn next(&mut self, progress: &Progress<'_>, is_idle: bool) -> Result<Option<Batch>> {
        loop {
            if self.missing.is_empty() && self.later.is_empty() && !(is_idle && self.next_part(progress)?) {
                return Ok(None);
            }
            if self.stop.is_stopped() {
                self.stopped = true;
                return Ok(None);
            }
            let count = self.cached.batch_size.min(self.missing.len());
            let positions: Vec<usize> = self.missing.drain(..count).collect();
            let batch = match self.later.front() {
                _ if count > 0 => self.claim(positions, false)?,
                Some(_) if !is_idle => return Ok(None),
                _ => {
                    let positions = self.later.pop_front().unwrap_or_default();
                    self.claim(positions, true)?
                }
            };
            match batch {
                Claimed::Own(batch) => return Ok(Some(*batch)),
                Claimed::Found(samples) => progress.found(samples),
                Claimed::Later(positions) => self.later.push_back(positions),
            }
        }
    }

    /// Looks up the next part of the list.
    fn next_part(&mut self, progress: &Progress<'_>) -> Result<bool> {
        while self.end < self.ids.len() {
            let some = &self.ids[self.end..self.ids.len().min(self.end + TOGETHER)];
            let part = self.cached.rows().peek(self.cached.pack(some, self.view)?)?;
            let missing = part.distinct_missing_positions();
            progress.found(some.len() - missing.len());
            (self.start, self.end) = (self.end, self.end + some.len());
            (self.missing, self.part) = (missing.into(), Some(part));
            if !self.missing.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Claims what is missing of these rows of the part. If another request has some of it, it is waited for, or they come later.
    fn claim(&self, positions: Vec<usize>, waits: bool) -> Result<Claimed> {
        let Some(part) = &self.part else { return Ok(Claimed::Found(positions.len())) };
        let mut rows = self.cached.rows().lookup(part.keys().select(&positions))?;
        let mut claimant = Claimant::blocking();
        loop {
            match self.cached.who_loads(&mut rows, &mut claimant)? {
                Loads::None => return Ok(Claimed::Found(positions.len())),
                Loads::Other(wait) if waits => claimant.wait(wait),
                Loads::Other(_) => return Ok(Claimed::Later(positions)),
                Loads::Own(claim) => {
                    let asked = rows.distinct_missing_positions();
                    let places = asked.iter().map(|&row| self.start + positions[row]).collect();
                    let samples = positions.len();
                    return Ok(Claimed::Own(Box::new(Batch { rows, claim, asked, places, samples })));
                }
            }
        }
    }
}

/// What came of claiming a batch.
enum Claimed {
    Own(Box<Batch>),
    /// This number of rows is stored by now.
    Found(usize),
    /// Another request loads some of these.
    Later(Vec<usize>),
}

/// What was done so far.
pub(super) struct Progress<'a> {
    /// Where the call stores its rows.
    store: &'a Rows,
    bar: Bar,
    pub(super) computed: usize,
    flushed: Instant,
    pause: Duration,
    /// How often it has flushed: everything that was computed before is durable.
    pub(super) flushes: usize,
    /// Whether a flush has failed. It may report once that rows are lost, so a later one that succeeds says nothing of them.
    pub(super) has_failed: bool,
}

impl<'a> Progress<'a> {
    pub(super) fn new(store: &'a Rows, bar: Bar) -> Self {
        let (flushed, pause) = (Instant::now(), FLUSH_EVERY);
        Self { store, bar, computed: 0, flushed, pause, flushes: 0, has_failed: false }
    }

    pub(super) fn found(&self, samples: usize) {
        self.bar.found(samples);
    }

    /// Computes a batch from its inputs, and flushes now and then.
    pub(super) fn compute<M: CachedModule>(
        &mut self,
        cached: &Cached<M>,
        batch: Batch,
        loaded: Result<M::Input>,
    ) -> Result<()> {
        let Batch { mut rows, claim, asked, samples, .. } = batch;
        let computed = cached.complete_loaded(self.store, &mut rows, &asked, loaded)?;
        drop(claim);
        self.computed += computed;
        self.bar.computed(samples);
        if self.is_flush_due() { self.flush(cached) } else { Ok(()) }
    }

    pub(super) fn is_flush_due(&self) -> bool {
        self.flushed.elapsed() >= self.pause
    }

    /// Makes durable what was computed.
    pub(super) fn flush<M: CachedModule>(&mut self, cached: &Cached<M>) -> Result<()> {
        let start = Instant::now();
        cached.shared().check_usable()?;
        self.store.flush().inspect_err(|_| self.has_failed = true)?;
        self.flushed = Instant::now();
        self.pause = FLUSH_EVERY.max((self.flushed - start).saturating_mul(FLUSH_SHARE));
        self.flushes += 1;
        Ok(())
    }
}
