//! The figures of a report, from the segments' footers and from a sample of the rows.

use serde::Serialize;
use tcx_store::{Inspection, LeafKind, Row, SegmentState};

use super::outputs::Leaf;
use super::sessions::{Session, Totals};
use super::shades::Shades;
use crate::cache;
use crate::text::human;

/// The maximum of elements in a sample: it has fewer rows if the outputs are large.
const ELEMENTS: usize = 4_000_000;
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

impl Module {
    /// Samples at most `most` rows; the output `color_by`, or one that fits, colours the points.
    pub(crate) fn new(
        inspection: &Inspection,
        most: usize,
        color_by: Option<&str>,
        sessions: Vec<Session>,
    ) -> Self {
        let of = |is: fn(&SegmentState) -> bool| inspection.segments().filter(move |own| is(&own.state));
        let served = || of(|state| *state == SegmentState::Served);
        let rows = served().map(|own| own.rows).sum();
        let (sample, damaged) = sample(inspection, rows, most);
        let shades = Shades::choose(inspection.spec(), color_by);
        let leaves = 0..inspection.spec().leaves().len();
        let outputs = leaves.filter_map(|number| Leaf::new(inspection, number, &sample, shades.as_ref()));
        Self {
            module: inspection.folder().to_owned(),
            rows,
            bytes: cache::bytes(inspection),
            segments: inspection.segments().count(),
            damaged_segments: of(SegmentState::hides_rows).count(),
            totals: Totals::of(&sessions),
            sessions,
            growth: growth(served().map(|own| (human::millis(own.born), own.rows, own.bytes))),
            sampled: sample.len(),
            damaged,
            outputs: outputs.collect(),
        }
    }
}

/// About `most` rows, evenly spaced in the module, and the number of further rows that do not verify.
fn sample(inspection: &Inspection, rows: u64, most: usize) -> (Vec<Row<'_>>, usize) {
    let served = inspection.segments().filter(|own| own.state == SegmentState::Served);
    let row_bytes = served.map(|own| own.bytes).sum::<u64>() / rows.max(1);
    let widest = inspection.spec().leaves().iter().filter_map(|leaf| match &leaf.kind {
        LeafKind::Dense { shape, .. } => Some(shape.iter().product::<usize>()),
        // No more than a row takes on average.
        LeafKind::Ragged { dtype, .. } => usize::try_from(row_bytes).ok().map(|bytes| bytes / dtype.size()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_adds_up_and_ends_with_everything() {
        let steps = growth((0..1000).rev().map(|ms| (ms, 2, 10)));
        assert!(steps.len() <= STEPS + 1 && steps.is_sorted_by_key(|step| (step.ms, step.rows)));
        assert_eq!(steps.last(), Some(&Growth { ms: 999, rows: 2000, bytes: 10_000 }));
    }
}
