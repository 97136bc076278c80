//! Reading an index run: a static hash table probed straight from its mapped bytes.

use super::{EMPTY, FIXED_HEADER, LINE, MAGIC, SEGMENT, SLOT, VERSION, header_bytes, home};
use crate::bytes::{Cursor, u64_at};
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
    /// How many slots from home it stands, to go on from.
    step: usize,
}

/// A mapped index run.
#[derive(Debug)]
pub(crate) struct Run {
    map: Mapped,
    header: usize,
    slots: usize,
    reach: usize,
    segments: Vec<SegmentName>,
    blocks: VerifiedBlocks,
}

impl Run {
    /// Verifies the header; the slots are verified when they are first probed. `None` if it is no run of this
    /// version or its bytes are not what was written.
    pub(crate) fn open(map: Mapped) -> Option<Self> {
        let mut cursor = Cursor::new(&map);
        if cursor.take(8)? != MAGIC || cursor.u32()? != VERSION {
            return None;
        }
        let count = cursor.u32()? as usize;
        let slots = usize::try_from(cursor.u64()?).ok()?;
        let entries = cursor.u64()?;
        let reach = cursor.u32()? as usize;
        cursor.u32()?;
        let header = usize::try_from(cursor.u64()?).ok()?;
        let sound = Some(header) == header_bytes(count, slots)
            && header.checked_add(slots.checked_mul(SLOT)?)? == map.len()
            && entries < slots as u64
            && slots.is_multiple_of(LINE)
            && checksum(&map[..header - 8]) == u64_at(&map, header - 8)?;
        if !sound {
            return None;
        }
        let mut cursor = Cursor::new(map.get(FIXED_HEADER..FIXED_HEADER + count * SEGMENT)?);
        let segments =
            (0..count).map(|_| Some(SegmentName { random: cursor.random()?, tail: cursor.u64()? }));
        let segments = segments.collect::<Option<_>>()?;
        let mut cursor = Cursor::new(map.get(FIXED_HEADER + count * SEGMENT..header)?);
        let table = slots * SLOT;
        let checksums = (0..table.div_ceil(CHECKSUM_BLOCK)).map(|_| cursor.u64()).collect::<Option<_>>()?;
        let blocks = VerifiedBlocks::new(checksums, table)?;
        Some(Self { map, header, slots, reach, segments, blocks })
    }

    /// The segments whose rows this run knows.
    pub(crate) fn segments(&self) -> &[SegmentName] {
        &self.segments
    }

    /// Tells the processor that this hash is going to be probed.
    #[inline]
    pub(crate) fn prefetch(&self, hash: KeyHash) {
        prefetch(&self.map, self.header + home(hash, self.slots) * SLOT);
    }

    /// The first entry with this hash, behind `last` if given. `Err` if a checksum is wrong.
    #[inline]
    pub(crate) fn probe(
        &self,
        hash: KeyHash,
        last: Option<Candidate>,
    ) -> Result<Option<Candidate>, DamagedRun> {
        let (table, home) = (&self.map[self.header..], home(hash, self.slots));
        let first = last.map_or(0, |candidate| candidate.step + 1);
        for step in first..=self.reach.min(self.slots - 1) {
            let mut slot = home + step;
            if slot >= self.slots {
                slot -= self.slots;
            }
            let at = slot * SLOT;
            if !self.blocks.verify(table, at, at + SLOT) {
                return Err(DamagedRun);
            }
            let Some(slot) = Slot::read(table, at) else { return Err(DamagedRun) };
            if slot.segment == EMPTY {
                return Ok(None);
            }
            if slot.hash == hash {
                return Ok(Some(Candidate { segment: slot.segment, row: slot.row, step }));
            }
        }
        Ok(None)
    }
}

struct Slot {
    hash: KeyHash,
    segment: u32,
    row: u32,
}

impl Slot {
    #[inline]
    fn read(table: &[u8], at: usize) -> Option<Self> {
        let bytes: u128 = table.get(at..)?.first_chunk().map(|bytes| u128::from_le_bytes(*bytes))?;
        Some(Self { hash: bytes as u64, segment: (bytes >> 64) as u32, row: (bytes >> 96) as u32 })
    }
}

/// A checksum of the run is wrong: it is made again from its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRun;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::bytes::Random;
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
            let run = Run::open(map(&build_run(&segments))).unwrap();
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
    fn every_copy_of_a_key_is_found() {
        let twice = hashes("a", 1);
        let segments = [(name(), twice.clone()), (name(), twice.clone())];
        let run = Run::open(map(&build_run(&segments))).unwrap();
        let first = run.probe(twice[0], None).unwrap().unwrap();
        let second = run.probe(twice[0], Some(first)).unwrap().unwrap();
        assert_ne!(first.segment, second.segment);
        assert_eq!(run.probe(twice[0], Some(second)), Ok(None));
    }

    #[test]
    fn a_changed_byte_is_noticed_and_a_cut_run_is_none() {
        let hashes = hashes("a", 50);
        let bytes = build_run(&[(name(), hashes.clone())]);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 16;
            if let Some(run) = Run::open(map(&damaged)) {
                assert_eq!(run.probe(hashes[0], None), Err(DamagedRun));
            }
            assert!(Run::open(map(&bytes[..at])).is_none());
        }
    }
}
