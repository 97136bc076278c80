//! Sets of the numbers of work ranges, kept as intervals: workers lease ranges one after the other, so a set of a million numbers is
//! a few intervals.

use std::collections::BTreeMap;
use std::fmt;

/// The most intervals that are read from a file.
const MOST_INTERVALS: usize = 1 << 20;

/// A set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    /// The first number of each interval, and the one behind its last. Intervals neither overlap nor touch.
    intervals: BTreeMap<u64, u64>,
}

impl RangeSet {
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.interval_of(number).is_some()
    }

    /// The interval that has the number.
    fn interval_of(&self, number: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.intervals.range(..=number).next_back()?;
        (number < end).then_some((start, end))
    }

    pub(crate) fn insert(&mut self, number: u64) {
        self.insert_all(number, number.saturating_add(1));
    }

    /// Adds the numbers from `start` to before `end`.
    pub(crate) fn insert_all(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        // Each interval that overlaps or touches the new one becomes a part of it.
        while let Some((&own_start, &own_end)) = self.intervals.range(..=end).next_back() {
            if own_end < start {
                break;
            }
            (start, end) = (start.min(own_start), end.max(own_end));
            self.intervals.remove(&own_start);
        }
        self.intervals.insert(start, end);
    }

    /// Adds the numbers of another set.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (&start, &end) in &other.intervals {
            self.insert_all(start, end);
        }
    }

    /// How many numbers below `end` it has.
    pub(crate) fn count_below(&self, end: u64) -> u64 {
        self.intervals.range(..end).map(|(&start, &behind)| behind.min(end) - start).sum()
    }

    /// Whether it has every number below `end`.
    pub(crate) fn has_all_below(&self, end: u64) -> bool {
        end == 0 || self.intervals.first_key_value().is_some_and(|(&start, &own)| start == 0 && own >= end)
    }

    /// Of the numbers from `from` to before `end` that are not in the set, the one after `skip` others.
    pub(crate) fn nth_free(&self, from: u64, end: u64, skip: u64) -> Option<u64> {
        let (mut at, mut skip) = (from, skip);
        if let Some((_, behind)) = self.interval_of(at) {
            at = behind;
        }
        for (&start, &behind) in self.intervals.range(at..) {
            let free = start.min(end).saturating_sub(at);
            if skip < free {
                return Some(at + skip);
            }
            (skip, at) = (skip - free, behind);
        }
        at.checked_add(skip).filter(|&number| number < end)
    }

    /// Reads what [`Display`](fmt::Display) writes; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut set = Self::default();
        for interval in text.split(',').filter(|interval| !interval.is_empty()) {
            let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last == u64::MAX || set.intervals.len() >= MOST_INTERVALS {
                return None;
            }
            set.insert_all(first, last + 1);
        }
        Some(set)
    }
}

/// `0-11,14`.
impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (start, end)) in self.intervals.iter().enumerate() {
            let (comma, last) = (if at > 0 { "," } else { "" }, end - 1);
            if *start == last { write!(f, "{comma}{start}")? } else { write!(f, "{comma}{start}-{last}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::simulation::chance::Chance;

    #[test]
    fn a_set_of_ranges_is_the_set_that_a_plain_one_is() {
        for seed in 0..200 {
            let (mut chance, mut set, mut plain) = (Chance::new(seed), RangeSet::default(), BTreeSet::new());
            for _ in 0..chance.below(40) {
                let start = chance.below(60) as u64;
                let end = start + chance.below(4) as u64;
                set.insert_all(start, end);
                plain.extend(start..end);
            }
            let from = chance.below(64) as u64;
            for (number, skip) in (0..70).zip((0..10).cycle()) {
                assert_eq!(set.contains(number), plain.contains(&number));
                let below = plain.range(..number).count() as u64;
                assert_eq!(set.count_below(number), below, "{set} below {number}");
                let all = (0..number).all(|number| plain.contains(&number));
                assert_eq!(set.has_all_below(number), all, "{set} below {number}");
                let free = (from..number).filter(|number| !plain.contains(number)).nth(skip as usize);
                assert_eq!(set.nth_free(from, number, skip), free, "{set} from {from} to {number}");
            }
            assert_eq!(RangeSet::parse(&set.to_string()).as_ref(), Some(&set));
        }
    }

    #[test]
    fn what_is_no_set_of_ranges_is_not_read() {
        for text in ["a", "1-", "-1", "2-1", "18446744073709551615", "1;2"] {
            assert_eq!(RangeSet::parse(text), None, "{text}");
        }
        assert_eq!(RangeSet::parse(""), Some(RangeSet::default()));
    }
}
