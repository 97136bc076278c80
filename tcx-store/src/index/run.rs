//! Reading an index run: a sorted hash table probed straight from its mapped bytes.

use super::{
    EMPTY, Entry, FIXED_HEADER, LINE, MAGIC, MOST_SEGMENTS, SLOT, SLOTS, VERSION, header_bytes, home,
    known_bits, trailer_bytes,
};
use crate::bytes::{Cursor, Random, u64_at};
use crate::checksum::{CHECKSUM_BLOCK, VerifiedBlocks, checksum};
use crate::key::KeyHash;
use crate::mmap::Mapped;
use crate::name::SegmentName;
use crate::prefetch::prefetch;

/// An entry with the bits of the hash asked for; the row itself decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The segment's number in the run.
    pub(crate) segment: u16,
    pub(crate) row: u32,
    /// Where it stands, to go on from.
    line: usize,
    slot: usize,
}

/// A mapped index run.
#[derive(Debug)]
pub(crate) struct Run {
    name: Random,
    map: Mapped,
    header: usize,
    homes: usize,
    lines: usize,
    entries: usize,
    segments: Vec<SegmentName>,
    blocks: VerifiedBlocks,
}

/// A checksum of the run is wrong: it is made again from its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRun;

impl Run {
    /// Verifies what is before and behind the lines; they are verified when they are first probed. `None` if it is no
    /// run of this version or its bytes are not what was written.
    pub(crate) fn open(map: Mapped, name: Random) -> Option<Self> {
        let mut cursor = Cursor::new(&map);
        if cursor.take(8)? != MAGIC || cursor.u32()? != VERSION {
            return None;
        }
        let count = cursor.u32()? as usize;
        let mut number = || usize::try_from(cursor.u64()?).ok();
        let (homes, entries, header) = (number()?, number()?, number()?);
        if Some(header) != header_bytes(count) || !ends_in_its_checksum(map.get(..header)?) {
            return None;
        }
        let lines = usize::try_from(u64_at(&map, map.len().checked_sub(16)?)?).ok()?;
        let trailer = header.checked_add(lines.checked_mul(LINE)?)?;
        let sound = count <= MOST_SEGMENTS
            && trailer.checked_add(trailer_bytes(lines)?)? == map.len()
            && (1..=lines).contains(&homes)
            && entries <= lines * SLOTS
            && ends_in_its_checksum(&map[trailer..]);
        if !sound {
            return None;
        }
        let mut cursor = Cursor::new(map.get(FIXED_HEADER..header)?);
        let segments =
            (0..count).map(|_| Some(SegmentName { random: cursor.random()?, tail: cursor.u64()? }));
        let segments = segments.collect::<Option<_>>()?;
        let (mut cursor, table) = (Cursor::new(&map[trailer..]), lines * LINE);
        let checksums = (0..table.div_ceil(CHECKSUM_BLOCK)).map(|_| cursor.u64()).collect::<Option<_>>()?;
        let blocks = VerifiedBlocks::new(checksums, table)?;
        Some(Self { name, map, header, homes, lines, entries, segments, blocks })
    }

    /// The random part of its file's name.
    pub(crate) fn name(&self) -> Random {
        self.name
    }

    /// The segments whose rows this run knows.
    pub(crate) fn segments(&self) -> &[SegmentName] {
        &self.segments
    }

    /// How many rows it knows.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Tells the processor that this hash is going to be probed.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        prefetch(&self.map, self.header + home(hash, self.homes) * LINE);
    }

    /// The first entry with the known bits of this hash, behind `last` if given.
    ///
    /// # Errors
    ///
    /// A checksum that is wrong.
    #[inline]
    pub(crate) fn probe(
        &self,
        hash: KeyHash,
        last: Option<Candidate>,
    ) -> Result<Option<Candidate>, DamagedRun> {
        let wanted = known_bits(hash);
        let (mut line, mut first) =
            last.map_or_else(|| (home(hash, self.homes), 0), |last| (last.line, last.slot + 1));
        while line < self.lines {
            let bytes = self.line(line)?;
            // Counted without a branch: in which slot an entry stands cannot be foretold.
            let smaller: usize = (0..SLOTS).map(|slot| usize::from(entry(bytes, slot).mark < wanted)).sum();
            let slot = smaller.max(first);
            if slot < SLOTS {
                let Entry { mark, row } = entry(bytes, slot);
                let found = known_bits(mark) == wanted && mark != EMPTY;
                return Ok(found.then_some(Candidate { segment: mark as u16, row, line, slot }));
            }
            (line, first) = (line + 1, 0);
        }
        Ok(None)
    }

    #[inline]
    fn line(&self, line: usize) -> Result<&[u8; LINE], DamagedRun> {
        let (table, at) = (self.table(), line * LINE);
        if !self.blocks.verify(table, at, at + LINE) {
            return Err(DamagedRun);
        }
        table.get(at..).and_then(|line| line.first_chunk()).ok_or(DamagedRun)
    }

    #[inline]
    fn table(&self) -> &[u8] {
        &self.map[self.header..][..self.lines * LINE]
    }

    /// Every entry, in ascending order of the hashes, as long as the lines are intact.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        let lines = (0..self.lines).map_while(|line| self.line(line).ok());
        let entries = lines.flat_map(|line| (0..SLOTS).map(|slot| entry(line, slot)));
        entries.filter(|entry| entry.mark != EMPTY)
    }

    /// Whether every line is intact.
    pub(crate) fn is_intact(&self) -> bool {
        self.blocks.verify(self.table(), 0, self.lines * LINE)
    }
}

/// Whether the last eight bytes are the checksum of those before.
fn ends_in_its_checksum(bytes: &[u8]) -> bool {
    bytes.split_last_chunk().is_some_and(|(bytes, sum)| checksum(bytes) == u64::from_le_bytes(*sum))
}

/// The entry in a slot of a line.
#[inline]
fn entry(line: &[u8; LINE], slot: usize) -> Entry {
    let bytes = &line[slot * SLOT..][..SLOT];
    // Twelve bytes are there: neither is ever zero for want of them.
    let mark = bytes.first_chunk().map_or(0, |mark| u64::from_le_bytes(*mark));
    let row = bytes.last_chunk().map_or(0, |row| u32::from_le_bytes(*row));
    Entry { mark, row }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::index::build_run;
    use crate::key::hash;

    fn name() -> SegmentName {
        SegmentName { random: Random::new(), tail: 9 }
    }

    fn map(bytes: &[u8]) -> Mapped {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Mapped::new(&file).unwrap()
    }

    fn hashes(prefix: &str, count: usize) -> Vec<KeyHash> {
        (0..count).map(|i| hash(format!("{prefix}{i}").as_bytes(), 0)).collect()
    }

    #[test]
    fn every_row_is_found_and_others_are_not() {
        for count in [0, 1, 2, 100, 20_000] {
            let segments = [(name(), hashes("a", count)), (name(), hashes("b", count))];
            let run = Run::open(map(&build_run(&segments)), Random::new()).unwrap();
            assert_eq!(run.segments(), [segments[0].0, segments[1].0]);
            for (number, (_, hashes)) in segments.iter().enumerate() {
                for (row, &hash) in hashes.iter().enumerate() {
                    let found = run.probe(hash, None).unwrap().unwrap();
                    assert_eq!((found.segment as usize, found.row as usize), (number, row));
                }
            }
            for hash in hashes("c", 1000) {
                assert_eq!(run.probe(hash, None), Ok(None));
            }
        }
    }

    /// The rows of all candidates for this hash.
    fn rows(run: &Run, wanted: KeyHash) -> Vec<usize> {
        let (mut rows, mut last) = (Vec::new(), None);
        while let Some(found) = run.probe(wanted, last).unwrap() {
            rows.push(found.row as usize);
            last = Some(found);
        }
        rows
    }

    #[test]
    fn hashes_at_both_ends_and_many_of_one_are_found() {
        let crowd = [vec![u64::MAX; 30], vec![0; 30], vec![u64::MAX - (1 << 16), 1 << 16]].concat();
        let run = Run::open(map(&build_run(&[(name(), crowd.clone())])), Random::new()).unwrap();
        for wanted in [0, 1 << 16, u64::MAX - (1 << 16), u64::MAX] {
            let expected = crowd.iter().enumerate().filter(|(_, hash)| **hash == wanted).map(|(row, _)| row);
            assert_eq!(rows(&run, wanted), expected.collect::<Vec<_>>());
        }
        assert_eq!(rows(&run, 2 << 16), []);
    }

    #[test]
    fn every_row_whose_hash_begins_with_the_same_48_bits_is_a_candidate() {
        let near: Vec<KeyHash> =
            vec![0xabcd << 16, (0xabcd << 16) + 0xffff, 0xabce << 16, (0xabcd << 16) + 7];
        let run = Run::open(map(&build_run(&[(name(), near)])), Random::new()).unwrap();
        assert_eq!(rows(&run, (0xabcd << 16) + 99), [0, 1, 3]);
        assert_eq!(rows(&run, (0xabce << 16) + 99), [2]);
        assert_eq!(rows(&run, 0xabcc << 16), []);
    }

    #[test]
    fn an_empty_slot_is_no_row_of_the_greatest_hash() {
        let run = Run::open(map(&build_run(&[(name(), vec![7 << 16])])), Random::new()).unwrap();
        assert_eq!(rows(&run, u64::MAX), []);
    }

    #[test]
    fn a_changed_byte_is_noticed_and_a_cut_run_is_none() {
        let hashes = hashes("a", 50);
        let bytes = build_run(&[(name(), hashes.clone())]);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 16;
            if let Some(run) = Run::open(map(&damaged), Random::new()) {
                assert_eq!(run.probe(hashes[0], None), Err(DamagedRun));
                assert!(!run.is_intact());
            }
            assert!(Run::open(map(&bytes[..at]), Random::new()).is_none());
        }
    }
}
