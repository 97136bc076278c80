//! Computing some of the rows again, and comparing.

use std::collections::BTreeSet;
use std::fmt;

use tcx_store::{DType, Leaf, LeafKind, Lookup, LookupOptions};

use crate::cached::Cached;
use crate::cached::checks::compare::{Differs, Tolerance, difference, distance};
use crate::cached::invalidate::PlainIds;
use crate::cached::view::View;
use crate::ids::KeyKind;
use crate::ids::name::{SHOWN, name};
use crate::module::extractor::CachedModule;
use crate::module::inputs::check_loaded;
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
/// assert_eq!(how, "is stored as 3 and computed as 5");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mismatch<I> {
    /// Its id.
    pub id: I,
    /// The first field that differs.
    pub field: String,
    /// The difference in words: `is stored as 1 and computed as 2 at element 0 (tolerance 1.0e-4)`.
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
        write!(
            f,
            "{} of {} stored rows {differ} from what the module computes",
            self.mismatches.len(),
            self.checked
        )?;
        write!(f, "; the largest difference is {:.1e}", self.largest_difference)?;
        for Mismatch { id, field, how } in self.mismatches.iter().take(SHOWN) {
            write!(f, "\n  {id:?}: field `{field}` {how}")?;
        }
        match self.mismatches.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
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
            let inputs = check_loaded::<M>(there.len(), load(Missing::new(&ids, &rows)))?;
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
                first =
                    first.or_else(|| Some((name, stored_and_present(cached.0.is_present(number, cached.1)))));
                continue;
            }
            let (a, b) = (cached.0.bytes(number, cached.1), computed.0.bytes(number, computed.1));
            self.largest_difference = self.largest_difference.max(distance(kind, a, b));
            let differs = || difference(kind, a, b, Tolerance::Repeated, 0.);
            first = first.or_else(|| Some((name, stored_and_computed(kind, differs()?, a, b))));
        }
        if let Some((field, how)) = first {
            self.mismatches.push(Mismatch { id: id.clone(), field: field.clone(), how });
        }
    }
}

fn stored_and_present(is_stored: bool) -> String {
    let (stored, computed) = if is_stored { ("present", "absent") } else { ("absent", "present") };
    format!("is stored as {stored} and computed as {computed}")
}

/// How a stored row differs from a computed one, with both sides named.
fn stored_and_computed(kind: &LeafKind, differs: Differs, stored: &[u8], computed: &[u8]) -> String {
    match differs {
        Differs::Elements([a, b]) => format!("is stored with {a} elements and computed with {b}"),
        Differs::Floats { numbers: [a, b], at, allowed } => {
            format!("is stored as {a} and computed as {b} at element {at} (tolerance {allowed:.1e})")
        }
        Differs::Other => {
            format!("is stored as {} and computed as {}", value(kind, stored), value(kind, computed))
        }
    }
}

/// A value that has no tolerance, for a message: the beginning of a long one.
fn value(kind: &LeafKind, row: &[u8]) -> String {
    const CHARS: usize = 40;
    const BYTES: usize = 12;
    let shortened = |all: String| match all.char_indices().nth(CHARS) {
        None => all,
        Some((end, _)) => format!("{}…", &all[..end]),
    };
    match kind {
        LeafKind::Text => shortened(format!("{:?}", String::from_utf8_lossy(row))),
        LeafKind::Bytes => shortened(format!("{} bytes {:02x?}", row.len(), &row[..row.len().min(BYTES)])),
        _ => {
            let numbers = numbers(kind, row);
            match &numbers[..] {
                [number] => number.to_string(),
                _ => shortened(format!("{numbers:?}")),
            }
        }
    }
}

/// The first numbers of a row of integers or truth values.
fn numbers(kind: &LeafKind, row: &[u8]) -> Vec<i64> {
    const SHOWN: usize = 16;
    fn each<const N: usize>(row: &[u8], read: impl Fn([u8; N]) -> i64) -> Vec<i64> {
        row.as_chunks::<N>().0.iter().take(SHOWN).map(|number| read(*number)).collect()
    }
    match kind.dtype() {
        Some(DType::I8) => each(row, |number| i64::from(i8::from_le_bytes(number))),
        Some(DType::I16) => each(row, |number| i64::from(i16::from_le_bytes(number))),
        Some(DType::I32) => each(row, |number| i64::from(i32::from_le_bytes(number))),
        Some(DType::I64) => each(row, i64::from_le_bytes),
        _ => each(row, |[number]| i64::from(number)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_ten_samples_and_counts_the_others() {
        let mismatch = |at: usize| Mismatch { id: at, field: "value".to_owned(), how: "differs".to_owned() };
        let mut report = VerifyReport {
            checked: 640,
            mismatches: (0..640).map(mismatch).collect(),
            largest_difference: 1.,
        };
        let said = report.to_string();
        assert!(said.starts_with("640 of 640 stored rows differ from what the module computes; "), "{said}");
        assert!(said.contains("\n  9: field `value` differs\n  and 630 more"), "{said}");
        assert_eq!(said.lines().count(), 12);
        report.mismatches.truncate(10);
        assert!(report.to_string().ends_with("\n  9: field `value` differs"));
    }

    #[test]
    fn both_sides_are_named_whatever_differs() {
        let said = |kind: &LeafKind, a: &[u8], b: &[u8]| {
            let differs = difference(kind, a, b, Tolerance::Repeated, 0.).unwrap();
            stored_and_computed(kind, differs, a, b)
        };
        let dense = |dtype, shape: &[usize]| LeafKind::Dense { dtype, shape: shape.to_vec() };
        let floats = [1f32.to_le_bytes(), 2f32.to_le_bytes()];
        assert_eq!(
            said(&dense(DType::F32, &[]), &floats[0], &floats[1]),
            "is stored as 1 and computed as 2 at element 0 (tolerance 2.0e-4)"
        );
        let numbers = [(-3i16).to_le_bytes(), 4i16.to_le_bytes()].concat();
        assert_eq!(
            said(&dense(DType::I16, &[2]), &numbers, &[0; 4]),
            "is stored as [-3, 4] and computed as [0, 0]"
        );
        assert_eq!(said(&dense(DType::Bool, &[]), &[0], &[1]), "is stored as 0 and computed as 1");
        assert_eq!(said(&LeafKind::Text, b"one", b"three"), r#"is stored as "one" and computed as "three""#);
        assert_eq!(
            said(&LeafKind::Bytes, &[1], &[2, 3]),
            "is stored as 1 bytes [01] and computed as 2 bytes [02, 03]"
        );
        let ragged = LeafKind::Ragged { dtype: DType::I64, shape: vec![tcx_store::DYNAMIC_DIM] };
        assert_eq!(said(&ragged, &[0; 8], &[0; 16]), "is stored with 1 elements and computed with 2");
        assert_eq!(stored_and_present(true), "is stored as present and computed as absent");
        let long = said(&LeafKind::Text, &[b'a'; 500], b"");
        assert!(long.chars().count() < 100, "{long}");
    }
}
