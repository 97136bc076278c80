//! Reads what a lookup needs from the disk before the lookup needs it.
//!
//! The system reads a page of a mapped file when it is touched, and the thread waits: a batch of rows that are not in memory
//! would be read one page after the other, where a disk can read many at the same time. So before such a lookup everything that it
//! will touch is announced to the system: the lines of the index, then the offsets and rows that these lead to, then what the
//! offsets lead to.
//!
//! Where all rows are in memory this would be wasted. So a lookup is preceded by it only if it is the first of a store, or if the
//! one before had to wait for the disk, or found that something was not in memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::changes::Tombstones;
use crate::index::Table;
use crate::live::snapshot::{IndexedRun, Snapshot};
use crate::read::destination::Destinations;
use crate::read::lookup::Lookup;
use crate::read::wide_rows::{Readers, WIDE, WideRow};
use crate::segment::{Needed, Segment};
use crate::storage::Storage;
use crate::sys::mmap::Mapped;
use crate::sys::residency::{is_resident, major_faults};

/// A lookup of fewer rows gains nothing.
const FEWEST_ROWS: usize = 16;

/// The most bytes that are announced for one lookup: what is announced first must not be dropped again before it is used.
const MOST_BYTES: usize = 256 << 20;

/// The number of keys that are announced together. If everything is in memory that the first ones need, the others are not asked for.
const TOGETHER: usize = 4096;

/// Pages of this distance are read as one piece.
const GAP: usize = 4096;

/// So much is announced with one call. Of a longer range, Linux reads only the beginning: as much as one request to the disk
/// or its own read-ahead may have, which is hardly ever less than this.
const PIECE: usize = 128 << 10;

/// The system does not say what of a file is in memory to a process that may not write the file and does not own it. This is the
/// number of lookups that announce everything then, before one finds out whether that is still needed.
const UNKNOWN: u32 = 64;

/// What is to be announced before the next lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Nothing,
    /// What is not in memory.
    Missing,
    /// Everything: what is in memory is not known.
    All,
}

/// Where rows are to be expected: on the disk or in memory.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// 0 for [`Plan::Nothing`] and 1 for [`Plan::Missing`]. A greater one is for [`Plan::All`], and one more than its lookups.
    state: AtomicU32,
    readers: Readers,
}

impl Default for ReadAhead {
    /// The first lookup reads ahead: rows are on the disk until the opposite is known. Each of its waits may cost more than a page,
    /// because the system reads much around it until it notices that the program reads here and there.
    fn default() -> Self {
        Self { state: AtomicU32::new(1), readers: Readers::default() }
    }
}

impl ReadAhead {
    /// The next lookup reads ahead.
    pub(crate) fn want(&self) {
        self.state.fetch_max(1, Ordering::Relaxed);
    }

    /// The next lookups take nothing for being in memory, whatever the system says.
    #[cfg(test)]
    pub(crate) fn expect_nothing_in_memory(&self) {
        self.state.store(1 + UNKNOWN, Ordering::Relaxed);
    }

    /// The next lookup asks what is in memory.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.state.store(1, Ordering::Relaxed);
    }

    /// Calls `find` for the missing rows of a lookup; before that, the bytes that it will need are announced if they are to be
    /// expected on the disk.
    pub(crate) fn around<T>(
        &self,
        lookup: &mut Lookup,
        destinations: &mut Destinations<'_, '_>,
        (snapshot, storage): (&Snapshot, &dyn Storage),
        find: impl FnOnce(&mut Lookup, &mut Destinations<'_, '_>) -> T,
    ) -> T {
        if lookup.missing() < FEWEST_ROWS || snapshot.runs.is_empty() {
            return find(lookup, destinations);
        }
        let plan = self.plan();
        let mut are_cold = false;
        let mut read = |rows: Vec<WideRow<'_>>| {
            are_cold = true;
            self.readers.read(&rows, storage, destinations);
        };
        let was_missing = plan != Plan::Nothing && announce(lookup, snapshot, plan == Plan::All, &mut read);
        let before = major_faults();
        let found = find(lookup, destinations);
        if are_cold {
            lookup.has_cold_rows();
        }
        destinations.forget_read();
        self.learn(plan, was_missing, major_faults().saturating_sub(before));
        found
    }

    /// What is to be announced before the next lookup.
    pub(crate) fn plan(&self) -> Plan {
        match self.state.load(Ordering::Relaxed) {
            0 => Plan::Nothing,
            1 => Plan::Missing,
            _ => Plan::All,
        }
    }

    /// What a lookup has shown: whether something was missing that the plan announced, and how often the thread had to wait.
    fn learn(&self, plan: Plan, was_missing: bool, waits: u64) {
        let next = match plan {
            Plan::Nothing => u32::from(waits > 0),
            Plan::Missing if was_missing => 1,
            // Everything was in memory, the system says; a few waits may be for pages of the program.
            Plan::Missing if waits < FEWEST_ROWS as u64 => 0,
            Plan::Missing => 1 + UNKNOWN,
            Plan::All => match self.state.load(Ordering::Relaxed) {
                0..=2 => 0,
                more => more - 1,
            },
        };
        // Written only if it changes: threads that look rows up share it.
        if self.state.load(Ordering::Relaxed) != next {
            self.state.store(next, Ordering::Relaxed);
        }
    }
}

/// Announces what is needed to find and read the missing rows, as far as it is not in memory or is `unknown` to be; whether it
/// announced anything.
pub(crate) fn announce(
    lookup: &mut Lookup,
    snapshot: &Snapshot,
    unknown: bool,
    read: &mut dyn FnMut(Vec<WideRow<'_>>),
) -> bool {
    let mut pieces = Pieces { unknown, added: Vec::new(), announced: 0, wide: Vec::new() };
    let missing: Vec<usize> = lookup.all_missing_positions().collect();
    for positions in missing.chunks(TOGETHER) {
        // Until all are announced, or nothing of the first ones was missing, or too much was.
        pieces.announce_rows(lookup, snapshot, positions.to_vec());
        let wide = pieces.missing_wide_rows();
        if !wide.is_empty() {
            read(wide);
        }
        if !(1..MOST_BYTES).contains(&pieces.announced) {
            break;
        }
    }
    pieces.announced > 0
}

/// The first row that may be that of the key, and that no tombstone has killed.
fn candidate<'a>(
    lookup: &Lookup,
    (indexed, table): (&'a IndexedRun, &Table<'_>),
    tombstones: &Tombstones,
    position: usize,
) -> Option<(&'a Segment, usize)> {
    let hash = lookup.hash(position);
    let mut place = table.home(hash);
    // The lookup reports a damaged run. Behind each candidate: the loop ends at the end of the run.
    while let Some(candidate) = table.probe_from(hash, place).ok()? {
        let segment = indexed.segments.get(usize::from(candidate.segment)).and_then(|own| own.as_deref());
        let row = candidate.row as usize;
        let is_served = |segment: &&Segment| {
            row < segment.rows() && !tombstones.kill_row(segment.base(), lookup.keys(), position)
        };
        if let Some(segment) = segment.filter(is_served) {
            return Some((segment, row));
        }
        place = candidate.next;
    }
    None
}

/// Bytes of maps that are needed.
struct Pieces<'a> {
    added: Vec<(&'a Mapped, Range<usize>)>,
    /// How many were announced.
    announced: usize,
    /// Whether it is not known what is in memory.
    unknown: bool,
    /// Rows that are read instead.
    wide: Vec<WideRow<'a>>,
}

impl<'a> Pieces<'a> {
    fn add(&mut self, map: &'a Mapped, range: Range<usize>) {
        if !range.is_empty() && map.is_file() {
            self.added.push((map, range));
        }
    }

    fn add_needed(&mut self, (position, segment, row): (usize, &'a Segment, usize), needed: Needed) {
        let range = match needed {
            Needed::Leaf(leaf, range) if range.len() >= WIDE && segment.is_plain() => {
                if let Some((blocks, table)) = segment.whole_blocks(range.clone()) {
                    self.wide.push(WideRow { position, segment, row: row as u32, leaf, range, blocks });
                    return table.into_iter().for_each(|table| self.add(segment.map(), table));
                }
                range
            }
            Needed::Leaf(_, range) | Needed::Rest(range) => range,
        };
        segment.with_unverified(range, &mut |range| self.add(segment.map(), range));
    }

    /// The wide rows that are not in memory.
    fn missing_wide_rows(&mut self) -> Vec<WideRow<'a>> {
        let mut wide = std::mem::take(&mut self.wide);
        wide.retain(|row| {
            let bytes = row.segment.map().get(row.range.clone()).unwrap_or_default();
            self.unknown || !is_resident(bytes)
        });
        self.announced += wide.iter().map(|row| row.range.len()).sum::<usize>();
        wide
    }

    /// Announces what is needed of the rows of the keys at these positions.
    fn announce_rows(&mut self, lookup: &mut Lookup, snapshot: &'a Snapshot, mut open: Vec<usize>) {
        for indexed in &snapshot.runs {
            lookup.hash_keys(indexed.run.seed());
            let table = indexed.run.table();
            for &position in &open {
                let line = indexed.run.needed(table.home(lookup.hash(position)));
                self.add(indexed.run.map(), line);
            }
            self.announce();
            let mut rows = Vec::with_capacity(open.len());
            // The next runs have what this one has not.
            open.retain(|&position| {
                match candidate(lookup, (indexed, &table), &snapshot.tombstones, position) {
                    Some((segment, row)) => {
                        // What is read has no pages.
                        if segment.is_mapped() {
                            rows.push((position, segment, row));
                        }
                        false
                    }
                    None => true,
                }
            });
            for &(position, segment, row) in &rows {
                let place = (position, segment, row);
                segment.needed_at_first(row, lookup.wanted(), &mut |needed| self.add_needed(place, needed));
            }
            self.announce();
            for &(position, segment, row) in &rows {
                let place = (position, segment, row);
                segment.needed_by_offsets(row, lookup.wanted(), &mut |needed| self.add_needed(place, needed));
            }
            self.announce();
        }
    }

    /// Announces what was added, neighbours together. The system reads all of it at the same time, while the thread goes on.
    fn announce(&mut self) {
        let added = std::mem::take(&mut self.added);
        let mut pieces: Vec<_> = added.into_iter().enumerate().collect();
        pieces.sort_unstable_by_key(|(_, (map, range))| (map.as_ptr().addr(), range.start));
        // Each with the number of the first that it joins.
        let mut joined: Vec<(usize, (&Mapped, Range<usize>))> = Vec::with_capacity(pieces.len());
        for (number, (map, range)) in pieces {
            match joined.last_mut() {
                Some((first, (last, own))) if std::ptr::eq(*last, map) && range.start <= own.end + GAP => {
                    *first = number.min(*first);
                    own.end = own.end.max(range.end);
                }
                _ => joined.push((number, (map, range))),
            }
        }
        // In the order in which they are needed: while the lookup uses the first, the disk reads the others.
        joined.sort_unstable_by_key(|(first, _)| *first);
        for (_, (map, range)) in joined {
            self.announce_one(map, range);
        }
    }

    fn announce_one(&mut self, map: &Mapped, range: Range<usize>) {
        for start in range.clone().step_by(PIECE) {
            let piece = start..range.end.min(start + PIECE);
            let is_missing =
                || map.get(piece.clone()).is_some_and(|bytes| self.unknown || !is_resident(bytes));
            if self.announced < MOST_BYTES && is_missing() {
                self.announced += piece.len();
                map.announce(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_announce_everything_for_a_while_if_the_system_does_not_say_what_is_in_memory() {
        let ahead = ReadAhead::default();
        let waits = FEWEST_ROWS as u64;
        assert_eq!(ahead.plan(), Plan::Missing);
        // Nothing is missing, it says, and the thread waits all the same.
        ahead.learn(Plan::Missing, false, waits);
        for _ in 0..UNKNOWN {
            assert_eq!(ahead.plan(), Plan::All);
            ahead.learn(Plan::All, true, 0);
        }
        assert_eq!(ahead.plan(), Plan::Nothing);
        ahead.learn(Plan::Nothing, false, 1);
        assert_eq!(ahead.plan(), Plan::Missing);
        ahead.learn(Plan::Missing, false, waits - 1);
        assert_eq!(ahead.plan(), Plan::Nothing, "pages of the program");
        ahead.want();
        ahead.learn(Plan::Missing, true, 0);
        assert_eq!(ahead.plan(), Plan::Missing);
    }
}
