//! Merging index runs, so that their number stays logarithmic: runs of about the same size become one.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

use super::builder::{run_bytes, write_run};
use super::table::Entries;
use super::{EMPTY, Entry, MOST_SEGMENTS, Run, known_bits};
use crate::schema::key::KeySeed;
use crate::storage::name::SegmentName;

/// The number of runs of one size class that are merged.
const FAN_IN: usize = 4;
/// The largest number at a time; there are more only where runs were removed or never made.
const MOST_AT_ONCE: usize = 16;

/// The runs to merge next: of the smallest size class that is full. Classes are powers of [`FAN_IN`].
pub(crate) fn mergeable(runs: &[Arc<Run>]) -> Option<Vec<Arc<Run>>> {
    let mut classes: BTreeMap<u32, Vec<Arc<Run>>> = BTreeMap::new();
    for run in runs {
        classes.entry(run.entries().max(1).ilog(FAN_IN)).or_default().push(run.clone());
    }
    classes.into_values().filter(|class| class.len() >= FAN_IN).find_map(fitting)
}

/// Of these runs those with the fewest segments, as many as one run can know; none if that is not two.
fn fitting(mut class: Vec<Arc<Run>>) -> Option<Vec<Arc<Run>>> {
    class.sort_by_key(|run| run.segments().len());
    class.truncate(MOST_AT_ONCE);
    while !fit_in_one(&class) {
        class.pop();
    }
    (class.len() > 1).then_some(class)
}

/// Whether one run can know all segments of these.
pub(crate) fn fit_in_one(runs: &[Arc<Run>]) -> bool {
    runs.iter().map(|run| run.segments().len()).sum::<usize>() <= MOST_SEGMENTS
}

/// Writes one run of the entries of all of `runs`; a segment that several of them know is taken once, and one that is
/// `gone` is left out.
///
/// # Errors
///
/// Returns an error if a write fails, if the segments are too many for one run, if the runs have different seeds, or if a run is
/// damaged: the merged run would lack entries.
pub(crate) fn write_merged(
    out: &mut dyn Write,
    runs: &[Arc<Run>],
    gone: &dyn Fn(SegmentName) -> bool,
) -> io::Result<()> {
    let seed = runs.first().map_or(KeySeed::NONE, |run| run.seed());
    if runs.iter().any(|run| run.seed() != seed) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "index runs of different seeds cannot be merged",
        ));
    }
    let numbers = Numbers::new(runs, gone);
    write_run(out, seed, &numbers.names, (count(runs, &numbers)?, Merge::new(runs, &numbers)))
}

/// Runs with entries that no lookup needs, and what one run without these entries takes.
#[derive(Debug)]
pub(crate) struct Stale {
    pub(crate) runs: Vec<Arc<Run>>,
    /// The segments that the one run leaves out.
    pub(crate) left_out: HashSet<SegmentName>,
    /// The bytes of the one run, about.
    pub(crate) bytes: usize,
}

impl Stale {
    /// The runs that lead to segments which are `gone`, or which an earlier run leads to. `None` if there are none, or if
    /// they do not fit in one.
    pub(crate) fn among(runs: &[Arc<Run>], gone: &dyn Fn(SegmentName) -> bool) -> Option<Self> {
        let numbers = Numbers::new(runs, gone);
        let is_stale = |(number, _): &(usize, &Arc<Run>)| !numbers.takes_all_of(*number);
        let stale: Vec<_> = runs.iter().enumerate().filter(is_stale).map(|(_, run)| run.clone()).collect();
        let others = runs.iter().enumerate().filter(|own| !is_stale(own));
        let mut left_out: HashSet<_> = others.flat_map(|(_, run)| run.segments().iter().copied()).collect();
        left_out
            .extend(stale.iter().flat_map(|run| run.segments().iter().copied()).filter(|name| gone(*name)));
        let numbers = Numbers::new(&stale, &|name| left_out.contains(&name));
        let bytes = run_bytes(numbers.names.len(), count(&stale, &numbers).ok()?)?;
        (!stale.is_empty()).then_some(Self { runs: stale, left_out, bytes })
    }

    /// The bytes that are free once there is one run instead of these, about.
    pub(crate) fn frees(&self) -> usize {
        self.runs.iter().map(|run| run.bytes()).sum::<usize>().saturating_sub(self.bytes)
    }
}

/// The segments of the merged run.
struct Numbers {
    names: Vec<SegmentName>,
    /// By run and segment: the segment's number in the merged run, if it takes the segment from this one.
    by_run: Vec<Vec<Option<u16>>>,
}

impl Numbers {
    fn new(runs: &[Arc<Run>], gone: &dyn Fn(SegmentName) -> bool) -> Self {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        let mut number = |name: &SegmentName| {
            let taken = !gone(*name) && seen.insert(*name);
            // Numbers that do not fit are never used: a run of so many segments is not written.
            taken.then(|| {
                names.push(*name);
                (names.len() - 1) as u16
            })
        };
        let by_run = runs.iter().map(|run| run.segments().iter().map(&mut number).collect()).collect();
        Self { names, by_run }
    }

    /// Whether every entry of the run is taken.
    fn takes_all_of(&self, run: usize) -> bool {
        self.by_run[run].iter().all(Option::is_some)
    }

    fn renumbered(&self, run: usize, entry: Entry) -> Option<Entry> {
        let segment = (*self.by_run[run].get(usize::from(entry.segment()))?)?;
        Some(Entry { mark: known_bits(entry.mark) | u64::from(segment), ..entry })
    }
}

/// How many entries the merged run has.
fn count(runs: &[Arc<Run>], numbers: &Numbers) -> io::Result<usize> {
    let mut count = 0;
    for (number, run) in runs.iter().enumerate() {
        if numbers.takes_all_of(number) {
            count += run.entries();
            continue;
        }
        let mut met = 0;
        let entries = run.table().entries().inspect(|_| met += 1);
        count += entries.filter(|entry| numbers.renumbered(number, *entry).is_some()).count();
        if met != run.entries() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an index run is damaged"));
        }
    }
    Ok(count)
}

/// The entries of several runs, in ascending order of their hashes.
struct Merge<'a> {
    numbers: &'a Numbers,
    heads: Vec<Head<'a>>,
}

/// What is left of a run.
struct Head<'a> {
    /// The run's place among the merged ones.
    run: usize,
    entries: Entries<'a>,
    /// Its next entry, with its number in the merged run; none is left if this one is [`EMPTY`].
    next: Entry,
}

impl Head<'_> {
    /// Takes the next entry.
    fn take(&mut self, numbers: &Numbers) -> Entry {
        let next = self.entries.find_map(|entry| numbers.renumbered(self.run, entry));
        std::mem::replace(&mut self.next, next.unwrap_or(Entry { mark: EMPTY, row: 0 }))
    }
}

impl<'a> Merge<'a> {
    fn new(runs: &'a [Arc<Run>], numbers: &'a Numbers) -> Self {
        let head = |(number, run): (usize, &'a Arc<Run>)| {
            let next = Entry { mark: EMPTY, row: 0 };
            let mut head = Head { run: number, entries: run.table().entries(), next };
            head.take(numbers);
            head
        };
        Self { numbers, heads: runs.iter().enumerate().map(head).collect() }
    }
}

impl Iterator for Merge<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        // Few runs are merged at a time: looking at each head costs less than keeping them in a heap.
        let first = self.heads.iter_mut().min_by_key(|head| head.next.mark)?;
        (first.next.mark != EMPTY).then(|| first.take(self.numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::build_run;
    use crate::schema::key::{KeyHash, KeySeed};

    const SEED: KeySeed = KeySeed::NONE;
    use crate::sys::bytes::Random;
    use crate::sys::mmap::Mapped;

    fn run(bytes: &[u8]) -> Run {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Run::open(Mapped::new(&file).unwrap(), Random::new()).unwrap()
    }

    fn small(number: usize, rows: usize) -> (SegmentName, Vec<KeyHash>) {
        let hashes = (0..rows).map(|row| SEED.hash(format!("{number} {row}").as_bytes(), 0)).collect();
        (SegmentName { random: Random::new(), tail: number as u64 }, hashes)
    }

    #[test]
    fn a_merged_run_knows_every_row_once() {
        let segments: Vec<_> = (0..5).map(|number| small(number, 700 + number)).collect();
        // The last two runs know a segment both.
        let parts = [&segments[..1], &segments[1..2], &segments[2..4], &segments[3..5]];
        let runs: Vec<_> = parts.iter().map(|part| Arc::new(run(&build_run(SEED, part)))).collect();
        let mut bytes = Vec::new();
        write_merged(&mut bytes, &runs, &|_| false).unwrap();
        let merged = run(&bytes);
        assert_eq!(merged.entries(), 700 + 701 + 702 + 703 + 704);
        for (name, hashes) in &segments {
            for (row, &hash) in hashes.iter().enumerate() {
                let found = merged.table().probe_from(hash, merged.table().home(hash)).unwrap();
                let found =
                    found.map(|found| (merged.segments()[found.segment as usize], found.row as usize));
                assert_eq!(found, Some((*name, row)));
            }
        }
    }

    #[test]
    fn a_merged_run_leaves_out_what_is_gone() {
        let segments: Vec<_> = (0..4).map(|number| small(number, 500)).collect();
        let runs: Vec<_> = [&segments[..2], &segments[2..]]
            .iter()
            .map(|part| Arc::new(run(&build_run(SEED, part))))
            .collect();
        let gone = [segments[0].0, segments[3].0];
        let mut bytes = Vec::new();
        write_merged(&mut bytes, &runs, &|name| gone.contains(&name)).unwrap();
        let merged = run(&bytes);
        assert_eq!(merged.segments(), [segments[1].0, segments[2].0]);
        assert_eq!((merged.entries(), merged.table().entries().count()), (1000, 1000));
        for (name, hashes) in &segments {
            for (row, &hash) in hashes.iter().enumerate() {
                let found = merged.table().probe_from(hash, merged.table().home(hash)).unwrap();
                assert_eq!(found.is_none(), gone.contains(name));
                assert!(found.is_none_or(|found| found.row as usize == row));
            }
        }
        bytes.clear();
        write_merged(&mut bytes, &runs, &|_| true).unwrap();
        assert_eq!((run(&bytes).entries(), run(&bytes).segments()), (0, &[][..]));
    }

    #[test]
    fn a_damaged_run_is_not_merged() {
        let segments = [small(0, 5000), small(1, 5000)];
        let mut damaged = build_run(SEED, &segments);
        let middle = damaged.len() - 1000;
        damaged[middle] ^= 1;
        let runs = [Arc::new(run(&build_run(SEED, &[small(2, 10)]))), Arc::new(run(&damaged))];
        for gone in [None, Some(segments[0].0)] {
            let merged = write_merged(&mut Vec::new(), &runs, &|name| Some(name) == gone);
            assert_eq!(merged.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    fn many(numbers: std::ops::Range<usize>) -> Vec<(SegmentName, Vec<KeyHash>)> {
        numbers.map(|number| small(number, 1)).collect()
    }

    #[test]
    fn a_run_has_no_more_segments_than_it_can_number() {
        let most = run(&build_run(SEED, &many(0..MOST_SEGMENTS + 3)));
        assert_eq!((most.segments().len(), most.entries()), (MOST_SEGMENTS, MOST_SEGMENTS));
        let last = SEED.hash(format!("{} 0", MOST_SEGMENTS - 1).as_bytes(), 0);
        let last = most.table().probe_from(last, most.table().home(last)).unwrap().unwrap();
        assert_eq!(usize::from(last.segment), MOST_SEGMENTS - 1);
        let runs = [Arc::new(most), Arc::new(run(&build_run(SEED, &[small(0, 1)])))];
        assert!(!fit_in_one(&runs));
        let merged = write_merged(&mut Vec::new(), &runs, &|_| false);
        assert_eq!(merged.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn runs_that_do_not_fit_in_one_are_not_merged() {
        let large: Vec<_> =
            (0..5).map(|i| Arc::new(run(&build_run(SEED, &many(i * 30_000..(i + 1) * 30_000))))).collect();
        let inputs = mergeable(&large).unwrap();
        assert_eq!(inputs.len(), 2);
        let mut larger: Vec<_> =
            (0..4).map(|i| Arc::new(run(&build_run(SEED, &many(i * 33_000..(i + 1) * 33_000))))).collect();
        assert!(mergeable(&larger).is_none());
        // They do not keep others from being merged.
        larger.extend((0..4).map(|i| Arc::new(run(&build_run(SEED, &[small(i, 70_000)])))));
        assert_eq!(mergeable(&larger).unwrap().len(), 4);
    }

    #[test]
    fn four_runs_of_a_size_are_merged_and_the_number_stays_logarithmic() {
        let mut runs: Vec<Arc<Run>> = Vec::new();
        let mut most = 0;
        for number in 0..300 {
            runs.push(Arc::new(run(&build_run(SEED, &[small(number, 10)]))));
            while let Some(inputs) = mergeable(&runs) {
                let mut bytes = Vec::new();
                write_merged(&mut bytes, &inputs, &|_| false).unwrap();
                runs.retain(|run| !inputs.iter().any(|input| Arc::ptr_eq(run, input)));
                runs.push(Arc::new(run(&bytes)));
            }
            most = most.max(runs.len());
        }
        assert!(most <= 3 * 6, "{most} runs of 300 segments");
        assert_eq!(runs.iter().map(|run| run.entries()).sum::<usize>(), 3000);
    }
}
