//! Closures that fail for some ids: the values of the others are stored.

use tcx_store::Keys;

use super::Table;
use crate::cache::gather::Found;
use crate::ids::name::text;
use crate::ids::{Id, KeyKind};
use crate::module::missing::Missing;
use crate::module::partial::Partial;
use crate::output::CacheableOutput;
use crate::{Error, ErrorKind, LoadFailure, Result};

/// What fails if a closure does.
const COMPUTING: &str = "computing the values";

/// What a table has for some ids.
pub(super) enum Looked<T> {
    Found(T),
    /// Rows of which some are missing, or are not valid.
    Missing(Box<Found>),
}

impl<T: CacheableOutput, K: KeyKind> Table<T, K> {
    /// As [`get_or_compute`](Self::get_or_compute), with a closure that may fail for some ids: for requests to a server. It returns the
    /// values of the others, in the order of their ids, and a [`Partial`] with those that failed. These values are stored. The
    /// error names the ids that failed ([`Error::load_failures`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// use tcx::Partial;
    ///
    /// fn ask(prompt: &str) -> Result<String, String> {
    ///     if prompt.ends_with('?') { Ok("Yes.".to_owned()) } else { Err("this is no question".to_owned()) }
    /// }
    ///
    /// let answers = cache.table::<Vec<String>>("answers_v1")?;
    /// let prompts = ["Does it rain?", "It rains.", "Is it late?"];
    /// let asked = answers.get_or_compute_partial(&prompts, |missing| {
    ///     Ok(Partial::split(missing.ids().map(|prompt| ask(prompt))))
    /// });
    /// let error = asked.unwrap_err();
    /// assert_eq!(error.load_failures()[0].id(), "It rains.");
    /// assert_eq!(answers.coverage(&prompts)?.missing(), [1]); // the others are stored
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The values and the `Partial` are a pair, and no error, so that `?` cannot return what another step of the closure could
    /// load: an error of the closure stores nothing.
    ///
    /// # Errors
    ///
    /// As [`get_or_compute`](Self::get_or_compute). Also returns an error if an id failed.
    ///
    /// # Panics
    ///
    /// If `compute` panics. The table is as it was.
    pub fn get_or_compute_partial<I: Id<K>>(
        &self,
        ids: &[I],
        compute: impl FnOnce(Missing<'_, I>) -> Result<(T, Partial)>,
    ) -> Result<T> {
        match self.look(ids)? {
            Looked::Found(values) => Ok(values),
            Looked::Missing(rows) => self.values(self.compute_missing(ids, *rows, compute)?),
        }
    }

    /// The values of these ids, if all are stored and valid.
    pub(super) fn look<I: Id<K>>(&self, ids: &[I]) -> Result<Looked<T>> {
        let rows = self.gather.look_up(&self.rows, self.pack(ids)?)?;
        if rows.missing() > 0 {
            return Ok(Looked::Missing(rows.into()));
        }
        let values = self.read(rows)?;
        if self.check(&values).is_ok() {
            return Ok(Looked::Found(values));
        }
        let rows: Found = self.rows.peek(self.pack(ids)?)?.into();
        Ok(Looked::Missing(rows.into()))
    }

    /// The error that names the ids that failed, if any did.
    pub(super) fn failed(&self, partial: Partial, keys: &Keys, positions: &[usize]) -> Option<Error> {
        let remedy = "the others were computed: repair these, or leave them out";
        let mut error = partial.into_error()?;
        let invalid = |failure: &LoadFailure| {
            let own = failure.error().downcast_ref::<Error>();
            own.is_some_and(|error| error.kind() == ErrorKind::InvalidOutput)
        };
        if error.load_failures().iter().all(invalid) {
            error = error.of_kind(ErrorKind::InvalidOutput);
        }
        Some(self.naming(error, COMPUTING, keys, positions, remedy))
    }

    /// The closure has returned an error, with which it stores nothing. If the error has inputs that a step of the closure could
    /// load, they are no values.
    pub(super) fn uncomputed(&self, error: Error, keys: &Keys, positions: &[usize]) -> Error {
        if !error.is_partial() {
            return error.returned_by(|| format!("{COMPUTING} failed")).in_module(&self.id);
        }
        let remedy = "the others were not stored: return them by `get_or_compute_partial`, which stores them";
        self.naming(error, COMPUTING, keys, positions, remedy)
    }

    pub(super) fn naming(
        &self,
        error: Error,
        action: &str,
        keys: &Keys,
        positions: &[usize],
        remedy: &str,
    ) -> Error {
        let id = |place: usize| positions.get(place).map_or_else(String::new, |&at| text(keys, at));
        error.naming(action, positions.len(), id, remedy).in_module(&self.id)
    }
}
