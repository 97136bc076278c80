//! The figures of a report, from the segments' footers and from a sample of the rows.

use serde::Serialize;
use tcx_store::{DType, Inspection, LeafKind, Row, SegmentState};

use super::projection::{Projection, project};
use super::sessions::{Session, Totals};
use crate::cache;
use crate::text::human;
use crate::text::ids;
use crate::text::values::{Number, numbers};

/// The maximum of elements in a sample: it has fewer rows if the outputs are large.
const ELEMENTS: usize = 4_000_000;
const BINS: usize = 32;
/// Values that differ less, in proportion, are the same number with other rounding: norms of normalized rows, say. Bins
/// would draw the rounding.
const SAME: f64 = 1e-3;
/// The maximum of steps in a curve.
const STEPS: usize = 400;

/// A report.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) modules: Vec<Module>,
    pub(crate) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Module {
    pub(crate) module: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) segments: usize,
    pub(crate) damaged_segments: usize,
    pub(crate) growth: Vec<Growth>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) totals: Totals,
    /// Rows in the sample.
    pub(crate) sampled: usize,
    /// Rows of the sample that do not verify.
    pub(crate) damaged: usize,
    pub(crate) outputs: Vec<Leaf>,
}

/// The rows and bytes computed up to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Growth {
    pub(crate) ms: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// The figures of one output of tensors.
#[derive(Debug, Serialize)]
pub(crate) struct Leaf {
    pub(crate) name: String,
    pub(crate) r#type: String,
    /// The finite Euclidean norms of the rows.
    pub(crate) norms: Option<Histogram>,
    /// The number of NaN values in a row; `None` if there are no NaN values.
    pub(crate) nan: Option<Histogram>,
    /// Rows with an infinite element.
    pub(crate) infinite_rows: usize,
    pub(crate) projection: Option<Projection>,
}

/// Counts in bins of equal width; one bin if the values are the same.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Histogram {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) counts: Vec<u64>,
}

impl Histogram {
    /// Counts the finite values; `None` if no value is finite.
    fn of(values: &[f64]) -> Option<Self> {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let (min, max) = (finite().reduce(f64::min)?, finite().reduce(f64::max)?);
        if max - min <= SAME * min.abs().max(max.abs()) {
            return Some(Self { min, max, counts: vec![finite().count() as u64] });
        }
        let mut counts = vec![0; BINS];
        for value in finite() {
            let share = (value - min) / (max - min);
            counts[((share * BINS as f64) as usize).min(BINS - 1)] += 1;
        }
        Some(Self { min, max, counts })
    }

    /// Whether all values are the same, but for rounding.
    pub(super) fn is_constant(&self) -> bool {
        self.counts.len() == 1
    }
}

impl Module {
    pub(crate) fn new(inspection: &Inspection, most: usize, sessions: Vec<Session>) -> Self {
        let of = |is: fn(&SegmentState) -> bool| inspection.segments().filter(move |own| is(&own.state));
        let served = || of(|state| *state == SegmentState::Served);
        let rows = served().map(|own| own.rows).sum();
        let (sample, damaged) = sample(inspection, rows, most);
        let leaves = inspection.spec().leaves().iter().enumerate();
        let of_leaf = |(number, leaf): (usize, &tcx_store::Leaf)| match &leaf.kind {
            LeafKind::Dense { dtype, .. } => Some(Leaf::new(inspection, number, *dtype, &sample)),
            _ => None,
        };
        Self {
            module: inspection.spec().module_id().to_owned(),
            rows,
            bytes: cache::bytes(inspection),
            segments: inspection.segments().count(),
            damaged_segments: of(SegmentState::hides_rows).count(),
            totals: Totals::of(&sessions),
            sessions,
            growth: growth(served().map(|own| (human::millis(own.born), own.rows, own.bytes))),
            sampled: sample.len(),
            damaged,
            outputs: leaves.filter_map(of_leaf).collect(),
        }
    }
}

/// About `most` rows, evenly spaced in the module, and the number of further rows that do not verify.
fn sample(inspection: &Inspection, rows: u64, most: usize) -> (Vec<Row<'_>>, usize) {
    let widest = inspection.spec().leaves().iter().filter_map(|leaf| match &leaf.kind {
        LeafKind::Dense { shape, .. } => Some(shape.iter().product::<usize>()),
        _ => None,
    });
    let most = most.min(ELEMENTS / widest.max().unwrap_or(1).max(1)).max(1);
    let step = usize::try_from(rows).unwrap_or(usize::MAX).div_ceil(most).max(1);
    let (good, damaged): (Vec<_>, Vec<_>) = inspection.rows().step_by(step).partition(Result::is_ok);
    (good.into_iter().filter_map(Result::ok).collect(), damaged.len())
}

/// The growth over time; a segment is as old as its oldest row.
fn growth(segments: impl Iterator<Item = (u64, u64, u64)>) -> Vec<Growth> {
    let mut steps: Vec<_> = segments.map(|(ms, rows, bytes)| Growth { ms, rows, bytes }).collect();
    steps.sort_by_key(|step| step.ms);
    for at in 1..steps.len() {
        steps[at].rows += steps[at - 1].rows;
        steps[at].bytes += steps[at - 1].bytes;
    }
    let every = steps.len().div_ceil(STEPS).max(1);
    let last = steps.len().saturating_sub(1);
    steps
        .into_iter()
        .enumerate()
        .filter(|(at, _)| at % every == 0 || *at == last)
        .map(|(_, step)| step)
        .collect()
}

impl Leaf {
    fn new(inspection: &Inspection, number: usize, dtype: DType, sample: &[Row<'_>]) -> Self {
        let (spec, leaf) = (inspection.spec(), &inspection.spec().leaves()[number]);
        let of = |bytes: &[u8]| numbers(dtype, bytes).into_iter().map(Number::as_f64).collect();
        let sample: Vec<_> = sample.iter().filter(|row| row.leaf(number).is_some()).collect();
        let rows: Vec<Vec<f64>> = sample.iter().filter_map(|row| row.leaf(number)).map(of).collect();
        let norms: Vec<f64> = rows.iter().map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt()).collect();
        let count = |is: fn(&f64) -> bool| rows.iter().map(move |row| row.iter().filter(|x| is(x)).count());
        let nan: Vec<f64> = count(|x| x.is_nan()).map(|count| count as f64).collect();
        let named = rows.iter().zip(&sample).filter(|(row, _)| row.iter().all(|x| x.is_finite()));
        let named: Vec<(String, &[f64])> =
            named.map(|(row, own)| (ids::show(spec.key_type(), own.key), row.as_slice())).collect();
        Self {
            name: leaf.name.clone(),
            r#type: leaf.described(),
            norms: Histogram::of(&norms),
            nan: nan.iter().any(|count| *count > 0.0).then(|| Histogram::of(&nan)).flatten(),
            infinite_rows: count(|x| x.is_infinite()).filter(|count| *count > 0).count(),
            projection: project(&named),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_every_finite_value_once() {
        let values: Vec<f64> = (0..100).map(f64::from).chain([f64::NAN, f64::INFINITY]).collect();
        let histogram = Histogram::of(&values).unwrap();
        assert_eq!((histogram.min, histogram.max), (0.0, 99.0));
        assert_eq!((histogram.counts.len(), histogram.counts.iter().sum::<u64>()), (32, 100));
        assert_eq!(Histogram::of(&[3.0, 3.0]).unwrap().counts, [2]);
        assert_eq!(Histogram::of(&[0.0, 0.0, 0.0]).unwrap().counts, [3]);
        assert_eq!(Histogram::of(&[f64::NAN]), None);
    }

    #[test]
    fn values_that_differ_by_rounding_are_one_value() {
        let norms: Vec<f64> = (0..100).map(|row| 1.0 + f64::from(row) * 1e-7).collect();
        let histogram = Histogram::of(&norms).unwrap();
        assert!(histogram.is_constant());
        assert_eq!(histogram.counts, [100]);
        assert!(!Histogram::of(&[1.0, 1.01]).unwrap().is_constant());
    }

    #[test]
    fn growth_adds_up_and_ends_with_everything() {
        let steps = growth((0..1000).rev().map(|ms| (ms, 2, 10)));
        assert!(steps.len() <= STEPS + 1 && steps.is_sorted_by_key(|step| (step.ms, step.rows)));
        assert_eq!(steps.last(), Some(&Growth { ms: 999, rows: 2000, bytes: 10_000 }));
    }
}
