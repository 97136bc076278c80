//! Comparing two rows of a leaf that should be the same.

use std::fmt;

use half::{bf16, f16};
use tcx_store::{Column, DType, Leaf, LeafKind};

use crate::Error;

/// The number of rows that decide what is usual.
const USUAL_ROWS: usize = 64;

/// What may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// The same batch twice: only what a parallel sum may change in its last bits.
    Repeated,
    /// The sample in another batch: other kernels, other padding. Values that are rounded to whole
    /// numbers or words may change in a few samples; [`Tipped`](super::tipped::Tipped) counts these instead.
    Rebatched,
}

impl Tolerance {
    /// The largest difference, as a part of the row's largest value, or of one that is usual in its batch.
    fn relative(self, dtype: DType) -> f64 {
        match (self, dtype) {
            (Self::Repeated, DType::F16 | DType::BF16) => 1e-2,
            (Self::Repeated, _) => 1e-4,
            (Self::Rebatched, DType::F16 | DType::BF16) => 5e-2,
            (Self::Rebatched, _) => 1e-2,
        }
    }
}

/// Where two rows differ by more than is tolerated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    field: Box<str>,
    how: String,
}

/// How two rows of a leaf differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Differs {
    /// They have different numbers of elements.
    Elements([usize; 2]),
    /// These floating-point numbers at an element, by more than is allowed.
    Floats { numbers: [f64; 2], at: usize, allowed: f64 },
    /// They are not the same, and of a type that has no tolerance.
    Other,
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elements([a, b]) => write!(f, "has {a} and {b} elements"),
            Self::Floats { numbers: [a, b], at, allowed } => {
                write!(f, "is {a} and {b} at element {at} (tolerance {allowed:.1e})")
            }
            Self::Other => f.write_str("is not the same"),
        }
    }
}

/// A promise that a module has broken.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    field: Box<str>,
    message: Box<str>,
    remedy: &'static str,
}

impl Broken {
    /// `sample` is the id of the sample that shows it.
    pub(crate) fn new(tolerance: Tolerance, Difference { field, how }: &Difference, sample: &str) -> Self {
        Self::of_field(tolerance, field, &format!("{how}, for id {sample}"))
    }

    pub(crate) fn of_field(tolerance: Tolerance, field: &str, how: &str) -> Self {
        let (what, remedy) = match tolerance {
            Tolerance::Repeated => (
                "the same sample gave two different outputs",
                "make `forward` deterministic (no dropout, no random transform); rows that are already in the cache \
                 may be wrong: give the module a new id, or invalidate them",
            ),
            Tolerance::Rebatched => (
                "a sample's output depends on the rest of its batch",
                "make each output depend on its own sample only (batch norm in eval mode, padding masked); rows that are already in the \
                 cache may be wrong: give the module a new id, or invalidate them",
            ),
        };
        let message = format!("{what}: field `{field}` {how}");
        Self { field: field.into(), message: message.into(), remedy }
    }

    pub(crate) fn error(&self, module: &str) -> Error {
        Error::module(module, self.message.clone(), self.remedy).with_field(&self.field)
    }
}

/// The first of the pairs of rows, one of `a` and one of `b`, that differ by more than is tolerated: its row of `a`, and how.
///
/// A row may differ as much as others of its batch, the `rows` of `a`: the last bits of a sum that happens to be near zero are
/// those of its parts.
pub(crate) fn first_difference(
    leaves: &[Leaf],
    rows: usize,
    a: &[Column],
    b: &[Column],
    pairs: impl Iterator<Item = (usize, usize)>,
    tolerance: Tolerance,
) -> Option<(usize, Difference)> {
    pairs.into_iter().find_map(|(of_a, of_b)| {
        let differs = |((leaf, a), b): ((&Leaf, &Column), &Column)| {
            let how = if a.is_present(of_a) == b.is_present(of_b) {
                let differ = |usual| {
                    difference(&leaf.kind, a.row(of_a, &leaf.kind), b.row(of_b, &leaf.kind), tolerance, usual)
                };
                let differs = differ(0.).and_then(|_| differ(usual(&leaf.kind, a, rows)));
                differs.map(|differs| differs.to_string())
            } else {
                // Where a number is compared with a threshold, its last bits decide.
                (tolerance == Tolerance::Repeated)
                    .then(|| "is present in one row and absent in the other".to_owned())
            };
            Some(Difference { field: leaf.name.as_str().into(), how: how? })
        };
        Some((of_a, leaves.iter().zip(a).zip(b).find_map(differs)?))
    })
}

/// The largest value of a row, as it is usual in these: at least half of them have one as large.
fn usual(kind: &LeafKind, column: &Column, rows: usize) -> f64 {
    let Some(dtype) = kind.dtype() else { return 0. };
    let present = (0..rows).filter(|&row| column.is_present(row)).take(USUAL_ROWS);
    let floats = present.filter_map(|row| floats(dtype, column.row(row, kind)));
    let mut largest: Vec<f64> = floats.map(|row| largest(&row)).collect();
    largest.sort_unstable_by(f64::total_cmp);
    largest.get(largest.len().saturating_sub(1) / 2).copied().unwrap_or(0.)
}

fn largest<'a>(numbers: impl IntoIterator<Item = &'a f64>) -> f64 {
    numbers.into_iter().filter(|x| x.is_finite()).fold(0., |most, x| x.abs().max(most))
}

/// How the rows differ, if they differ by more than is tolerated where a row's largest value is `usual`.
pub(crate) fn difference(
    kind: &LeafKind,
    a: &[u8],
    b: &[u8],
    tolerance: Tolerance,
    usual: f64,
) -> Option<Differs> {
    if a == b {
        return None;
    }
    if matches!(kind, LeafKind::Ragged { .. }) && a.len() != b.len() {
        let elements = |row: &[u8]| row.len() / kind.dtype().map_or(1, DType::size);
        return Some(Differs::Elements([elements(a), elements(b)]));
    }
    let floats =
        kind.dtype().and_then(|dtype| floats(dtype, a).zip(floats(dtype, b)).map(|(a, b)| (dtype, a, b)));
    let Some((dtype, a, b)) = floats else {
        return (tolerance == Tolerance::Repeated).then_some(Differs::Other);
    };
    let allowed = largest(a.iter().chain(&b)).max(usual) * tolerance.relative(dtype);
    // Equal infinities have no difference to compare.
    let same = |a: &f64, b: &f64| a.total_cmp(b).is_eq() || (a.is_nan() && b.is_nan());
    let differs = |(a, b): (&f64, &f64)| !(same(a, b) || (a - b).abs() <= allowed);
    let at = a.iter().zip(&b).position(differs)?;
    Some(Differs::Floats { numbers: [a[at], b[at]], at, allowed })
}

/// The largest difference of an element, as a part of the largest value; what is no floating-point number is the same or
/// differs wholly.
pub(crate) fn distance(kind: &LeafKind, a: &[u8], b: &[u8]) -> f64 {
    if a == b {
        return 0.;
    }
    let Some(dtype) = kind.dtype().filter(|_| a.len() == b.len()) else { return 1. };
    let (Some(a), Some(b)) = (floats(dtype, a), floats(dtype, b)) else { return 1. };
    let largest = largest(a.iter().chain(&b));
    let part = |(a, b): (&f64, &f64)| {
        let gap = (a - b).abs();
        if gap <= 0. || a.total_cmp(b).is_eq() || (a.is_nan() && b.is_nan()) {
            return 0.;
        }
        let part = gap / largest;
        if part.is_finite() { part } else { f64::INFINITY }
    };
    a.iter().zip(&b).map(part).fold(0., f64::max)
}

/// The elements, if they are floating-point numbers.
fn floats(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|chunk| read(*chunk)).collect()
    }
    match dtype {
        DType::F16 => Some(each(bytes, |x| f16::from_le_bytes(x).to_f64())),
        DType::BF16 => Some(each(bytes, |x| bf16::from_le_bytes(x).to_f64())),
        DType::F32 => Some(each(bytes, |x| f64::from(f32::from_le_bytes(x)))),
        DType::F64 => Some(each(bytes, f64::from_le_bytes)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(a: &[f32], b: &[f32], tolerance: Tolerance) -> Option<String> {
        let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
        let kind = LeafKind::Dense { dtype: DType::F32, shape: vec![a.len()] };
        difference(&kind, &bytes(a), &bytes(b), tolerance, 0.).map(|differs| differs.to_string())
    }

    #[test]
    fn last_bits_are_tolerated_and_more_is_not() {
        assert_eq!(compare(&[1., 100.], &[1.001, 100.], Tolerance::Repeated), None);
        let found = compare(&[1., 100.], &[2., 100.], Tolerance::Repeated).unwrap();
        assert_eq!(found, "is 1 and 2 at element 0 (tolerance 1.0e-2)");
        assert_eq!(compare(&[1., 100.], &[1.5, 100.], Tolerance::Rebatched), None);
        assert!(compare(&[1., 100.], &[3., 100.], Tolerance::Rebatched).is_some());
    }

    #[test]
    fn nan_and_infinity_are_the_same_as_themselves_only() {
        let odd = [f32::NAN, f32::INFINITY, 0.];
        assert_eq!(compare(&odd, &[-f32::NAN, f32::INFINITY, -0.], Tolerance::Repeated), None);
        assert!(compare(&odd, &[0., f32::INFINITY, 0.], Tolerance::Rebatched).is_some());
        assert!(compare(&odd, &[f32::NAN, f32::NEG_INFINITY, 0.], Tolerance::Rebatched).is_some());
    }

    #[test]
    fn a_distance_is_a_part_of_the_largest_value_and_never_no_number() {
        let kind = LeafKind::Dense { dtype: DType::F32, shape: vec![2] };
        let far = |a: [f32; 2], b: [f32; 2]| {
            distance(&kind, &a.map(f32::to_le_bytes).concat(), &b.map(f32::to_le_bytes).concat())
        };
        assert!((far([1., 100.], [2., 100.]) - 0.01).abs() < 1e-9);
        assert!(far([0., f32::NAN], [-0., -f32::NAN]) <= 0.);
        for odd in [f32::NAN, f32::INFINITY] {
            assert!(far([odd, 1.], [1., 1.]).is_infinite());
        }
        assert!(distance(&LeafKind::Text, b"cat", b"dog") >= 1.);
    }

    #[test]
    fn a_row_near_zero_may_differ_as_the_others_of_its_batch_do() {
        let column =
            |rows: &[f32]| [Column::dense(&rows.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())];
        let kind = LeafKind::Dense { dtype: DType::F32, shape: vec![] };
        let leaves = [Leaf { name: "value".to_owned(), kind, optional: false }];
        let differs = |a: &[f32], b: &[f32]| {
            let pairs = a.iter().enumerate().map(|(row, _)| (row, row));
            first_difference(&leaves, a.len(), &column(a), &column(b), pairs, Tolerance::Rebatched).is_some()
        };
        assert!(!differs(&[1., 0.001, -3.], &[1., 0.005, -3.]));
        assert!(differs(&[1., 0.001, -3.], &[1., 0.05, -3.]));
        assert!(differs(&[0.001, 0.002, 1e30], &[0.001, 0.005, 1e30]), "one large value is not usual");
        assert!(differs(&[0.001, 1.], &[0.005, 1.]), "nor is one of two");
        assert!(differs(&[0.001], &[0.005]));
    }

    #[test]
    fn another_number_of_elements_is_never_tolerated() {
        let kind = LeafKind::Ragged { dtype: DType::F32, shape: vec![tcx_store::DYNAMIC_DIM] };
        for tolerance in [Tolerance::Repeated, Tolerance::Rebatched] {
            let found = difference(&kind, &[0; 8], &[0; 12], tolerance, 0.);
            assert_eq!(found, Some(Differs::Elements([2, 3])));
        }
        let close = [1_f32, 1.001].map(f32::to_le_bytes);
        assert_eq!(difference(&kind, &close[0], &close[1], Tolerance::Rebatched, 0.), None);
    }

    #[test]
    fn words_are_compared_where_the_batch_is_the_same() {
        assert!(difference(&LeafKind::Text, b"cat", b"dog", Tolerance::Repeated, 0.).is_some());
        assert!(difference(&LeafKind::Text, b"cat", b"dog", Tolerance::Rebatched, 0.).is_none());
    }
}
