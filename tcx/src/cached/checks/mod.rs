//! The checks that a module is what it promises: deterministic, and the same for a sample whatever else is in the batch.
//!
//! The first batches are looked at closely: two of their samples are computed alone. After that, a small random part of all
//! that is computed is computed again ([`Recheck`]), which finds what shows seldom. A module that failed a check is not
//! asked again through the same handle, since the same check may pass by chance. Batches are checked one after the other, in any
//! order, however many of them are computed at once.

pub(crate) mod chance;
pub(crate) mod compare;
pub(crate) mod finite;
pub(crate) mod passed;
pub(crate) mod tipped;

use std::sync::atomic::{AtomicU64, Ordering};

use tcx_store::Column;

use crate::Result;
use crate::cached::checks::chance::Chance;
use crate::cached::checks::compare::{Broken, Tolerance};
use crate::cached::checks::passed::Level;
use crate::cached::checks::tipped::Tipped;

/// How many samples a standing check computes together: much cheaper for each than one alone, and far fewer than a batch.
const TOGETHER: usize = 8;

/// The part of the computed samples that is computed again, and how many were.
#[derive(Debug, Default)]
pub(crate) struct Recheck {
    fraction: f64,
    rows: AtomicU64,
}

impl Recheck {
    pub(crate) fn new(fraction: f64) -> Self {
        Self { fraction, rows: AtomicU64::new(0) }
    }

    /// The samples that were computed again.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    fn count(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

/// A batch that was computed, and the means to compute it or some of its samples again.
pub(crate) trait Computed {
    /// The number of samples.
    fn rows(&self) -> usize;

    /// Computes the same batch again.
    fn again(&self) -> Result<Vec<Column>>;

    /// Computes the samples at these positions in a batch of their own.
    fn some(&self, positions: &[usize]) -> Result<Vec<Column>>;

    /// How the samples at these positions differ in what was computed first and in `other`, the columns of
    /// [`some`](Self::some) of them, if they differ by more than is tolerated.
    fn difference(&self, positions: &[usize], other: &[Column], tolerance: Tolerance) -> Option<Broken>;

    /// How many of the samples at these positions are not the same in `other`, in whole numbers, texts, bytes and presence.
    fn tipped(&self, positions: &[usize], other: &[Column]) -> Tipped;

    /// How two computations of the samples at these positions differ by more than the last bits.
    fn between(&self, positions: &[usize], one: &[Column], other: &[Column]) -> Option<Broken>;
}

/// Which samples gave alone what they gave in their batch: the last one shows sums along the batch, and padding of batches that
/// are sorted by length, longest first; another one shows what the last one hides.
#[derive(Debug, Default)]
struct Alone {
    last: bool,
    other: bool,
}

/// What a module has shown of itself so far.
#[derive(Debug)]
pub(crate) struct Checks {
    /// A sample was computed twice and gave the same.
    deterministic: bool,
    alone: Alone,
    /// Outputs differ between batches by more than the last bits and less than what is tolerated there: other kernels.
    is_sensitive: bool,
    /// The samples that were compared since the last verdict on whole numbers, texts and the like.
    tipped: Tipped,
    chance: Chance,
}

impl Checks {
    pub(crate) fn new() -> Self {
        Self {
            deterministic: false,
            alone: Alone::default(),
            is_sensitive: false,
            tipped: Tipped::default(),
            chance: Chance::new(),
        }
    }

    /// What was shown so far.
    pub(crate) fn shown(&self) -> Level {
        let independent = self.alone.last && self.alone.other && !self.tipped.is_suspect();
        match (self.deterministic, independent) {
            (true, true) => Level::Independent,
            (true, false) => Level::Deterministic,
            (false, _) => Level::Nothing,
        }
    }

    /// Takes for shown what an earlier process has recorded.
    pub(crate) fn trust(&mut self, recorded: Level) {
        self.deterministic |= recorded >= Level::Deterministic;
        self.alone.last |= recorded >= Level::Independent;
        self.alone.other |= recorded >= Level::Independent;
    }

    /// Looks at a batch that was computed; with `recheck`, perhaps at some of its samples again. Returns the promise that the module
    /// breaks.
    ///
    /// # Errors
    ///
    /// Returns the errors of the module.
    pub(crate) fn look_at(
        &mut self,
        batch: &impl Computed,
        recheck: Option<&Recheck>,
    ) -> Result<Option<Broken>> {
        let mut broken = self.first_samples(batch)?;
        if broken.is_none() {
            broken = self.more_samples(batch)?;
        }
        if let (None, Some(recheck)) = (&broken, recheck) {
            broken = self.standing(batch, recheck)?;
        }
        Ok(broken)
    }

    /// Where a sample was not the same in whole numbers, texts or the like, computes more samples alone: a few of them change in
    /// any module, most of them only in one that depends on the batch.
    fn more_samples(&mut self, batch: &impl Computed) -> Result<Option<Broken>> {
        if batch.rows() < 2 || !self.tipped.is_suspect() {
            return Ok(None);
        }
        for row in self.chance.some(TOGETHER, batch.rows()) {
            let alone = batch.some(&[row])?;
            if let Some(broken) = self.tally(batch.tipped(&[row], &alone)) {
                return Ok(Some(broken));
            }
            if !self.tipped.is_suspect() {
                break;
            }
        }
        Ok(None)
    }

    /// Adds samples to those that were compared with another batch. Once they are enough, the verdict, and the next ones start from zero.
    fn tally(&mut self, tipped: Tipped) -> Option<Broken> {
        self.tipped.add(tipped);
        if self.tipped.compared() < TOGETHER { None } else { std::mem::take(&mut self.tipped).most() }
    }

    /// Computes samples alone, until one has shown that the module is deterministic and two have given what they gave in their
    /// batch. As long as outputs are the same to the last bits, one computation of a sample shows both.
    fn first_samples(&mut self, batch: &impl Computed) -> Result<Option<Broken>> {
        let (rows, is_first) = (batch.rows(), !self.deterministic);
        let several = rows > 1;
        if is_first || several && !self.alone.last {
            if let Some(broken) = self.alone(batch, rows - 1)? {
                return Ok(Some(broken));
            }
            (self.deterministic, self.alone.last) = (true, several);
            if is_first && self.is_sensitive {
                // It took two computations. The other sample is one of the next batch.
                return Ok(None);
            }
        }
        if several && !self.alone.other {
            let other = self.chance.below(rows - 1);
            if let Some(broken) = self.alone(batch, other)? {
                return Ok(Some(broken));
            }
            self.alone.other = true;
        }
        Ok(None)
    }

    /// Computes one sample alone, and a second time if it is not what it was in the batch to the last bits.
    fn alone(&mut self, batch: &impl Computed, row: usize) -> Result<Option<Broken>> {
        let alone = batch.some(&[row])?;
        // A batch of one sample is the same batch.
        let tipped = if batch.rows() > 1 { self.tally(batch.tipped(&[row], &alone)) } else { None };
        if tipped.is_none() && batch.difference(&[row], &alone, Tolerance::Repeated).is_none() {
            return Ok(None);
        }
        let depends = batch.difference(&[row], &alone, Tolerance::Rebatched).or(tipped);
        if self.deterministic && self.is_sensitive && depends.is_none() {
            return Ok(None);
        }
        let again = batch.some(&[row])?;
        let broken = batch.between(&[row], &alone, &again).or(depends);
        self.is_sensitive |= broken.is_none();
        Ok(broken)
    }

    /// Now and then computes some samples again, chosen at random and in another order. Each sample is chosen with the
    /// probability that was asked for.
    fn standing(&mut self, batch: &impl Computed, recheck: &Recheck) -> Result<Option<Broken>> {
        let rows = batch.rows();
        let due = recheck.fraction * rows as f64;
        let count = TOGETHER.max(due.ceil() as usize).min(rows);
        if count == 0 || !self.chance.happens(due / count as f64) {
            return Ok(None);
        }
        // A difference between batches says little where they always differ: then the whole batch is computed, as seldom as
        // makes the same number of samples.
        if self.is_sensitive && self.chance.happens(count as f64 / rows as f64) {
            recheck.count(rows);
            return whole(batch);
        }
        let positions = self.chance.some(count, rows);
        recheck.count(count);
        self.part(batch, &positions)
    }

    /// Computes these samples again, in a batch of their own.
    fn part(&mut self, batch: &impl Computed, positions: &[usize]) -> Result<Option<Broken>> {
        let some = batch.some(positions)?;
        let tipped = self.tally(batch.tipped(positions, &some));
        if tipped.is_none() && batch.difference(positions, &some, Tolerance::Repeated).is_none() {
            return Ok(None);
        }
        let depends = batch.difference(positions, &some, Tolerance::Rebatched).or(tipped);
        if self.is_sensitive && depends.is_none() {
            return Ok(None);
        }
        // It differs, and it takes two equal batches to know whether chance or the batch makes the difference.
        if let Some(random) = batch.between(positions, &some, &batch.some(positions)?) {
            return Ok(Some(random));
        }
        if let Some(random) = whole(batch)? {
            return Ok(Some(random));
        }
        self.is_sensitive |= depends.is_none();
        Ok(depends)
    }
}

/// Computes the same batch again.
fn whole(batch: &impl Computed) -> Result<Option<Broken>> {
    let all: Vec<usize> = (0..batch.rows()).collect();
    Ok(batch.difference(&all, &batch.again()?, Tolerance::Repeated))
}
