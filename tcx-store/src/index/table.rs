//! Probing an index run: a sorted hash table, straight from its mapped bytes.

use super::{EMPTY, Entry, LINE, SLOT, SLOTS, home, known_bits};
use crate::schema::key::KeyHash;
use crate::sys::cache_line::prefetch;
use crate::sys::verified_blocks::VerifiedBlocks;

/// The lines of a run. Entries ascend by their marks over all lines, and empty slots, which have the greatest mark, end the lines
/// that are not full. An entry is in the home line of its hash, or in a line behind it if every line between is full.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    bytes: &'a [u8],
    lines: &'a [[u8; LINE]],
    homes: usize,
    /// `None` if all of them were verified when the table was made: then no line costs a look at the bits of its block.
    blocks: Option<&'a VerifiedBlocks>,
}

/// An entry with the bits of the hash asked for; the row itself decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The segment's number in the run.
    pub(crate) segment: u16,
    pub(crate) row: u32,
    /// Where the search for others goes on.
    pub(crate) next: Place,
}

/// What a line says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// An entry that may be the one.
    Found(Candidate),
    /// None is, here and in what follows.
    Absent,
    /// Not in this line, but it may be in the next one.
    Beyond(Place),
}

/// A slot of a line, from which a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    line: u32,
    slot: u32,
}

impl Place {
    /// The number of its line.
    pub(super) fn line(self) -> usize {
        self.line as usize
    }
}

/// A checksum of the run is wrong: it is made again from its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRun;

impl<'a> Table<'a> {
    pub(super) fn new(bytes: &'a [u8], homes: usize, blocks: &'a VerifiedBlocks) -> Self {
        let blocks = Some(blocks).filter(|blocks| !blocks.were_all_verified(0, bytes.len()));
        Self { bytes, lines: bytes.as_chunks().0, homes, blocks }
    }

    /// Every entry, in ascending order of the hashes, as long as the lines are intact.
    pub(super) fn entries(self) -> Entries<'a> {
        Entries { table: self, next: Place { line: 0, slot: 0 }, line: None }
    }

    /// Where the search for this hash begins.
    #[inline]
    pub(crate) fn home(&self, hash: KeyHash) -> Place {
        Place { line: home(hash, self.homes) as u32, slot: 0 }
    }

    /// Prefetches the line of a place.
    #[inline]
    pub(crate) fn prefetch(&self, place: Place) {
        if let Some(line) = self.lines.get(place.line as usize) {
            prefetch(line, 0);
        }
    }

    /// Searches from `place` to the end of its line.
    ///
    /// # Errors
    ///
    /// Returns an error if a checksum is wrong.
    #[inline]
    pub(crate) fn probe(&self, hash: KeyHash, place: Place) -> Result<ProbeResult, DamagedRun> {
        // Behind the last line is no entry.
        let Some(line) = self.line(place.line)? else { return Ok(ProbeResult::Absent) };
        let wanted = known_bits(hash);
        // Counted without a branch, which the processor could not predict. Entries ascend within a line, so the count is the
        // slot of the first entry that is not smaller. Marks are compared whole: the wanted bits with a segment number of zero
        // are the smallest mark of this hash.
        let smaller: usize = (0..SLOTS).map(|slot| usize::from(entry(line, slot).mark < wanted)).sum();
        // A search that goes on behind a candidate must not find it again.
        let slot = smaller.max(place.slot as usize);
        if slot >= SLOTS {
            // Every slot is taken by a smaller mark, or by candidates that were seen before: others may be in the next line.
            return Ok(ProbeResult::Beyond(Place { line: place.line + 1, slot: 0 }));
        }
        let Entry { mark, row } = entry(line, slot);
        // A greater mark, or an empty slot: nothing of this hash follows. The empty mark has the known bits of the greatest hashes,
        // and is no entry.
        if known_bits(mark) != wanted || mark == EMPTY {
            return Ok(ProbeResult::Absent);
        }
        // Equal hashes stand side by side: the next candidate is in the next slot.
        let next = Place { line: place.line, slot: slot as u32 + 1 };
        Ok(ProbeResult::Found(Candidate { segment: mark as u16, row, next }))
    }

    /// The first entry with the known bits of this hash, from `place` on.
    ///
    /// # Errors
    ///
    /// Returns an error if a checksum is wrong.
    pub(crate) fn probe_from(
        &self,
        hash: KeyHash,
        mut place: Place,
    ) -> Result<Option<Candidate>, DamagedRun> {
        loop {
            match self.probe(hash, place)? {
                ProbeResult::Found(candidate) => return Ok(Some(candidate)),
                ProbeResult::Absent => return Ok(None),
                ProbeResult::Beyond(next) => place = next,
            }
        }
    }

    /// A line, verified before its first use in this process; `None` behind the last one.
    #[inline]
    fn line(&self, line: u32) -> Result<Option<&'a [u8; LINE]>, DamagedRun> {
        let Some(bytes) = self.lines.get(line as usize) else { return Ok(None) };
        let at = line as usize * LINE;
        let good = self.blocks.is_none_or(|blocks| blocks.verify(self.bytes, at, at + LINE));
        if good { Ok(Some(bytes)) } else { Err(DamagedRun) }
    }
}

/// The entries of a run, one line after the other.
pub(super) struct Entries<'a> {
    table: Table<'a>,
    next: Place,
    /// The line of `next`, once it is verified.
    line: Option<&'a [u8; LINE]>,
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        loop {
            let Place { line, slot } = self.next;
            let bytes = match self.line {
                Some(bytes) if (slot as usize) < SLOTS => bytes,
                Some(_) => {
                    (self.next, self.line) = (Place { line: line + 1, slot: 0 }, None);
                    continue;
                }
                None => self.line.insert(self.table.line(line).ok()??),
            };
            self.next.slot += 1;
            let entry = entry(bytes, slot as usize);
            if entry.mark != EMPTY {
                return Some(entry);
            }
        }
    }
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
