//! Computing the missing values: one request at a time for each id, and no value that is not valid.

use std::collections::BTreeSet;
use std::time::Instant;

use tcx_store::Lookup;

use super::Table;
use crate::Result;
use crate::cache::claims::{Claim, Claimant, Claimed, Entered};
use crate::cache::gather::Found;
use crate::ids::{Id, KeyKind};
use crate::module::missing::Missing;
use crate::module::partial::Partial;
use crate::output::CacheableOutput;

impl<T: CacheableOutput, K: KeyKind> Table<T, K> {
    /// The values of these ids. If values are missing, or [`validate`](crate::TableBuilder::validate) rejects them, `compute`
    /// is called once with their ids, and returns their values in that order. The closure must not compute, put or replace values
    /// with this handle, because it would wait for itself.
    ///
    /// # Equal requests at once
    ///
    /// The first request that misses an id computes its value. Requests of other threads wait for it, through any handle of this
    /// table in the process. If its closure fails or panics, those that waited compute the value themselves.
    ///
    /// - Handles in the modes [`ReadOnly`](crate::Mode::ReadOnly) and [`Off`](crate::Mode::Off) store nothing, so they share
    ///   nothing. Each handle in mode [`Recompute`](crate::Mode::Recompute) computes each value once.
    /// - A request that the closure makes with another handle waits for no other request, and may compute a value again. tcx does
    ///   not recognise requests that the closure makes in other threads. If one of these waits for a value of its own closure, it
    ///   computes that value after a minute.
    /// - If two processes compute values of one id at once, either value is kept, as for [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// Returns an error if an id is malformed, if `compute` fails or uses this handle to compute or store values, if the values
    /// are not as declared or not valid, or if the cache is closed. Disk failures are not returned as errors: missing values
    /// are computed, unwritten ones are counted.
    ///
    /// # Panics
    ///
    /// If `compute` panics. The table is as it was.
    pub fn get_or_compute<I: Id<K>>(
        &self,
        ids: &[I],
        compute: impl FnOnce(Missing<'_, I>) -> Result<T>,
    ) -> Result<T> {
        self.get_or_compute_partial(ids, |missing| Ok((compute(missing)?, Partial::new())))
    }

    /// Computes the missing rows, and found rows that are not valid.
    pub(super) fn compute_missing<I>(
        &self,
        ids: &[I],
        mut rows: Found,
        compute: impl FnOnce(Missing<'_, I>) -> Result<(T, Partial)>,
    ) -> Result<Found> {
        // Before the lock is taken: a closure, which holds that of its handle, waits for no claim.
        let _claim = self.claim(&rows)?;
        let _alone = self.compute_alone()?;
        // Another request may have computed them meanwhile.
        self.rows.lookup_again(&mut rows)?;
        self.reject_invalid(&mut rows)?;
        let positions = rows.distinct_missing_positions();
        if !positions.is_empty() {
            let start = Instant::now();
            let computing = Entered::computing();
            let values = compute(Missing::new(ids, &positions));
            drop(computing);
            let (values, partial) =
                values.map_err(|error| self.uncomputed(error, rows.keys(), &positions))?;
            let (kept, failed) = self.failed(partial, rows.keys(), &positions);
            let kept = kept.as_deref().unwrap_or(&positions);
            if !kept.is_empty() {
                let columns = self.columns(&values, kept.len())?;
                self.rows.computed(kept.len(), start);
                self.rows.complete(&mut rows, kept, columns, None)?;
            }
            failed.map_or(Ok(()), Err)?;
        }
        Ok(rows)
    }

    /// Claims what may have to be computed, after the requests of other handles and threads that compute some of it. `None` if
    /// rows are not shared.
    fn claim(&self, rows: &Lookup) -> Result<Option<Claim>> {
        self.shared.check_process()?;
        let Some(claims) = self.rows.claims() else { return Ok(None) };
        let digest = |position| rows.keys().digest(position);
        // Which found values are rejected is not known before the lock is held.
        let samples: Vec<u64> = match self.validate {
            None => rows.all_missing_positions().map(digest).collect(),
            Some(_) => (0..rows.len()).map(digest).collect(),
        };
        let mut claimant = Claimant::blocking();
        loop {
            match claimant.claim(claims, &samples).map_err(|_| self.shared.forked())? {
                Claimed::All(claim) => return Ok(Some(claim)),
                Claimed::Held(wait) => claimant.wait(wait),
            }
        }
    }

    /// Found rows that are not valid become missing. The lock is held, so no other thread replaces one of them.
    fn reject_invalid(&self, rows: &mut Found) -> Result<()> {
        if self.validate.is_none() {
            return Ok(());
        }
        // What is looked at has to be what is served in the end: another thread may have replaced a row that was found before.
        *rows = self.rows.peek(rows.keys().clone())?.into();
        let missing: BTreeSet<usize> = rows.all_missing_positions().collect();
        let found: Vec<usize> = (0..rows.len()).filter(|position| !missing.contains(position)).collect();
        if found.is_empty() || self.are_valid(rows, &found)? {
            return Ok(());
        }
        let mut invalid = Vec::new();
        for &position in &found {
            if !self.are_valid(rows, &[position])? {
                invalid.push(position);
            }
        }
        // Values that are rejected together, and none of them alone, are all suspect.
        self.rows.reject(rows, if invalid.is_empty() { &found } else { &invalid });
        Ok(())
    }

    /// Whether the values of the rows at `positions` are valid.
    fn are_valid(&self, rows: &Lookup, positions: &[usize]) -> Result<bool> {
        let rows = self.rows.peek(rows.keys().select(positions))?;
        Ok(rows.missing() == 0 && self.check(&self.read(rows.into())?).is_ok())
    }
}
