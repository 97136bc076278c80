//! Reading an index run: a sorted hash table probed straight from its mapped bytes.

use super::{EMPTY, Entry, FIXED_HEADER, LINE, MAGIC, SLOT, VERSION, header_bytes, home};
use crate::bytes::{Cursor, Random, u64_at};
use crate::checksum::{CHECKSUM_BLOCK, VerifiedBlocks, checksum};
use crate::key::KeyHash;
use crate::mmap::Mapped;
use crate::name::SegmentName;
use crate::prefetch::prefetch;

/// An entry with the hash asked for; the row itself decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The segment's number in the run.
    pub(crate) segment: u32,
    pub(crate) row: u32,
    /// Where it stands, to go on from.
    slot: usize,
}

/// A mapped index run.
#[derive(Debug)]
pub(crate) struct Run {
    name: Random,
    map: Mapped,
    header: usize,
    homes: usize,
    slots: usize,
    entries: usize,
    segments: Vec<SegmentName>,
    blocks: VerifiedBlocks,
}

/// A checksum of the run is wrong: it is made again from its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRun;

impl Run {
    /// Verifies the header; the slots are verified when they are first probed. `None` if it is no run of this
    /// version or its bytes are not what was written.
    pub(crate) fn open(map: Mapped, name: Random) -> Option<Self> {
        let mut cursor = Cursor::new(&map);
        if cursor.take(8)? != MAGIC || cursor.u32()? != VERSION {
            return None;
        }
        let count = cursor.u32()? as usize;
        let mut number = || usize::try_from(cursor.u64()?).ok();
        let (homes, slots, entries, header) = (number()?, number()?, number()?, number()?);
        let sound = Some(header) == header_bytes(count, slots)
            && header.checked_add(slots.checked_mul(SLOT)?)? == map.len()
            && (LINE..=slots).contains(&homes)
            && entries <= slots
            && checksum(&map[..header - 8]) == u64_at(&map, header - 8)?;
        if !sound {
            return None;
        }
        let mut cursor = Cursor::new(map.get(FIXED_HEADER..header)?);
        let segments =
            (0..count).map(|_| Some(SegmentName { random: cursor.random()?, tail: cursor.u64()? }));
        let segments = segments.collect::<Option<_>>()?;
        let table = slots * SLOT;
        let checksums = (0..table.div_ceil(CHECKSUM_BLOCK)).map(|_| cursor.u64()).collect::<Option<_>>()?;
        let blocks = VerifiedBlocks::new(checksums, table)?;
        Some(Self { name, map, header, homes, slots, entries, segments, blocks })
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
        prefetch(&self.map, self.header + home(hash, self.homes) * SLOT);
    }

    /// The first entry with this hash, behind `last` if given.
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
        let first = last.map_or_else(|| home(hash, self.homes), |candidate| candidate.slot + 1);
        for slot in first..self.slots {
            let entry = self.slot(slot)?;
            if entry.segment == EMPTY || entry.hash > hash {
                return Ok(None);
            }
            if entry.hash == hash {
                return Ok(Some(Candidate { segment: entry.segment, row: entry.row, slot }));
            }
        }
        Ok(None)
    }

    #[inline]
    fn slot(&self, slot: usize) -> Result<Entry, DamagedRun> {
        let (table, at) = (&self.map[self.header..], slot * SLOT);
        if !self.blocks.verify(table, at, at + SLOT) {
            return Err(DamagedRun);
        }
        let bytes = table.get(at..).and_then(|slot| slot.first_chunk()).ok_or(DamagedRun)?;
        let bits = u128::from_le_bytes(*bytes);
        Ok(Entry { hash: bits as u64, segment: (bits >> 64) as u32, row: (bits >> 96) as u32 })
    }

    /// Every entry, in ascending order of the hashes, as long as the slots are intact.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.slots).map_while(|slot| self.slot(slot).ok()).filter(|entry| entry.segment != EMPTY)
    }

    /// Whether every slot is intact.
    pub(crate) fn is_intact(&self) -> bool {
        self.blocks.verify(&self.map[self.header..], 0, self.slots * SLOT)
    }
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

    #[test]
    fn hashes_at_both_ends_and_many_of_one_are_found() {
        let crowd = [vec![u64::MAX; 30], vec![0; 30], vec![u64::MAX - 1, 1]].concat();
        let run = Run::open(map(&build_run(&[(name(), crowd.clone())])), Random::new()).unwrap();
        for wanted in [0, 1, u64::MAX - 1, u64::MAX] {
            let (mut rows, mut last) = (Vec::new(), None);
            while let Some(found) = run.probe(wanted, last).unwrap() {
                rows.push(found.row as usize);
                last = Some(found);
            }
            let expected = crowd.iter().enumerate().filter(|(_, hash)| **hash == wanted).map(|(row, _)| row);
            assert_eq!(rows, expected.collect::<Vec<_>>());
        }
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
