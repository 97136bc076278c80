//! Checking values with the function of the caller: new ones before they are stored, found ones before they are returned.

use std::collections::BTreeSet;

use tcx_store::{Column, Keys, Lookup};

use super::Table;
use crate::cache::claims::Entered;
use crate::cache::gather::Found;
use crate::ids::KeyKind;
use crate::module::partial::Partial;
use crate::output::CacheableOutput;
use crate::{Error, ErrorKind, Result};

/// So often found values are looked up to check them, if some are not found again, or if others are there then.
const LOOKED_AT: usize = 5;

/// Checks values before they are stored, and again when they are found.
pub(super) type Validate<T> = Box<dyn Fn(&T) -> Result<()> + Send + Sync>;

impl<T: CacheableOutput, K: KeyKind> Table<T, K> {
    pub(super) fn check(&self, values: &T) -> Result<()> {
        self.verdict(values, "`validate` rejects the values").map_err(|error| error.in_module(&self.id))
    }

    /// Why the values are rejected; `what` says that they are, if their function does not.
    fn verdict(&self, values: &T, what: &str) -> Result<()> {
        let Some(validate) = &self.validate else { return Ok(()) };
        // The lock of the table may be held, as by its closure.
        let _computing = Entered::computing();
        validate(values).map_err(|error| error.returned_by(|| what).of_kind(ErrorKind::InvalidOutput))
    }

    /// Adds the new values that are rejected to `rejected`, by their places among `keys`.
    ///
    /// # Errors
    ///
    /// Returns an error if the values are rejected together, and none of them alone.
    pub(super) fn check_new(&self, keys: &Keys, columns: &[Column], rejected: &mut Partial) -> Result<()> {
        if self.validate.is_none() {
            return Ok(());
        }
        // As they are going to be found: stored as f16, a value may be another one than the caller's.
        let all: Vec<usize> = (0..keys.len()).collect();
        let Err(together) = self.check(&self.new_values(keys, columns, &all)?) else { return Ok(()) };
        let mut is_named = false;
        for place in all {
            let value = self.new_values(keys, columns, &[place])?;
            if let Err(error) = self.verdict(&value, "`validate` rejects the value") {
                rejected.fail(place, error);
                is_named = true;
            }
        }
        if is_named { Ok(()) } else { Err(together) }
    }

    /// Of values that the caller has passed, all or none are stored.
    ///
    /// # Errors
    ///
    /// Returns an error that names the ids of rejected values.
    pub(super) fn check_passed(&self, keys: &Keys, columns: &[Column]) -> Result<()> {
        let mut rejected = Partial::new();
        self.check_new(keys, columns, &mut rejected)?;
        let remedy = "nothing was stored: correct these values, or leave them out";
        let positions: Vec<usize> = (0..keys.len()).collect();
        let error = rejected.into_error().map(|error| {
            let error = error.of_kind(ErrorKind::InvalidOutput);
            self.naming(error, "storing the values", keys, &positions, remedy)
        });
        error.map_or(Ok(()), Err)
    }

    /// Some of the values that are not stored yet.
    fn new_values(&self, keys: &Keys, columns: &[Column], places: &[usize]) -> Result<T> {
        let mut rows = self.rows.empty_lookup(keys.select(places));
        let new: Vec<usize> = (0..places.len()).collect();
        rows.complete(&new, select::<T>(columns, places))?;
        self.read(rows.into())
    }

    /// Found rows that are not valid become missing.
    ///
    /// # Errors
    ///
    /// Returns an error if rows cannot be read again.
    pub(super) fn reject_invalid(&self, rows: &mut Found) -> Result<()> {
        if self.validate.is_none() {
            return Ok(());
        }
        let mut judged = Ok(());
        for _ in 0..LOOKED_AT {
            // What is looked at has to be what is served in the end: another thread may have replaced a row that was found before.
            *rows = self.rows.peek(rows.keys().clone())?.into();
            judged = self.reject_found(rows);
            if judged.is_ok() {
                break;
            }
        }
        judged
    }

    /// As [`reject_invalid`](Self::reject_invalid), of a lookup that stays as it is: its found rows are not served.
    ///
    /// # Errors
    ///
    /// Returns an error if rows cannot be read again: what could not be looked at is not replaced.
    pub(super) fn reject_found(&self, rows: &mut Lookup) -> Result<()> {
        if self.validate.is_none() {
            return Ok(());
        }
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
        let is_rejected = self.rows.reject(rows, if invalid.is_empty() { &found } else { &invalid })?;
        if is_rejected {
            Ok(())
        } else {
            Err(self.not_judged("values were invalidated or replaced while they were checked"))
        }
    }

    fn not_judged(&self, what: &str) -> Error {
        Error::new(ErrorKind::Io, what).with_remedy("nothing was stored: try again").in_module(&self.id)
    }

    /// Whether the values of the rows at `positions`, which were found, are valid.
    ///
    /// # Errors
    ///
    /// Returns an error if one is not found again: a file may fail to be read for a moment, and another thread may have invalidated it.
    fn are_valid(&self, rows: &Lookup, positions: &[usize]) -> Result<bool> {
        let rows = self.rows.peek(rows.keys().select(positions))?;
        if rows.missing() > 0 {
            return Err(self.not_judged("values that were found cannot be read again to check them"));
        }
        Ok(self.check(&self.read(rows.into())?).is_ok())
    }
}

/// The rows of the columns of a `T` at `places`.
pub(super) fn select<T: CacheableOutput>(columns: &[Column], places: &[usize]) -> Vec<Column> {
    let leaves = T::COLUMN.leaves();
    columns.iter().zip(&leaves).map(|(column, leaf)| column.select(places, &leaf.kind)).collect()
}
