//! An index run: its file, and what it says of itself.

use std::ops::Range;

use super::{
    FIXED_HEADER, LINE, MAGIC, MOST_SEGMENTS, Place, SLOTS, Table, UNSEEDED, UNSEEDED_HEADER, UNSEEDED_MAGIC,
    VERSION, header_bytes, trailer_bytes,
};
use crate::schema::key::KeySeed;
use crate::storage::name::SegmentName;
use crate::sys::bytes::{Cursor, Random, u64_at};
use crate::sys::checksum::{CHECKSUM_BLOCK, checksum};
use crate::sys::mmap::Mapped;
use crate::sys::verified_blocks::{Checksums, VerifiedBlocks};

/// A mapped index run.
#[derive(Debug)]
pub(crate) struct Run {
    name: Random,
    map: Mapped,
    seed: KeySeed,
    header: usize,
    homes: usize,
    lines: usize,
    entries: usize,
    segments: Vec<SegmentName>,
    blocks: VerifiedBlocks,
}

impl Run {
    /// Verifies what is before and behind the lines; they are verified when they are first probed. `None` if it is no
    /// run of this version or its bytes are not what was written.
    pub(crate) fn open(map: Mapped, name: Random) -> Option<Self> {
        let mut cursor = Cursor::new(&map);
        let (magic, version) = (cursor.take(8)?, cursor.u32()?);
        let fixed = match version {
            VERSION if magic == MAGIC => FIXED_HEADER,
            UNSEEDED if magic == UNSEEDED_MAGIC => UNSEEDED_HEADER,
            _ => return None,
        };
        let count = cursor.u32()? as usize;
        let mut number = || usize::try_from(cursor.u64()?).ok();
        let (homes, entries, header) = (number()?, number()?, number()?);
        let seed = if fixed == FIXED_HEADER { KeySeed::from_bits(cursor.u64()?) } else { KeySeed::NONE };
        if Some(header) != header_bytes(fixed, count) || !ends_in_its_checksum(map.get(..header)?) {
            return None;
        }
        let lines = usize::try_from(u64_at(&map, map.len().checked_sub(16)?)?).ok()?;
        let trailer = header.checked_add(lines.checked_mul(LINE)?)?;
        let sound = count <= MOST_SEGMENTS
            && trailer.checked_add(trailer_bytes(lines)?)? == map.len()
            && (1..=lines).contains(&homes)
            && u32::try_from(lines).is_ok()
            && entries <= lines * SLOTS
            && ends_in_its_checksum(&map[trailer..]);
        if !sound {
            return None;
        }
        let mut cursor = Cursor::new(map.get(fixed..header)?);
        let segments =
            (0..count).map(|_| Some(SegmentName { random: cursor.random()?, tail: cursor.u64()? }));
        let segments = segments.collect::<Option<_>>()?;
        let (mut cursor, table) = (Cursor::new(&map[trailer..]), lines * LINE);
        let checksums = (0..table.div_ceil(CHECKSUM_BLOCK)).map(|_| cursor.u64()).collect::<Option<_>>()?;
        let blocks = VerifiedBlocks::new(CHECKSUM_BLOCK, Checksums::Known(checksums), table)?;
        map.let_go();
        Some(Self { name, map, seed, header, homes, lines, entries, segments, blocks })
    }

    /// The random part of its file's name.
    pub(crate) fn name(&self) -> Random {
        self.name
    }

    /// The segments whose rows this run knows.
    pub(crate) fn segments(&self) -> &[SegmentName] {
        &self.segments
    }

    /// With which keys are hashed that are looked for in it.
    #[inline]
    pub(crate) fn seed(&self) -> KeySeed {
        self.seed
    }

    /// How many rows it knows.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// The size of its file.
    pub(crate) fn bytes(&self) -> usize {
        self.map.len()
    }

    /// What is probed.
    #[inline]
    pub(crate) fn table(&self) -> Table<'_> {
        Table::new(self.lines_bytes(), self.homes, &self.blocks)
    }

    /// The map of the file.
    pub(crate) fn map(&self) -> &Mapped {
        &self.map
    }

    /// Where in the file the bytes are that a probe of this place reads.
    pub(crate) fn needed(&self, place: Place) -> Range<usize> {
        let at = place.line() * LINE;
        let (needed, _) = self.blocks.with_unverified(at..at + LINE);
        self.header + needed.start..self.header + needed.end
    }

    fn lines_bytes(&self) -> &[u8] {
        &self.map[self.header..][..self.lines * LINE]
    }

    /// Whether every line is as it was written still: those that were verified may have gone bad since.
    pub(crate) fn is_intact_still(&self) -> bool {
        self.blocks.verify_again(self.lines_bytes())
    }

    /// Whether every line is intact, and the number of entries is the one in the header.
    pub(crate) fn is_intact(&self) -> bool {
        self.blocks.verify(self.lines_bytes(), 0, self.lines * LINE)
            && self.table().entries().count() == self.entries
    }
}

/// Whether the last eight bytes are the checksum of those before.
fn ends_in_its_checksum(bytes: &[u8]) -> bool {
    bytes.split_last_chunk().is_some_and(|(bytes, sum)| checksum(bytes) == u64::from_le_bytes(*sum))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::index::{Candidate, DamagedRun, build_run};
    use crate::schema::key::KeyHash;

    const SEED: KeySeed = KeySeed::NONE;

    fn name() -> SegmentName {
        SegmentName { random: Random::new(), tail: 9 }
    }

    fn map(bytes: &[u8]) -> Mapped {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Mapped::new(&file).unwrap()
    }

    fn hashes(prefix: &str, count: usize) -> Vec<KeyHash> {
        (0..count).map(|i| SEED.hash(format!("{prefix}{i}").as_bytes(), 0)).collect()
    }

    fn probe(run: &Run, hash: KeyHash) -> Result<Option<Candidate>, DamagedRun> {
        run.table().probe_from(hash, run.table().home(hash))
    }

    #[test]
    fn every_row_is_found_and_others_are_not() {
        for count in [0, 1, 2, 100, 20_000] {
            let segments = [(name(), hashes("a", count)), (name(), hashes("b", count))];
            let run = Run::open(map(&build_run(SEED, &segments)), Random::new()).unwrap();
            assert_eq!(run.segments(), [segments[0].0, segments[1].0]);
            for (number, (_, hashes)) in segments.iter().enumerate() {
                for (row, &hash) in hashes.iter().enumerate() {
                    let found = probe(&run, hash).unwrap().unwrap();
                    assert_eq!((found.segment as usize, found.row as usize), (number, row));
                }
            }
            for hash in hashes("c", 1000) {
                assert_eq!(probe(&run, hash), Ok(None));
            }
        }
    }

    /// The rows of all candidates for this hash.
    fn rows(run: &Run, wanted: KeyHash) -> Vec<usize> {
        let (table, mut rows) = (run.table(), Vec::new());
        let mut place = table.home(wanted);
        while let Some(found) = table.probe_from(wanted, place).unwrap() {
            rows.push(found.row as usize);
            place = found.next;
        }
        rows
    }

    #[test]
    fn hashes_at_both_ends_and_many_of_one_are_found() {
        let crowd = [vec![u64::MAX; 30], vec![0; 30], vec![u64::MAX - (1 << 16), 1 << 16]].concat();
        let run = Run::open(map(&build_run(SEED, &[(name(), crowd.clone())])), Random::new()).unwrap();
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
        let run = Run::open(map(&build_run(SEED, &[(name(), near)])), Random::new()).unwrap();
        assert_eq!(rows(&run, (0xabcd << 16) + 99), [0, 1, 3]);
        assert_eq!(rows(&run, (0xabce << 16) + 99), [2]);
        assert_eq!(rows(&run, 0xabcc << 16), []);
    }

    #[test]
    fn an_empty_slot_is_no_row_of_the_greatest_hash() {
        let run = Run::open(map(&build_run(SEED, &[(name(), vec![7 << 16])])), Random::new()).unwrap();
        assert_eq!(rows(&run, u64::MAX), []);
    }

    #[test]
    fn a_changed_byte_is_noticed_and_a_cut_run_is_none() {
        let hashes = hashes("a", 50);
        let bytes = build_run(SEED, &[(name(), hashes.clone())]);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 16;
            if let Some(run) = Run::open(map(&damaged), Random::new()) {
                assert_eq!(probe(&run, hashes[0]), Err(DamagedRun));
                assert!(!run.is_intact());
            }
            assert!(Run::open(map(&bytes[..at]), Random::new()).is_none());
        }
    }
}
