//! Tombstones for what was joined from segments that were evicted: a process that had joined them before may give the result its name
//! later, and bring back rows that others have seen go.

use std::collections::BTreeMap;

use super::whole::Dated;
use crate::sys::bytes::{Cursor, Random};

/// Rows were evicted. A joined segment with a smaller number may contain them, unless it was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Eviction {
    /// The number of the change.
    pub(super) number: u64,
    /// None of the segments from which the evicted rows came was born later, in milliseconds since 1970.
    pub(super) until: u64,
    /// The joined segments that were known, and not evicted: their random bits, ascending.
    pub(super) kept: Vec<Random>,
}

impl Eviction {
    pub(super) fn new(number: u64, until: u64, kept: &[Random]) -> Self {
        let mut kept = kept.to_vec();
        kept.sort_unstable();
        Self { number, until, kept }
    }

    /// A joined segment is as old as the oldest of its inputs: one that is born later has no input from which evicted rows came.
    pub(super) fn kills(&self, segment: Dated) -> bool {
        let Some(joined) = segment.joined else { return false };
        segment.base < self.number && segment.born <= self.until && !self.keeps(joined)
    }

    pub(super) fn keeps(&self, name: Random) -> bool {
        self.kept.binary_search(&name).is_ok()
    }
}

/// Those that say something beside the others. Ascending by their numbers.
///
/// A newer one until the same time or later says it as well: the process that made it knew the others, and has kept nothing that they kill.
pub(super) fn distinct(evictions: impl IntoIterator<Item = Eviction>) -> Vec<Eviction> {
    let by_number: BTreeMap<u64, Eviction> = evictions.into_iter().map(|own| (own.number, own)).collect();
    let mut kept: Vec<Eviction> = Vec::new();
    for own in by_number.into_values().rev() {
        if kept.last().is_none_or(|newer| newer.until < own.until) {
            kept.push(own);
        }
    }
    kept.reverse();
    kept
}

pub(super) fn bytes(evictions: &[Eviction]) -> Vec<u8> {
    let mut out = (evictions.len() as u64).to_le_bytes().to_vec();
    for Eviction { number, until, kept } in evictions {
        for number in [*number, *until, kept.len() as u64] {
            out.extend(number.to_le_bytes());
        }
        out.extend(kept.iter().flat_map(|kept| kept.0));
    }
    out
}

/// `None` if they are not all there, or the segments of one are not in order: they would not be found.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Option<Vec<Eviction>> {
    let count = cursor.u64()?;
    let mut evictions = Vec::new();
    for _ in 0..count {
        let (number, until, count) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let mut kept = Vec::new();
        for _ in 0..count {
            kept.push(cursor.random()?);
        }
        kept.is_sorted().then_some(())?;
        evictions.push(Eviction { number, until, kept });
    }
    Some(evictions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(byte: u8) -> Random {
        Random([byte; 16])
    }

    fn joined(base: u64, born: u64, name: u8) -> Dated {
        Dated { base, born, joined: Some(random(name)) }
    }

    #[test]
    fn joined_segments_that_may_contain_evicted_rows_are_killed_and_no_others() {
        let eviction = Eviction::new(3, 100, &[random(9), random(1)]);
        assert!(eviction.kills(joined(2, 100, 5)));
        assert!(!eviction.kills(joined(3, 100, 5)), "it was joined by a process that knew of the eviction");
        assert!(!eviction.kills(joined(2, 101, 5)), "all of its rows are younger");
        for kept in [1, 9] {
            assert!(!eviction.kills(joined(2, 100, kept)));
        }
        assert!(!eviction.kills(Dated { joined: None, ..joined(2, 100, 5) }), "it was sealed as it is");
    }

    #[test]
    fn what_a_newer_one_until_a_later_time_says_as_well_is_left_out() {
        let [first, second, third] =
            [(1, 100), (2, 50), (3, 60)].map(|(n, until)| Eviction::new(n, until, &[]));
        let all = [second, third.clone(), first.clone()];
        assert_eq!(distinct(all), [first.clone(), third]);
        let same = Eviction::new(4, 100, &[random(1)]);
        assert_eq!(distinct([first, same.clone()]), [same]);
    }

    #[test]
    fn they_are_read_back_and_none_that_is_cut_off_or_out_of_order() {
        let evictions = [Eviction::new(3, 100, &[random(2), random(1)]), Eviction::new(7, 50, &[])];
        let written = bytes(&evictions);
        let parse = |bytes: &[u8]| {
            let mut cursor = Cursor::new(bytes);
            read(&mut cursor).filter(|_| cursor.is_at_end())
        };
        assert_eq!(parse(&written), Some(evictions.to_vec()));
        for cut in 0..written.len() {
            assert_eq!(parse(&written[..cut]), None);
        }
        let disordered = Eviction { number: 1, until: 1, kept: vec![random(2), random(1)] };
        assert_eq!(parse(&bytes(&[disordered])), None);
        assert_eq!(parse(&u64::MAX.to_le_bytes()), None);
    }
}
