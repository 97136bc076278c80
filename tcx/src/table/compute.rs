//! Computing the missing values: one request at a time for each id, and no value that is not valid.

use std::time::Instant;

use tcx_store::{Column, Keys, Lookup};

use super::Table;
use super::validate::select;
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
    /// are not as declared, or if the cache is closed. If `validate` rejects computed values, the error names their ids
    /// ([`Error::load_failures`](crate::Error::load_failures)), and the other values are stored. Disk failures are not returned as
    /// errors: missing values are computed, unwritten ones are counted.
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
        rows: Found,
        compute: impl FnOnce(Missing<'_, I>) -> Result<(T, Partial)>,
    ) -> Result<Found> {
        // Before the lock is taken: a closure, which holds that of its handle, waits for no claim.
        let _claim = self.claim(&rows)?;
        self.compute_claimed(ids, rows, compute)
    }

    /// As [`compute_missing`](Self::compute_missing), once the caller has claimed what may have to be computed.
    pub(super) fn compute_claimed<I>(
        &self,
        ids: &[I],
        mut rows: Found,
        compute: impl FnOnce(Missing<'_, I>) -> Result<(T, Partial)>,
    ) -> Result<Found> {
        let _alone = self.compute_alone()?;
        // Another request may have computed them meanwhile.
        self.rows.lookup_again(&mut rows)?;
        self.reject_invalid(&mut rows)?;
        let positions = rows.distinct_missing_positions();
        if !positions.is_empty() {
            let start = Instant::now();
            let computing = Entered::computing();
            let computed = compute(Missing::new(ids, &positions));
            drop(computing);
            let (values, mut partial) =
                computed.map_err(|error| self.uncomputed(error, rows.keys(), &positions))?;
            let (kept, columns) = self.valid(&values, &mut partial, rows.keys(), &positions)?;
            if !kept.is_empty() {
                self.rows.computed(kept.len(), start);
                self.rows.complete(&mut rows, &kept, columns, None)?;
            }
            self.failed(partial, rows.keys(), &positions).map_or(Ok(()), Err)?;
        }
        Ok(rows)
    }

    /// Claims what may have to be computed, after the requests of other handles and threads that compute some of it. `None` if
    /// rows are not shared.
    fn claim(&self, rows: &Lookup) -> Result<Option<Claim>> {
        let mut claimant = Claimant::blocking();
        let samples = self.to_claim(rows);
        loop {
            match self.try_claim(&mut claimant, &samples)? {
                None => return Ok(None),
                Some(Claimed::All(claim)) => return Ok(Some(claim)),
                Some(Claimed::Held(wait)) => claimant.wait(wait),
            }
        }
    }

    /// Claims these samples, unless there is a request to wait for first. `None` if rows are not shared.
    pub(super) fn try_claim(&self, claimant: &mut Claimant, samples: &[u64]) -> Result<Option<Claimed>> {
        self.shared.check_process()?;
        let Some(claims) = self.rows.claims() else { return Ok(None) };
        claimant.claim(claims, samples).map(Some).map_err(|_| self.shared.forked())
    }

    /// The samples that may have to be computed.
    pub(super) fn to_claim(&self, rows: &Lookup) -> Vec<u64> {
        let digest = |position| rows.keys().digest(position);
        // Which found values are rejected is not known before the lock is held.
        match self.validate {
            None => rows.all_missing_positions().map(digest).collect(),
            Some(_) => (0..rows.len()).map(digest).collect(),
        }
    }

    /// The values that were computed and are valid, with the positions of their ids. Those that are rejected become failures of
    /// `partial`.
    fn valid(
        &self,
        values: &T,
        partial: &mut Partial,
        keys: &Keys,
        asked: &[usize],
    ) -> Result<(Vec<usize>, Vec<Column>)> {
        let at = |places: &[usize]| places.iter().map(|&place| asked[place]).collect::<Vec<_>>();
        let places = partial.others(asked.len());
        if places.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let (positions, columns) = (at(&places), self.columns(values, places.len())?);
        let mut rejected = Partial::new();
        self.check_new(&keys.select(&positions), &columns, &mut rejected)?;
        let kept = rejected.others(places.len());
        if kept.len() == places.len() {
            return Ok((positions, columns));
        }
        partial.fail_at(rejected, &places);
        let positions = kept.iter().map(|&row| positions[row]).collect();
        Ok((positions, select::<T>(&columns, &kept)))
    }
}
