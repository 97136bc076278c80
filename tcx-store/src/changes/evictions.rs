//! Tombstones for what was joined from segments that were evicted: a process that had joined them before may give the result its name
//! later, and bring back rows that others have seen go.

use std::collections::BTreeMap;

use super::dead_segments::{self, DeadSegment};
use super::whole::Dated;
use crate::sys::bytes::{Cursor, Random};

/// Rows are evicted in two steps. The first change says which segments leave: no process that knows of it joins these any more, so whatever
/// contains their rows, and gets its name later, was joined before, and has a smaller number. Then the folder is listed, and the second
/// change names the joined segments in it: others with a smaller number than the first change are dead, however late they come, if they may
/// have been joined from those that leave.
///
/// Between the two, nothing that such a segment stands for is removed: if it came after the listing, that lives again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Eviction {
    /// The number of the change.
    pub(super) number: u64,
    /// The number of the first change: the same, if this is the first.
    pub(super) before: u64,
    /// None of the segments from which the evicted rows came was born later, in milliseconds since 1970.
    pub(super) until: u64,
    /// The joined segments that were there, and not evicted: their random bits, ascending.
    pub(super) kept: Vec<Random>,
    /// Segments that were there and could not be read then, of which an earlier eviction may have killed some: their random bits, ascending.
    pub(super) unread: Vec<Random>,
    /// The segments that leave, or are rewritten with fewer rows, those of older evictions included that are not [dead](super::dead_segments):
    /// their random bits, ascending.
    pub(super) leaving: Vec<Random>,
}

/// The most that changes which become one file may say: each is compared with all others.
const MOST: usize = 10_000;

/// What a file of merged changes may have of them.
pub(super) fn most_evictions() -> usize {
    #[cfg(test)]
    if let Some(most) = super::tests::MOST_EVICTIONS.get() {
        return most;
    }
    MOST
}

/// About as many bytes as a change has that names no segment.
const CHANGE: usize = 200;

/// About as many bytes as the two changes of an eviction take, by which segments go that have this number of names, with those of all that
/// they were joined from.
pub(crate) fn bytes_of_eviction(names: usize) -> u64 {
    2 * (CHANGE + size_of::<Random>() * names) as u64
}

impl Eviction {
    pub(super) fn new(number: u64, before: u64, until: u64, [kept, unread, leaving]: [&[Random]; 3]) -> Self {
        let [kept, unread, leaving] = [kept, unread, leaving].map(|names| {
            let mut names = names.to_vec();
            names.sort_unstable();
            names
        });
        Self { number, before, until, kept, unread, leaving }
    }

    /// Whether this is the second change.
    fn is_final(&self) -> bool {
        self.before < self.number
    }

    /// A joined segment is as old as the oldest of its inputs: one that is born later has no input from which evicted rows came.
    fn may_bring_back(&self, segment: Dated<'_>) -> bool {
        segment.lineage.is_joined() && segment.base < self.before && segment.born <= self.until
    }

    pub(super) fn kills(&self, segment: Dated<'_>) -> bool {
        self.is_final() && self.may_bring_back(segment) && !self.keeps(segment.name)
    }

    /// Whether the second change may kill a segment.
    pub(super) fn doubts(&self, segment: Dated<'_>) -> bool {
        !self.is_final() && self.may_bring_back(segment)
    }

    /// Whether it cannot kill the segment with these random bits, whatever else is true of that.
    pub(super) fn spares(&self, name: Random) -> bool {
        !self.is_final() || self.keeps(name)
    }

    fn keeps(&self, name: Random) -> bool {
        [&self.kept, &self.unread].into_iter().any(|names| names.binary_search(&name).is_ok())
    }

    /// Whether a segment leaves.
    fn names(&self, name: Random) -> bool {
        self.leaving.binary_search(&name).is_ok()
    }

    /// Whether a segment leaves, or was dead by the first change. What another change has named between the two is of no account: no
    /// process has spared what stands for it since the first.
    pub(super) fn goes(&self, name: Random, dead: &[DeadSegment]) -> bool {
        // Those of the second change itself leave, too. Earlier versions did not say so.
        let is_of_these = |number| number <= self.before || number == self.number;
        self.names(name) || dead_segments::since(dead, name).is_some_and(is_of_these)
    }

    /// Whether a segment leaves, or is replaced by another one than that with these random bits.
    pub(super) fn removes(&self, name: Random, replacement: Option<Random>) -> bool {
        self.names(name) && !replacement.is_some_and(|own| self.keeps(own))
    }

    /// Whether it says all that an older one says, or will say by its second change: the process that made this one knew what is killed, and
    /// has kept none of that, but for what it could not read. The second change of another eviction comes after this one, and so does the
    /// listing before it.
    fn covers(&self, older: &Self, dead: &[DeadSegment]) -> bool {
        let is_later = older.before <= self.before && older.until <= self.until;
        let keeps_none = || self.unread.iter().all(|name| older.spares(*name));
        let names_all = || older.leaving.iter().all(|name| self.goes(*name, dead));
        (self.is_final() || !older.is_final()) && is_later && keeps_none() && names_all()
    }
}

/// Whether the first change with this number, which names these segments whenever they were born, has been in force since: it says so, or
/// a later first change that says the same. The second change of any that is without a time ends it, though another may begin later.
pub(super) fn announce(evictions: &[Eviction], first: u64, names: &[Random]) -> bool {
    let mut without_time = evictions.iter().filter(|own| own.until == u64::MAX && own.number >= first);
    let says_so = |own: &Eviction| !own.is_final() && names.iter().all(|name| own.names(*name));
    without_time.clone().any(says_so) && !without_time.any(Eviction::is_final)
}

/// Those that say something beside the others and the dead segments. Ascending by their numbers.
pub(super) fn distinct(evictions: impl IntoIterator<Item = Eviction>, dead: &[DeadSegment]) -> Vec<Eviction> {
    let by_number: BTreeMap<u64, Eviction> = evictions.into_iter().map(|own| (own.number, own)).collect();
    let mut kept: Vec<Eviction> = Vec::new();
    for own in by_number.into_values().rev() {
        if !kept.iter().any(|newer| newer.covers(&own, dead)) {
            kept.push(own);
        }
    }
    kept.reverse();
    kept
}

pub(super) fn bytes(evictions: &[Eviction]) -> Vec<u8> {
    let mut out = (evictions.len() as u64).to_le_bytes().to_vec();
    for Eviction { number, before, until, kept, unread, leaving } in evictions {
        let lens = [kept, unread, leaving].map(|names| names.len() as u64);
        for number in [*number, *before, *until].into_iter().chain(lens) {
            out.extend(number.to_le_bytes());
        }
        out.extend(kept.iter().chain(unread).chain(leaving).flat_map(|name| name.0));
    }
    out
}

/// `None` if they are not all there or too many, or the segments of one are not in order: they would not be found.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Option<Vec<Eviction>> {
    let count = cursor.u64().filter(|count| *count <= most_evictions() as u64)?;
    let mut evictions = Vec::new();
    for _ in 0..count {
        let (number, before, until) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        (before <= number).then_some(())?;
        let [kept, unread, leaving] = [cursor.u64()?, cursor.u64()?, cursor.u64()?];
        let (kept, unread) = (names(cursor, kept)?, names(cursor, unread)?);
        let leaving = names(cursor, leaving)?;
        evictions.push(Eviction { number, before, until, kept, unread, leaving });
    }
    Some(evictions)
}

fn names(cursor: &mut Cursor<'_>, count: u64) -> Option<Vec<Random>> {
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(cursor.random()?);
    }
    names.is_sorted().then_some(names)
}

#[cfg(test)]
mod tests {
    use super::super::whole::Lineage;
    use super::*;
    use crate::storage::name::SegmentName;

    const INPUT: SegmentName = SegmentName { random: Random([77; 16]), tail: 0 };

    fn random(byte: u8) -> Random {
        Random([byte; 16])
    }

    fn joined(base: u64, born: u64, name: u8) -> Dated<'static> {
        let lineage = Lineage { inputs: &[INPUT], ..Lineage::default() };
        Dated { base, born, name: random(name), lineage }
    }

    #[test]
    fn joined_segments_that_may_contain_evicted_rows_are_killed_by_the_second_change_and_no_others() {
        let eviction = Eviction::new(5, 3, 100, [&[random(9), random(1)], &[random(8)], &[]]);
        assert!(eviction.kills(joined(2, 100, 5)) && !eviction.doubts(joined(2, 100, 5)));
        assert!(!eviction.kills(joined(3, 100, 5)), "it was joined by a process that knew what leaves");
        assert!(!eviction.kills(joined(2, 101, 5)), "all of its rows are younger");
        for kept in [1, 8, 9] {
            assert!(!eviction.kills(joined(2, 100, kept)));
        }
        assert!(
            !eviction.kills(Dated { lineage: Lineage::default(), ..joined(2, 100, 5) }),
            "it was sealed as it is"
        );
        let first = Eviction::new(3, 3, 100, [&[], &[], &[]]);
        assert!(first.doubts(joined(2, 100, 5)) && !first.kills(joined(2, 100, 5)));
        assert!(!first.doubts(joined(3, 100, 5)) && !first.doubts(joined(2, 101, 5)));
    }

    #[test]
    fn a_segment_that_leaves_is_replaced_by_what_the_eviction_keeps_and_by_nothing_else() {
        let eviction = Eviction::new(3, 2, 100, [&[random(1)], &[], &[random(7), random(6)]]);
        assert!(eviction.removes(random(6), None) && eviction.removes(random(7), Some(random(2))));
        assert!(!eviction.removes(random(6), Some(random(1))) && !eviction.removes(random(5), None));
    }

    #[test]
    fn what_dies_between_the_two_changes_of_another_is_of_no_account_for_the_second() {
        let named = |number| [DeadSegment { name: random(7), number }];
        let (first, second) =
            (Eviction::new(3, 3, 100, [&[], &[], &[]]), Eviction::new(6, 3, 100, [&[], &[], &[]]));
        for (number, is_before) in [(2, true), (3, true), (4, false), (7, false)] {
            assert_eq!(first.goes(random(7), &named(number)), is_before, "{number}");
            assert_eq!(second.goes(random(7), &named(number)), is_before, "{number}");
        }
        assert!(second.goes(random(7), &named(6)), "it is its own");
        assert!(Eviction::new(6, 3, 100, [&[], &[], &[random(7)]]).goes(random(7), &named(4)), "it leaves");
    }

    #[test]
    fn a_first_change_is_in_force_until_a_second_one_ends_it_and_not_again_by_another_that_begins() {
        let first = |number, leaving: &[Random]| Eviction::new(number, number, u64::MAX, [&[], &[], leaving]);
        let second = |number, until| Eviction::new(number, 4, until, [&[], &[], &[random(7)]]);
        let names = [random(7)];
        let (own, other) = ([first(3, &names)], [first(6, &[random(7), random(8)])]);
        assert!(announce(&own, 3, &names) && !announce(&own, 3, &[random(8)]));
        assert!(announce(&other, 3, &names), "it says the same, and more");
        assert!(announce(&[first(3, &names), second(5, 100)], 3, &names), "that was until a time");
        assert!(!announce(&[second(5, u64::MAX)], 3, &names));
        let both = [second(5, u64::MAX), first(6, &names)];
        assert!(!announce(&both, 3, &names) && announce(&both, 6, &names), "something came in between");
        assert!(!announce(&[first(2, &names)], 3, &names), "it is older");
    }

    /// One until a later time, by which these leave.
    fn late_one(leaving: &[Random]) -> Eviction {
        Eviction::new(8, 7, 100, [&[], &[], leaving])
    }

    #[test]
    fn what_a_newer_one_until_a_later_time_says_as_well_is_left_out() {
        let distinct = |evictions: &[Eviction]| distinct(evictions.to_vec(), &[]);
        let eviction = |number, before, until| Eviction::new(number, before, until, [&[], &[], &[]]);
        let [early, late, small] = [eviction(2, 1, 100), eviction(8, 7, 60), eviction(4, 3, 50)];
        assert_eq!(distinct(&[small.clone(), late.clone(), early.clone()]), [early.clone(), late.clone()]);
        let same = Eviction::new(10, 9, 100, [&[random(1)], &[], &[]]);
        assert_eq!(distinct(&[early.clone(), same.clone()]), [same]);
        let unsure = Eviction::new(10, 9, 100, [&[], &[random(1)], &[]]);
        assert_eq!(
            distinct(&[early.clone(), unsure.clone()]),
            [early.clone(), unsure.clone()],
            "the early one may have killed what the later one could not read"
        );
        let kept = Eviction::new(2, 1, 100, [&[random(1)], &[], &[]]);
        assert_eq!(distinct(&[kept, unsure.clone()]), [unsure]);
        let [first, second] = [eviction(3, 3, 100), eviction(4, 3, 100)];
        assert_eq!(distinct(&[first.clone(), second.clone()]), [second]);
        assert_eq!(
            distinct(&[early.clone(), first.clone()]),
            [early, first],
            "the first change kills nothing"
        );
        let [begun, ended] = [eviction(6, 6, 100), eviction(8, 5, 100)];
        assert_eq!(
            distinct(&[begun.clone(), ended.clone()]),
            [begun, ended],
            "the eviction that began later has not ended"
        );

        let leaving = Eviction::new(3, 3, 100, [&[], &[], &[random(6)]]);
        let dead = [DeadSegment { name: random(6), number: 4 }];
        assert_eq!(distinct(&[leaving.clone(), late_one(&[])]), [leaving.clone(), late_one(&[])]);
        assert_eq!(distinct(&[leaving.clone(), late_one(&[random(6)])]), [late_one(&[random(6)])]);
        assert_eq!(super::distinct([leaving, late_one(&[])], &dead), [late_one(&[])]);
    }

    #[test]
    fn they_are_read_back_and_none_that_is_cut_off_or_out_of_order() {
        let evictions = [
            Eviction::new(
                3,
                3,
                100,
                [&[random(2), random(1)], &[random(7), random(6)], &[random(4), random(3)]],
            ),
            Eviction::new(7, 5, 50, [&[], &[], &[random(5)]]),
        ];
        let written = bytes(&evictions);
        let parse = |bytes: &[u8]| {
            let mut cursor = Cursor::new(bytes);
            read(&mut cursor).filter(|_| cursor.is_at_end())
        };
        assert_eq!(parse(&written), Some(evictions.to_vec()));
        for cut in 0..written.len() {
            assert_eq!(parse(&written[..cut]), None);
        }
        let eviction = || Eviction::new(1, 1, 1, [&[], &[], &[]]);
        let disordered = vec![random(2), random(1)];
        assert_eq!(parse(&bytes(&[Eviction { kept: disordered.clone(), ..eviction() }])), None);
        assert_eq!(parse(&bytes(&[Eviction { unread: disordered.clone(), ..eviction() }])), None);
        assert_eq!(parse(&bytes(&[Eviction { leaving: disordered, ..eviction() }])), None);
        assert_eq!(parse(&bytes(&[Eviction { before: 2, ..eviction() }])), None);
        assert_eq!(parse(&u64::MAX.to_le_bytes()), None);
    }
}
