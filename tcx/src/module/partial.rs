//! Loaders that fail for some samples only: the others are computed and stored.

use std::collections::HashSet;
use std::error::Error as StdError;

use crate::module::batch::Batch;
use crate::{Error, Result};

/// Which samples a loader could not load. It returns the inputs of the others by [`finish`](Self::finish): tcx computes and
/// stores these, and returns an error that names the ids of those that failed ([`Error::load_failures`]).
///
/// ```
/// # use tcx::{Extractor, cached_module};
/// # #[cached_module(id = "partial_v1")]
/// # struct Words {}
/// # impl Extractor for Words {
/// #     type Input = Vec<String>;
/// #     type Output = Vec<i64>;
/// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
/// #         Ok(x.iter().map(|text| text.len() as i64).collect())
/// #     }
/// # }
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("a"), "one")?;
/// # let read = |id: &str| std::fs::read_to_string(dir.path().join(id));
/// use tcx::Partial;
///
/// # let words = tcx::Cache::open(dir.path().join("cache"))?.module(Words {})?;
/// let load = |missing: tcx::Missing<'_, &str>| Partial::collect(missing.str_ids().map(read));
/// let error = words.fetch(&["a", "gone", "lost"], load).unwrap_err();
/// let failed: Vec<&str> = error.load_failures().iter().map(|failure| failure.id()).collect();
/// assert_eq!(failed, ["gone", "lost"]);
/// assert_eq!(words.coverage(&["a", "gone", "lost"])?.missing(), [1, 2]); // `a` is stored
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The rows are computed from exactly what [`collect`](Self::collect) or [`finish`](Self::finish) was given. If a sample fails,
/// both return an error, and `?` skips what the loader does afterwards. So process the samples before:
///
/// ```
/// # fn read(id: &str) -> std::io::Result<String> { std::fs::read_to_string(id) }
/// # fn lower(missing: tcx::Missing<'_, &str>) -> tcx::Result<Vec<String>> {
/// // Not `tcx::Partial::collect(…)?` and then `to_lowercase`: if a sample fails, the others would be computed as they were read.
/// tcx::Partial::collect(missing.str_ids().map(|id| read(id).map(|text| text.to_lowercase())))
/// # }
/// ```
///
/// Only a loader may return such an error. `forward`, [`Keyed::ids`](crate::Keyed::ids), `validate` of a table and the closure that
/// builds a lazy module are asked for no samples that they could leave out: there, it is an error as any other.
///
/// A batch that is no `Vec` is made of the samples that could be loaded:
///
/// ```
/// # use tch::Tensor;
/// use tcx::{Missing, Partial};
///
/// fn load(missing: Missing<'_, String>) -> tcx::Result<Tensor> {
///     let (mut partial, mut images) = (Partial::new(), Vec::new());
///     for (place, path) in missing.ids().enumerate() {
///         match tch::vision::image::load(path) {
///             Ok(image) => images.push(image),
///             Err(error) => partial.fail(place, error),
///         }
///     }
///     partial.finish(Tensor::f_stack(&images, 0)?)
/// }
/// ```
#[derive(Debug, Default)]
#[must_use = "`finish` returns the inputs of the others"]
pub struct Partial {
    failed: Vec<(usize, Box<dyn StdError + Send + Sync>)>,
}

impl Partial {
    /// No sample has failed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The sample at `place` of those that were asked for (0 is the first of [`Missing::ids`](crate::Missing::ids)) could not be
    /// loaded.
    pub fn fail(&mut self, place: usize, error: impl Into<Box<dyn StdError + Send + Sync>>) {
        self.failed.push((place, error.into()));
    }

    /// The inputs of the samples that did not fail, in their order.
    ///
    /// # Errors
    ///
    /// Samples that failed: to be returned by the loader.
    pub fn finish<B: Batch + Send + 'static>(self, others: B) -> Result<B> {
        if self.failed.is_empty() { Ok(others) } else { Err(Error::unloaded(self.failed, others)) }
    }

    /// The samples that were loaded, and which were not.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn collect<T, E>(samples: impl IntoIterator<Item = Result<T, E>>) -> Result<Vec<T>>
    where
        T: Clone + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let (others, partial) = Self::split(samples);
        partial.finish(others)
    }

    /// As [`collect`](Self::collect), without an error: the samples that did not fail, and which failed. For
    /// [`Table::get_or_compute_partial`](crate::Table::get_or_compute_partial).
    ///
    /// ```
    /// let (numbers, partial) = tcx::Partial::split(["1", "two", "3"].map(str::parse::<i64>));
    /// assert_eq!((numbers, partial.failed().collect::<Vec<_>>()), (vec![1, 3], vec![1]));
    /// ```
    pub fn split<T, E>(samples: impl IntoIterator<Item = Result<T, E>>) -> (Vec<T>, Self)
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let (mut others, mut partial) = (Vec::new(), Self::new());
        for (place, sample) in samples.into_iter().enumerate() {
            match sample {
                Ok(sample) => others.push(sample),
                Err(error) => partial.fail(place, error),
            }
        }
        (others, partial)
    }

    /// The places of the samples that failed, in the order in which they were added.
    pub fn failed(&self) -> impl Iterator<Item = usize> {
        self.failed.iter().map(|(place, _)| *place)
    }

    /// The places of the samples that did not fail, of the `asked` ones.
    pub(crate) fn others(&self, asked: usize) -> Vec<usize> {
        let failed: HashSet<usize> = self.failed().collect();
        (0..asked).filter(|place| !failed.contains(place)).collect()
    }

    /// The samples that failed in `part` failed here, too: `places` are those of the samples of `part`.
    pub(crate) fn fail_at(&mut self, part: Self, places: &[usize]) {
        self.failed.extend(part.failed.into_iter().map(|(place, error)| (places[place], error)));
    }

    /// The error that names the samples that failed, in their order, if any failed.
    pub(crate) fn into_error(mut self) -> Option<Error> {
        self.failed.sort_by_key(|(place, _)| *place);
        if self.failed.is_empty() { None } else { Some(Error::unloaded(self.failed, ())) }
    }
}
