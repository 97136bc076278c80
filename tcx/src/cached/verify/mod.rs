//! Computing some of the rows again, and comparing.

mod report;

use std::collections::{BTreeSet, HashSet};

use tcx_store::{Keys, Lookup, LookupOptions};

pub use self::report::{Mismatch, VerifyReport};
use crate::cached::Cached;
use crate::cached::invalidate::PlainIds;
use crate::cached::loading::{LOADING, loading_failed};
use crate::cached::view::View;
use crate::ids::KeyKind;
use crate::ids::name::{name, text};
use crate::module::extractor::CachedModule;
use crate::module::inputs::check_loaded;
use crate::module::missing::Missing;
use crate::output::CacheableOutput;
use crate::{Error, ErrorKind, LoadFailure, Result};

/// An id of a module, as [`Cached::verify`] returns it: a `String`, an `i64` or a `Vec<u8>`, with the stamp of its row if it
/// has one.
type OwnId<M> = <<M as CachedModule>::Key as KeyKind>::Owned;

impl<M: CachedModule> Cached<M> {
    /// Computes a part of the cached rows again and compares. `fraction` is that part; `seed` chooses the rows, and the same
    /// seed chooses the same rows. `load` gets their ids, [`batch_size`](Self::batch_size) at a time. Nothing is written.
    ///
    /// Floating-point numbers may differ by a ten-thousandth of the row's largest value (f16 and bf16: by a hundredth), since a
    /// network computes with other kernels in a batch of another size. Everything else has to be the same.
    ///
    /// If the loader returns a [`Partial`](crate::Partial), the samples that it could load are compared, and the report names the
    /// others.
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
        let mut report = VerifyReport::new();
        for some in sample.chunks(self.batch_size) {
            let found = self
                .readable()?
                .lookup_with(self.pack_as::<PlainIds<M>, _>(some, view)?, LookupOptions::uncounted())?;
            let (ids, there) = Self::found(&found);
            if there.is_empty() {
                continue;
            }
            let rows: Vec<usize> = (0..there.len()).collect();
            let loaded = load(Missing::new(&ids, &rows));
            let (rows, inputs) = Self::loaded(&mut report, &self.pack(&ids, view)?, rows, loaded)?;
            if rows.is_empty() {
                continue;
            }
            let ids: Vec<_> = rows.iter().map(|&row| ids[row].clone()).collect();
            let computed = self.recompute(&ids, view, &inputs)?;
            for (place, &row) in rows.iter().enumerate() {
                report.checked += 1;
                report.compare(&leaves, &ids[place], (&found, there[row]), (&computed, place));
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

    /// The rows whose inputs were loaded, of `rows`, and the inputs. The report gets the others.
    fn loaded(
        report: &mut VerifyReport<OwnId<M>>,
        keys: &Keys,
        rows: Vec<usize>,
        loaded: Result<M::Input>,
    ) -> Result<(Vec<usize>, M::Input)> {
        let mut error = match loaded {
            Err(error) if error.is_partial() => error,
            loaded => {
                let loaded = loaded.map_err(|error| error.returned_by(|| loading_failed(keys, &rows)));
                let inputs = check_loaded::<M>(rows.len(), loaded)?;
                return Ok((rows, inputs));
            }
        };
        let others = error.take_loaded::<M::Input>();
        let remedy = "the others were not verified, because the `Partial` has inputs of another type than the module: pass it those of the module";
        let id = |row| if row < keys.len() { text(keys, row) } else { String::new() };
        let error = error.naming(LOADING, rows.len(), id, remedy).in_module(M::ID);
        let Some(others) = others else { return Err(error) };
        let failed: HashSet<usize> = error.load_failures().iter().map(LoadFailure::place).collect();
        report.load_failures.extend(error.load_failures().iter().cloned());
        let rows: Vec<usize> = rows.into_iter().filter(|row| !failed.contains(row)).collect();
        let inputs = check_loaded::<M>(rows.len(), Ok(others))?;
        Ok((rows, inputs))
    }

    /// Computes the rows of these ids without storing them.
    fn recompute(&self, ids: &[OwnId<M>], view: u32, inputs: &M::Input) -> Result<Lookup> {
        let keys = self.pack(ids, view)?;
        let named = |row: usize| name(&keys, row);
        // What is compared here anyway is not compared once more.
        let columns = self.compute_only(inputs, ids.len(), &named)?;
        let mut computed = self.readable()?.empty_lookup(keys);
        let all: Vec<usize> = (0..ids.len()).collect();
        computed.complete(&all, columns)?;
        Ok(computed)
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
