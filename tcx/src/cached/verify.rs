//! Computing some of the rows again, and comparing.

use std::collections::BTreeSet;
use std::fmt;

use tcx_store::{Leaf, Lookup, LookupOptions};

use crate::cached::Cached;
use crate::cached::checks::compare::{Tolerance, difference, distance};
use crate::cached::checks::finite::name;
use crate::cached::invalidate::PlainIds;
use crate::cached::view::View;
use crate::ids::KeyKind;
use crate::module::extractor::CachedModule;
use crate::module::inputs::call_loader;
use crate::module::missing::Missing;
use crate::output::CacheableOutput;
use crate::{Error, ErrorKind, Result};

/// An id of a module, as [`Cached::verify`] returns it: a `String`, an `i64` or a `Vec<u8>`, with the stamp of its row if it
/// has one.
type OwnId<M> = <<M as CachedModule>::Key as KeyKind>::Owned;

/// What [`Cached::verify`] has found.
///
/// ```
/// # use tcx::{Extractor, cached_module};
/// # #[cached_module(id = "verified_v1")]
/// # struct Words {}
/// # impl Extractor for Words {
/// #     type Input = Vec<String>;
/// #     type Output = Vec<i64>;
/// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
/// #         Ok(x.iter().map(|text| text.len() as i64).collect())
/// #     }
/// # }
/// # let dir = tempfile::tempdir()?;
/// # let words = tcx::Cache::open(dir.path())?.module(Words {})?;
/// words.forward(&["a", "b"], &vec!["one".to_owned(), "three".to_owned()])?;
/// let report = words.verify(1., 0, |asked| {
///     Ok(asked.ids().map(|id| if id == "a" { "one" } else { "three" }.to_owned()).collect())
/// })?;
/// assert!(report.is_sound());
/// assert_eq!((report.checked, report.largest_difference), (2, 0.));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifyReport<I> {
    /// The number of rows that were computed again.
    pub checked: usize,
    /// The rows that differ by more than the tolerance.
    pub mismatches: Vec<Mismatch<I>>,
    /// The largest difference of all rows, tolerated ones too, as a fraction of the row's largest value. It is 1 for values
    /// that are not floating-point numbers.
    pub largest_difference: f64,
}

/// A row that differs from the newly computed one.
///
/// ```
/// # use tcx::{Mismatch, Extractor, cached_module};
/// # #[cached_module(id = "different_v1")]
/// # struct Words {}
/// # impl Extractor for Words {
/// #     type Input = Vec<String>;
/// #     type Output = Vec<i64>;
/// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
/// #         Ok(x.iter().map(|text| text.len() as i64).collect())
/// #     }
/// # }
/// # let dir = tempfile::tempdir()?;
/// # let words = tcx::Cache::open(dir.path())?.module(Words {})?;
/// words.forward(&["a"], &vec!["one".to_owned()])?;
/// // Another text than that of the time.
/// let report = words.verify(1., 0, |_| Ok(vec!["three".to_owned()]))?;
/// let Mismatch { id, field, how, .. } = &report.mismatches[0];
/// assert_eq!((id.as_str(), field.as_str()), ("a", "value"));
/// assert_eq!(how, "is not the same");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mismatch<I> {
    /// Its id.
    pub id: I,
    /// The first field that differs.
    pub field: String,
    /// The difference in words, the cached value first: `is 1 and 2 at element 0 (tolerance 1.0e-6)` for floating-point
    /// numbers, `is not the same` for most other types.
    pub how: String,
}

impl<I> VerifyReport<I> {
    /// Whether every checked row equals the one that the module computes.
    pub fn is_sound(&self) -> bool {
        self.mismatches.is_empty()
    }
}

impl<I: fmt::Debug> fmt::Display for VerifyReport<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differ = if self.mismatches.len() == 1 { "differs" } else { "differ" };
        write!(f, "{} of {} rows {differ}", self.mismatches.len(), self.checked)?;
        write!(f, ", the largest difference is {:.1e}", self.largest_difference)?;
        for Mismatch { id, field, how } in &self.mismatches {
            write!(f, "\n  {id:?}: field `{field}` {how}")?;
        }
        Ok(())
    }
}

impl<M: CachedModule> Cached<M> {
    /// Computes a part of the cached rows again and compares. `fraction` is that part; `seed` chooses the rows, and the same
    /// seed chooses the same rows. `load` gets their ids, [`batch_size`](Self::batch_size) at a time. Nothing is written.
    ///
    /// Floating-point numbers may differ by a ten-thousandth of the row's largest value (f16 and bf16: by a hundredth), since a
    /// network computes with other kernels in a batch of another size. Everything else has to be the same.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "verify_v1")]
    /// # struct Words {}
    /// # impl Extractor for Words {
    /// #     type Input = Vec<String>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|text| text.len() as i64).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// let words = cache.module(Words {})?;
    /// words.forward(&["a", "b"], &vec!["one".to_owned(), "three".to_owned()])?;
    /// // Another text than that of the time.
    /// let report = words.verify(1., 0, |asked| Ok(vec!["one".to_owned(); asked.len()]))?;
    /// assert_eq!((report.checked, report.mismatches.len()), (2, 1));
    /// assert_eq!(report.mismatches[0].id, "b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the fraction is not from 0 to 1, if the handle has the mode `Off`, if the cache is closed, or if the
    /// directory cannot be listed. Also returns the errors of `load`, of the module, and of its outputs.
    pub fn verify(
        &self,
        fraction: f64,
        seed: u64,
        load: impl FnMut(Missing<'_, OwnId<M>>) -> Result<M::Input>,
    ) -> Result<VerifyReport<OwnId<M>>> {
        self.verify_view(fraction, seed, 0, load)
    }

    fn verify_view(
        &self,
        fraction: f64,
        seed: u64,
        view: u32,
        mut load: impl FnMut(Missing<'_, OwnId<M>>) -> Result<M::Input>,
    ) -> Result<VerifyReport<OwnId<M>>> {
        self.shared().check_process()?;
        let sample = self.sample(fraction, seed, view)?;
        let leaves = M::Output::COLUMN.leaves();
        let mut report = VerifyReport { checked: 0, mismatches: Vec::new(), largest_difference: 0. };
        for some in sample.chunks(self.batch_size) {
            let found = self
                .readable()?
                .lookup_with(self.pack_as::<PlainIds<M>, _>(some, view)?, LookupOptions::uncounted())?;
            let (ids, there) = Self::found(&found);
            if there.is_empty() {
                continue;
            }
            let rows: Vec<usize> = (0..there.len()).collect();
            let inputs = call_loader::<M>(there.len(), || load(Missing::new(&ids, &rows)))?;
            let computed = self.recompute(&ids, view, &inputs)?;
            for (row, &position) in there.iter().enumerate() {
                report.checked += 1;
                report.compare(&leaves, &ids[row], (&found, position), (&computed, row));
            }
        }
        Ok(report)
    }

    /// The ids of a part of the rows, in the order of their keys.
    fn sample(&self, fraction: f64, seed: u64, view: u32) -> Result<Vec<<PlainIds<M> as KeyKind>::Owned>> {
        if !(0. ..=1.).contains(&fraction) {
            let error = Error::new(
                ErrorKind::InvalidSettings,
                format!("the fraction of rows to check: expected a number from 0 to 1, found {fraction}"),
            );
            let error = error.with_expected("a number from 0 to 1", fraction.to_string());
            return Err(error
                .in_module(M::ID)
                .with_remedy("pass 0.1, for example, to check a tenth of the rows"));
        }
        let mut chosen = BTreeSet::new();
        self.readable()?.each_key(|key, own| {
            if own == view && is_chosen(key, seed, fraction) {
                chosen.insert(Box::<[u8]>::from(key));
            }
        })?;
        Ok(chosen.iter().filter_map(|key| <PlainIds<M> as KeyKind>::own(key, None)).collect())
    }

    /// The ids of the rows that are there, with the stamps that they were computed under, and their positions.
    fn found(found: &Lookup) -> (Vec<OwnId<M>>, Vec<usize>) {
        let missing: BTreeSet<usize> = found.all_missing_positions().collect();
        let there = (0..found.len()).filter(|position| !missing.contains(position));
        let stamps = M::Key::STAMPS.map(|_| M::Output::COLUMN.leaves().len());
        let own = |position| {
            let stamp = stamps.map(|leaf| found.bytes(leaf, position));
            Some((M::Key::own(found.keys().key(position), stamp)?, position))
        };
        there.filter_map(own).unzip()
    }

    /// Computes the rows of these ids without storing them.
    fn recompute(&self, ids: &[OwnId<M>], view: u32, inputs: &M::Input) -> Result<Lookup> {
        let keys = self.pack(ids, view)?;
        let named = |row: usize| name(&keys, row);
        // What is compared here anyway is not compared once more.
        let columns = self.compute()?.columns(inputs, ids.len(), &named, None)?;
        let mut computed = self.readable()?.empty_lookup(keys);
        let all: Vec<usize> = (0..ids.len()).collect();
        computed.complete(&all, columns)?;
        Ok(computed)
    }
}

impl<I: Clone> VerifyReport<I> {
    fn compare(&mut self, leaves: &[Leaf], id: &I, cached: (&Lookup, usize), computed: (&Lookup, usize)) {
        let mut first = None;
        for (number, Leaf { name, kind, .. }) in leaves.iter().enumerate() {
            if cached.0.is_present(number, cached.1) != computed.0.is_present(number, computed.1) {
                self.largest_difference = self.largest_difference.max(1.);
                first = first
                    .or_else(|| Some((name, "is present in one row and absent in the other".to_owned())));
                continue;
            }
            let (a, b) = (cached.0.bytes(number, cached.1), computed.0.bytes(number, computed.1));
            self.largest_difference = self.largest_difference.max(distance(kind, a, b));
            first = first.or_else(|| Some((name, difference(kind, a, b, Tolerance::Repeated, 0.)?)));
        }
        if let Some((field, how)) = first {
            self.mismatches.push(Mismatch { id: id.clone(), field: field.clone(), how });
        }
    }
}

/// Whether a key is in the sample: decided by its hash, so that neither its place nor other keys matter.
fn is_chosen(key: &[u8], seed: u64, fraction: f64) -> bool {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).update(key);
    let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
    f64::from(u32::from_le_bytes([a, b, c, d])) < fraction * f64::from(u32::MAX) || fraction >= 1.
}

impl<M: CachedModule> View<'_, M> {
    /// As [`Cached::verify`], for this view.
    ///
    /// # Errors
    ///
    /// As [`Cached::verify`].
    pub fn verify(
        &self,
        fraction: f64,
        seed: u64,
        load: impl FnMut(Missing<'_, OwnId<M>>) -> Result<M::Input>,
    ) -> Result<VerifyReport<OwnId<M>>> {
        self.cached().verify_view(fraction, seed, self.number(), load)
    }
}
