//! What a verification has found, and how it says so.

use std::fmt;

use tcx_store::{DType, Leaf, LeafKind, Lookup};

use crate::LoadFailure;
use crate::cached::checks::compare::{Differs, Tolerance, difference, distance};
use crate::ids::name::SHOWN;

/// What [`Cached::verify`](crate::Cached::verify) has found.
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
    /// The samples that the loader could not load, if it has returned a [`Partial`](crate::Partial). They were not compared.
    pub load_failures: Vec<LoadFailure>,
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
    pub(super) fn new() -> Self {
        let (mismatches, load_failures) = (Vec::new(), Vec::new());
        Self { checked: 0, mismatches, largest_difference: 0., load_failures }
    }

    /// Whether every row that was chosen equals the one that the module computes. It does not if its inputs could not be loaded.
    pub fn is_sound(&self) -> bool {
        self.mismatches.is_empty() && self.load_failures.is_empty()
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
        and_more(f, self.mismatches.len())?;
        match self.load_failures.len() {
            0 => return Ok(()),
            1 => write!(f, "\n1 sample could not be loaded, and was not compared")?,
            failed => write!(f, "\n{failed} samples could not be loaded, and were not compared")?,
        }
        for failure in self.load_failures.iter().take(SHOWN) {
            write!(f, "\n  {failure}")?;
        }
        and_more(f, self.load_failures.len())
    }
}

fn and_more(f: &mut fmt::Formatter<'_>, all: usize) -> fmt::Result {
    match all.saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, "\n  and {more} more"),
    }
}

impl<I: Clone> VerifyReport<I> {
    pub(super) fn compare(
        &mut self,
        leaves: &[Leaf],
        id: &I,
        cached: (&Lookup, usize),
        computed: (&Lookup, usize),
    ) {
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
            load_failures: Vec::new(),
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
