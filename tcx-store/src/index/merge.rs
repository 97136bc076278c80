//! Merging index runs, so that their number stays logarithmic: runs of about the same size become one.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::iter::Peekable;
use std::sync::Arc;

use super::builder::write_run;
use super::{Entry, Run};
use crate::name::SegmentName;

/// So many runs of one size class are merged.
const FAN_IN: usize = 4;
/// At most so many at a time; there are more only where runs were removed or never made.
const MOST_AT_ONCE: usize = 16;

/// The runs to merge next: of the smallest size class that is full. Classes are powers of [`FAN_IN`].
pub(crate) fn mergeable(runs: &[Arc<Run>]) -> Option<Vec<Arc<Run>>> {
    let mut classes: BTreeMap<u32, Vec<Arc<Run>>> = BTreeMap::new();
    for run in runs {
        classes.entry(run.entries().max(1).ilog(FAN_IN)).or_default().push(run.clone());
    }
    let mut class = classes.into_values().find(|class| class.len() >= FAN_IN)?;
    class.truncate(MOST_AT_ONCE);
    Some(class)
}

/// Writes one run of the entries of all of `runs`; a segment that several of them know is taken once.
///
/// The runs are intact: what follows a damaged slot would be missing from the merged run.
///
/// # Errors
///
/// A write that fails.
pub(crate) fn write_merged(out: &mut dyn Write, runs: &[Arc<Run>]) -> io::Result<()> {
    let mut names = Vec::new();
    // By run and segment: the segment's number in the merged run.
    let numbers: Vec<Vec<Option<u32>>> =
        runs.iter().map(|run| run.segments().iter().map(|name| number(name, &mut names)).collect()).collect();
    let entries = || Merge::new(runs, &numbers);
    write_run(out, &names, entries().count(), entries)
}

/// The number of a segment that was not met in an earlier run.
fn number(name: &SegmentName, names: &mut Vec<SegmentName>) -> Option<u32> {
    (!names.contains(name)).then(|| {
        names.push(*name);
        names.len() as u32 - 1
    })
}

/// The entries of several runs, in ascending order.
struct Merge<'a> {
    heads: Vec<Peekable<Box<dyn Iterator<Item = Entry> + 'a>>>,
}

impl<'a> Merge<'a> {
    fn new(runs: &'a [Arc<Run>], numbers: &'a [Vec<Option<u32>>]) -> Self {
        let head = |(run, numbers): (&'a Arc<Run>, &'a Vec<Option<u32>>)| {
            let renumbered = run.iter().filter_map(|entry| {
                let segment = (*numbers.get(entry.segment as usize)?)?;
                Some(Entry { segment, ..entry })
            });
            (Box::new(renumbered) as Box<dyn Iterator<Item = Entry>>).peekable()
        };
        Self { heads: runs.iter().zip(numbers).map(head).collect() }
    }
}

impl Iterator for Merge<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        // Few runs are merged at a time: looking at each head costs less than keeping them in a heap.
        let heads = self.heads.iter_mut().enumerate();
        let (first, _) =
            heads.filter_map(|(i, head)| head.peek().map(|entry| (i, *entry))).min_by_key(|(_, e)| *e)?;
        self.heads[first].next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Random;
    use crate::index::build_run;
    use crate::key::{KeyHash, hash};
    use crate::mmap::Mapped;

    fn run(bytes: &[u8]) -> Run {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Run::open(Mapped::new(&file).unwrap(), Random::new()).unwrap()
    }

    fn small(number: usize, rows: usize) -> (SegmentName, Vec<KeyHash>) {
        let hashes = (0..rows).map(|row| hash(format!("{number} {row}").as_bytes(), 0)).collect();
        (SegmentName { random: Random::new(), tail: number as u64 }, hashes)
    }

    #[test]
    fn a_merged_run_knows_every_row_once() {
        let segments: Vec<_> = (0..5).map(|number| small(number, 700 + number)).collect();
        // The last two runs know a segment both.
        let parts = [&segments[..1], &segments[1..2], &segments[2..4], &segments[3..5]];
        let runs: Vec<_> = parts.iter().map(|part| Arc::new(run(&build_run(part)))).collect();
        let mut bytes = Vec::new();
        write_merged(&mut bytes, &runs).unwrap();
        let merged = run(&bytes);
        assert_eq!(merged.entries(), 700 + 701 + 702 + 703 + 704);
        for (name, hashes) in &segments {
            for (row, &hash) in hashes.iter().enumerate() {
                let found = merged.probe(hash, None).unwrap();
                let found =
                    found.map(|found| (merged.segments()[found.segment as usize], found.row as usize));
                assert_eq!(found, Some((*name, row)));
            }
        }
    }

    #[test]
    fn four_runs_of_a_size_are_merged_and_the_number_stays_logarithmic() {
        let mut runs: Vec<Arc<Run>> = Vec::new();
        let mut most = 0;
        for number in 0..300 {
            runs.push(Arc::new(run(&build_run(&[small(number, 10)]))));
            while let Some(inputs) = mergeable(&runs) {
                let mut bytes = Vec::new();
                write_merged(&mut bytes, &inputs).unwrap();
                runs.retain(|run| !inputs.iter().any(|input| Arc::ptr_eq(run, input)));
                runs.push(Arc::new(run(&bytes)));
            }
            most = most.max(runs.len());
        }
        assert!(most <= 3 * 6, "{most} runs of 300 segments");
        assert_eq!(runs.iter().map(|run| run.entries()).sum::<usize>(), 3000);
    }
}
