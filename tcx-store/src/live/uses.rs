//! How much each segment was used: by this process as its lookups have counted, by others as they have recorded.
//!
//! Uses only decide what is evicted first. So estimates are good enough, and what is lost with a killed process is no error.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::segment::Segment;
use crate::storage::name::SegmentName;
use crate::sys::bytes::u64_at;

/// A use counts half after this time, in milliseconds (a day).
const HALF_LIFE: f64 = 86_400_000.;
/// So long a segment that is not served is remembered, in milliseconds (an hour): its uses are handed on a moment after it is replaced.
const REMEMBERED: u64 = 3_600_000;

/// The beginning of a segment's name, as records have it. Its bits are random: no two segments of a folder share them.
pub(crate) type ShortName = u64;

pub(crate) fn short(name: SegmentName) -> ShortName {
    // It is never too short.
    u64_at(&name.random.0, 0).unwrap_or_default()
}

/// Rows of a segment that were served, those of long ago counted less.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct UseCount {
    /// As of the time `at`.
    rows: f64,
    at: u64,
    /// When a row was served last. As all times here, in milliseconds since 1970.
    pub(crate) last: u64,
}

impl UseCount {
    /// `rows` rows at the time `at`, the last one served at the time `last`.
    pub(crate) fn new(rows: u64, at: u64, last: u64) -> Self {
        Self { rows: rows as f64, at, last }
    }

    /// What it counts at the time `now`.
    pub(crate) fn rows(&self, now: u64) -> f64 {
        // A clock that was set back makes no use count more than once.
        let passed = now.saturating_sub(self.at) as f64;
        self.rows * (-passed / HALF_LIFE).exp2()
    }

    /// Both, as of the time `now`.
    pub(crate) fn and(&self, other: &Self, now: u64) -> Self {
        Self { rows: self.rows(now) + other.rows(now), at: now, last: self.last.max(other.last) }
    }
}

/// The uses of the segments of one folder.
#[derive(Debug, Default)]
pub(crate) struct UseCounts {
    own: HashMap<SegmentName, UseCount>,
    /// As other processes have recorded them.
    others: HashMap<ShortName, UseCount>,
    /// When their records were read.
    read: Option<u64>,
}

impl UseCounts {
    /// Takes what lookups have counted in these segments since the last time.
    pub(crate) fn take(&mut self, segments: &[Arc<Segment>], now: u64) {
        for segment in segments {
            let rows = segment.take_uses();
            if rows > 0 {
                self.add(segment.name(), &UseCount::new(rows, now, now), now);
            }
        }
    }

    /// As [`take`](Self::take), for all segments that are served, and forgets the others after a while.
    pub(crate) fn settle(&mut self, served: &[Arc<Segment>], now: u64) {
        self.take(served, now);
        let served: HashSet<SegmentName> = served.iter().map(|segment| segment.name()).collect();
        self.own.retain(|name, count| served.contains(name) || now.saturating_sub(count.last) < REMEMBERED);
    }

    fn add(&mut self, name: SegmentName, more: &UseCount, now: u64) {
        let count = self.own.entry(name).or_default();
        *count = count.and(more, now);
    }

    /// A segment that this process has written takes the place of others, and their uses, those of other processes too: these
    /// know nothing of it.
    pub(crate) fn hand_on(&mut self, from: &[SegmentName], to: SegmentName, now: u64) {
        for name in from {
            let count = self.of(*name, now);
            self.own.remove(name);
            if count.last > 0 {
                self.add(to, &count, now);
            }
        }
    }

    /// The uses of a segment by all processes.
    pub(crate) fn of(&self, name: SegmentName, now: u64) -> UseCount {
        let own = self.own.get(&name).copied().unwrap_or_default();
        self.others.get(&short(name)).map_or(own, |others| own.and(others, now))
    }

    /// The uses by this process.
    pub(crate) fn own(&self) -> impl Iterator<Item = (ShortName, UseCount)> + '_ {
        self.own.iter().map(|(name, count)| (short(*name), *count))
    }

    /// Whether the records of other processes are to be read: they are written once a minute.
    pub(crate) fn is_outdated(&self, now: u64) -> bool {
        self.read.is_none_or(|read| now.abs_diff(read) >= 60_000)
    }

    /// What other processes have recorded, each use of each.
    pub(crate) fn learn(&mut self, recorded: impl Iterator<Item = (ShortName, UseCount)>, now: u64) {
        self.others.clear();
        for (name, count) in recorded {
            let others = self.others.entry(name).or_default();
            *others = others.and(&count, now);
        }
        self.read = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bytes::Random;

    const DAY: u64 = 86_400_000;

    fn name(number: u8) -> SegmentName {
        SegmentName { random: Random([number; 16]), tail: 7 }
    }

    #[test]
    fn a_use_counts_half_after_each_day() {
        let count = UseCount::new(80, 5 * DAY, 5 * DAY);
        let at = |days: u64| count.rows(days * DAY) as u64;
        assert_eq!([at(5), at(6), at(8), at(4)], [80, 40, 10, 80]);
        let both = count.and(&UseCount::new(3, 7 * DAY, 7 * DAY), 7 * DAY);
        assert_eq!((both.rows(7 * DAY) as u64, both.last), (23, 7 * DAY));
    }

    #[test]
    fn a_segment_that_replaces_others_has_the_uses_of_all_processes() {
        let mut counts = UseCounts::default();
        counts.add(name(1), &UseCount::new(8, DAY, DAY), DAY);
        counts.learn(
            [(short(name(1)), UseCount::new(20, DAY, DAY)), (short(name(2)), UseCount::new(4, DAY, DAY))]
                .into_iter(),
            DAY,
        );
        counts.hand_on(&[name(1), name(2), name(3)], name(9), DAY);
        assert_eq!(counts.of(name(9), DAY).rows(DAY) as u64, 32);
        assert_eq!(counts.own().collect::<Vec<_>>(), [(short(name(9)), UseCount::new(32, DAY, DAY))]);
        counts.hand_on(&[name(3)], name(10), DAY);
        assert_eq!(counts.own().count(), 1, "what was never used hands nothing on");
    }
}
