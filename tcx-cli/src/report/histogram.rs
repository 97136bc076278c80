//! Histograms.

use serde::Serialize;

const BINS: usize = 32;
/// Values that differ less, in proportion, are the same number with other rounding: norms of normalized rows, say. Bins
/// would draw the rounding.
const SAME: f64 = 1e-3;

/// Counts in bins of equal width; one bin if the values are the same.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Histogram {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) counts: Vec<u64>,
}

impl Histogram {
    /// Counts the finite values; `None` if no value is finite.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
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
}
