//! Making an index run. Entries are placed in ascending order of their hashes, each at its home or the next free
//! slot behind it: the table is sorted, so that it is written in one pass and merged with others in one pass.

use std::io::{self, Write};

use super::{
    EMPTY, Entry, FIXED_HEADER, LINE, MAGIC, MOST_SEGMENTS, SLOT, SLOTS, VERSION, header_bytes, home,
    trailer_bytes,
};
use crate::schema::key::{KeyHash, KeySeed};
use crate::storage::name::SegmentName;
use crate::sys::aligned_writer::LargeWrites;
use crate::sys::checksum::{BlockChecksums, CHECKSUM_BLOCK, checksum};

/// The percentage of slots that are taken: 17.1 bytes an entry, and one probe in five looks at a second line.
const LOAD: usize = 75;

/// Home lines for `entries` entries.
fn homes_for(entries: usize) -> usize {
    (entries as u128 * 100).div_ceil((LOAD * SLOTS) as u128).max(1) as usize
}

/// The bytes of a run of this size, but for a few lines after the home lines. `None` if that is more than a run has.
pub(super) fn run_bytes(segments: usize, entries: usize) -> Option<usize> {
    let lines = homes_for(entries);
    let header = header_bytes(FIXED_HEADER, segments).filter(|_| segments <= MOST_SEGMENTS)?;
    header.checked_add(lines.checked_mul(LINE)?)?.checked_add(trailer_bytes(lines)?)
}

/// The bytes of a run over the rows of `segments`: for each, the hashes of its rows in order, which have this seed. It knows the first
/// [`MOST_SEGMENTS`] of them.
pub(crate) fn build_run(seed: KeySeed, segments: &[(SegmentName, Vec<KeyHash>)]) -> Vec<u8> {
    let segments = &segments[..segments.len().min(MOST_SEGMENTS)];
    let mut entries = Vec::with_capacity(segments.iter().map(|(_, hashes)| hashes.len()).sum());
    for (segment, (_, hashes)) in segments.iter().enumerate() {
        let hashes = hashes.iter().enumerate();
        entries.extend(hashes.map(|(row, &hash)| Entry::new(hash, segment as u16, row as u32)));
    }
    entries.sort_unstable();
    let names: Vec<SegmentName> = segments.iter().map(|(name, _)| *name).collect();
    let mut bytes = Vec::new();
    write_run(&mut bytes, seed, &names, (entries.len(), entries.into_iter()))
        .expect("writing to memory cannot fail");
    bytes
}

/// Writes a run of this number of entries, which come in ascending order of their hashes.
///
/// # Errors
///
/// Returns an error if a write fails, or if the number of entries differs from the announced one.
pub(super) fn write_run(
    out: &mut dyn Write,
    seed: KeySeed,
    segments: &[SegmentName],
    (count, entries): (usize, impl Iterator<Item = Entry>),
) -> io::Result<()> {
    let homes = homes_for(count);
    let mut out = LargeWrites::new(out);
    out.put(&header(seed, segments, (homes, count))?)?;
    let mut table = TableWriter::new(out);
    let mut placed = 0;
    for entry in entries {
        table.place(entry, homes)?;
        placed += 1;
    }
    if placed != count {
        let what = format!("{placed} of {count} entries fit into an index run");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    table.finish(homes)
}

/// The lines, in order, as they are filled.
struct TableWriter<'a> {
    out: LargeWrites<&'a mut dyn Write>,
    /// Whole lines, up to a checksum block of them.
    full: Vec<u8>,
    line: [u8; LINE],
    /// Slots of `line` that are taken.
    taken: usize,
    /// Lines before `line`.
    lines: usize,
    checksums: BlockChecksums,
}

impl<'a> TableWriter<'a> {
    fn new(out: LargeWrites<&'a mut dyn Write>) -> Self {
        let full = Vec::with_capacity(CHECKSUM_BLOCK);
        Self {
            out,
            full,
            line: empty_line(),
            taken: 0,
            lines: 0,
            checksums: BlockChecksums::new(CHECKSUM_BLOCK),
        }
    }

    fn place(&mut self, entry: Entry, homes: usize) -> io::Result<()> {
        let home = home(entry.mark, homes);
        while self.lines < home || self.taken == SLOTS {
            self.end_line()?;
        }
        let slot = &mut self.line[self.taken * SLOT..][..SLOT];
        slot[..8].copy_from_slice(&entry.mark.to_le_bytes());
        slot[8..].copy_from_slice(&entry.row.to_le_bytes());
        self.taken += 1;
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.full.extend_from_slice(&self.line);
        (self.line, self.taken) = (empty_line(), 0);
        self.lines += 1;
        if self.full.len() == CHECKSUM_BLOCK { self.write_full() } else { Ok(()) }
    }

    fn write_full(&mut self) -> io::Result<()> {
        self.checksums.update(&self.full);
        self.out.put(&self.full)?;
        self.full.clear();
        Ok(())
    }

    /// All home lines are there, and the last that is taken; then what a reader needs to know of them.
    fn finish(mut self, homes: usize) -> io::Result<()> {
        while self.lines < homes || self.taken > 0 {
            self.end_line()?;
        }
        self.write_full()?;
        let mut trailer = Vec::with_capacity(trailer_bytes(self.lines).unwrap_or_default());
        trailer.extend(self.checksums.finish().iter().flat_map(|checksum| checksum.to_le_bytes()));
        trailer.extend_from_slice(&(self.lines as u64).to_le_bytes());
        trailer.extend_from_slice(&checksum(&trailer).to_le_bytes());
        self.out.put(&trailer)?;
        self.out.finish().map(drop)
    }
}

fn empty_line() -> [u8; LINE] {
    let mut line = [0; LINE];
    line[..SLOTS * SLOT].fill(EMPTY as u8);
    line
}

fn header(seed: KeySeed, segments: &[SegmentName], (homes, entries): (usize, usize)) -> io::Result<Vec<u8>> {
    // A reader counts segments in 16 bits and lines in 32.
    let fits = segments.len() <= MOST_SEGMENTS && homes < u32::MAX as usize;
    let len = header_bytes(FIXED_HEADER, segments.len()).filter(|_| fits);
    let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too much for one index run"))?;
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(segments.len() as u32).to_le_bytes());
    for number in [homes, entries, len] {
        out.extend_from_slice(&(number as u64).to_le_bytes());
    }
    out.extend_from_slice(&seed.bits().to_le_bytes());
    for name in segments {
        out.extend_from_slice(&name.random.0);
        out.extend_from_slice(&name.tail.to_le_bytes());
    }
    out.resize(len - 8, 0);
    out.extend_from_slice(&checksum(&out).to_le_bytes());
    Ok(out)
}
