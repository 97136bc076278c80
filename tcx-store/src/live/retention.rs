//! How long rows are kept, and how much room a folder takes.

use std::sync::Arc;

use crate::changes::now_millis;
use crate::options::{Options, WhenFull};
use crate::segment::{MAX_SEGMENT_BYTES, Segment};
use crate::sys::clock;

/// The number of age groups that the limits of this process make, so that what is removed for its age is of that age.
const AGE_GROUPS: u64 = 16;

/// Rows that wait become a segment when they take this part of a limit that is kept by evicting segments.
pub(crate) const EVICTED_PARTS: u64 = 16;

/// A limit that allows no more rows than a few does not make a segment of each.
const SMALLEST_PART: u64 = 8 << 10;

/// The limits of one folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    time_to_live: Option<u64>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) when_full: WhenFull,
}

impl Retention {
    pub(crate) fn new(options: &Options) -> Self {
        let time_to_live = options.time_to_live.map(clock::whole_millis);
        Self { time_to_live, max_bytes: options.max_bytes, when_full: options.when_full }
    }

    /// How many bytes of waiting rows become a segment, where `wanted` is the setting. Segments are evicted whole: one that takes a large part of
    /// the limit would take many rows with it that fit, and one that is larger than the limit all of them.
    pub(crate) fn flush_bytes(&self, wanted: usize) -> usize {
        wanted.min(self.evicted_part())
    }

    /// The bytes of the largest segment that is written, or that others are joined to.
    pub(crate) fn largest_segment(&self) -> usize {
        MAX_SEGMENT_BYTES.min(self.evicted_part().saturating_mul(2))
    }

    fn evicted_part(&self) -> usize {
        let part = self
            .max_bytes
            .filter(|_| self.when_full.evicts())
            .map(|max| (max / EVICTED_PARTS).max(SMALLEST_PART));
        part.map_or(usize::MAX, |part| usize::try_from(part).unwrap_or(usize::MAX))
    }

    /// Whether this process evicts by uses, so that it has to know those of other processes.
    pub(crate) fn evicts_by_uses(&self) -> bool {
        self.max_bytes.is_some() && self.when_full.counts_uses()
    }

    /// Rows that were computed before this moment, in milliseconds since 1970, are not served any more.
    pub(crate) fn oldest_kept(&self) -> u64 {
        self.time_to_live.map_or(0, |time| now_millis().saturating_sub(time))
    }

    /// When the first of these segments is to be let go of.
    pub(crate) fn expires<'a>(&self, segments: impl Iterator<Item = &'a Arc<Segment>>) -> Option<u64> {
        let time = self.time_to_live?;
        segments.map(|segment| segment.born().saturating_add(time)).min()
    }

    /// The age group of a segment among `all` at the time `now`: segments are joined only within one.
    pub(crate) fn age_group(&self, segment: &Segment, all: &[Arc<Segment>], now: u64) -> AgeGroup {
        let ages = all.iter().map(|segment| segment.born());
        let (oldest, newest) = (ages.clone().min().unwrap_or(0), ages.max().unwrap_or(0));
        let span = match (self.time_to_live, self.max_bytes) {
            (Some(time), _) => Some(time),
            // Whatever the policy: eviction removes whole segments, and would remove all rows of a single one.
            (None, Some(_)) if self.when_full.evicts() => Some(newest - oldest),
            _ => None,
        };
        // Counted from 1970, in powers of two: a segment's group does not change with every one that comes.
        let own = span.map_or(0, |span| segment.born() >> (span / AGE_GROUPS).max(1).ilog2());
        AgeGroup { shared: shared_group(segment.born(), now), own }
    }
}

/// Segments of one group differ so little in age that they may be joined, although the result is as old as its oldest row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AgeGroup {
    /// By what any process may have as its time to live.
    shared: u64,
    /// By the limits of this process.
    own: u64,
}

/// Segments that are younger than this, in milliseconds, are one group (65 s); so long is the shortest interval, too.
const MOMENT: u64 = 1 << 16;

/// The group of a segment as old as `born`: the processes that share a folder may have different times to live, so every process
/// joins only what does not lose half of any of them.
///
/// Time since 1970 is divided into intervals whose lengths are powers of two, the longer the older: `length` is right for an
/// interval if even its end is `2 * (length + MOMENT)` ago. Each interval consists of two of half the length. So a row stays in
/// the interval of its segment, however often that is joined, but for the `MOMENT` by which the rows of a segment differ that was
/// joined when it was young. Rows that were joined at the age `age` of the oldest thus differ by less than
/// `length + MOMENT <= age / 2`, or by `2 * MOMENT` in the shortest intervals.
fn shared_group(born: u64, now: u64) -> u64 {
    if now.saturating_sub(born) < MOMENT {
        return u64::MAX;
    }
    let start = |length: u64| born - born % length;
    let is_right = |length: &u64| {
        let distance = length.saturating_add(MOMENT).saturating_mul(2);
        start(*length).saturating_add(*length).saturating_add(distance) <= now
    };
    let lengths = std::iter::successors(Some(2 * MOMENT), |length| length.checked_mul(2));
    // The interval that contains a wrong one ends later: it is wrong as well.
    start(lengths.take_while(is_right).last().unwrap_or(MOMENT))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const DAY: u64 = 24 * 60 * 60 * 1000;

    /// The age of a segment is that of its oldest row; the youngest is known to the test alone.
    #[derive(Clone, Copy)]
    struct Rows {
        oldest: u64,
        youngest: u64,
    }

    #[test]
    fn rows_that_are_joined_again_and_again_never_differ_by_more_than_half_of_their_age() {
        // Each seed is another rhythm of sealing and joining everything that may be joined.
        for seed in 0..40_u64 {
            let (mut now, mut segments) = (1_700_000_000_000 + seed * 7_919_003, Vec::<Rows>::new());
            let mut random = seed;
            for _ in 0..2_000 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                now += (random >> 40) % (1 << (10 + seed % 14));
                segments.push(Rows { oldest: now, youngest: now });
                if random >> 62 == 0 {
                    let mut groups: BTreeMap<u64, Rows> = BTreeMap::new();
                    for own in segments.drain(..) {
                        let group = groups.entry(shared_group(own.oldest, now)).or_insert(own);
                        group.oldest = group.oldest.min(own.oldest);
                        group.youngest = group.youngest.max(own.youngest);
                    }
                    segments.extend(groups.into_values());
                }
                for Rows { oldest, youngest } in &segments {
                    let (lost, age) = (youngest - oldest, now - oldest);
                    assert!(lost <= (age / 2).max(2 * MOMENT), "{lost} ms of {age} ms, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn there_are_few_groups_however_old_the_rows_are() {
        let now = 1_700_000_000_000;
        for days in [1, 30, 360] {
            let ages = (0..days * DAY).step_by(MOMENT as usize / 2);
            let groups: BTreeSet<_> = ages.map(|age| shared_group(now - age, now)).collect();
            // Three of each length, and those of the last minutes.
            let most = 3 * (days * DAY / MOMENT).ilog2() as usize + 6;
            assert!(groups.len() <= most, "{} groups in {days} days", groups.len());
        }
    }

    #[test]
    fn a_time_that_no_clock_has_has_a_group() {
        for (born, now) in [(0, 0), (u64::MAX, 0), (u64::MAX, u64::MAX), (0, u64::MAX), (1, u64::MAX - 1)] {
            assert_eq!(shared_group(born, now), shared_group(born, now));
        }
    }
}
