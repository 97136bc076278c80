//! Making an index run. Entries are placed in ascending order of their hashes, each at its home or the next free
//! slot behind it: the table is sorted, so that it is written in one pass and merged with others in one pass.

use std::io::{self, Write};

use super::{EMPTY, Entry, LINE, MAGIC, SLOT, VERSION, header_bytes, home};
use crate::checksum::{BlockChecksums, checksum};
use crate::key::KeyHash;
use crate::name::SegmentName;

/// Home slots for so many entries: whole lines, load 0.72.
fn homes_for(entries: usize) -> usize {
    (entries + entries * 28 / 72 + 1).next_multiple_of(LINE)
}

/// The bytes of a run over the rows of `segments`: for each, the hashes of its rows in order.
pub(crate) fn build_run(segments: &[(SegmentName, Vec<KeyHash>)]) -> Vec<u8> {
    let mut entries = Vec::new();
    for (segment, (_, hashes)) in segments.iter().enumerate() {
        let entry =
            |(row, &hash): (usize, &KeyHash)| Entry { hash, segment: segment as u32, row: row as u32 };
        entries.extend(hashes.iter().enumerate().map(entry));
    }
    entries.sort_unstable();
    let names: Vec<SegmentName> = segments.iter().map(|(name, _)| *name).collect();
    let mut bytes = Vec::new();
    write_run(&mut bytes, &names, entries.len(), || entries.iter().copied())
        .expect("writing to memory cannot fail");
    bytes
}

/// Writes a run of `count` entries in ascending order. They are asked for twice: the header, which comes first,
/// holds the checksums of what follows.
pub(super) fn write_run<E: Iterator<Item = Entry>>(
    out: &mut dyn Write,
    segments: &[SegmentName],
    count: usize,
    entries: impl Fn() -> E,
) -> io::Result<()> {
    let homes = homes_for(count);
    let (mut checksums, mut slots) = (BlockChecksums::new(), 0);
    place(entries(), homes, |slot| {
        checksums.update(&slot);
        slots += 1;
        Ok(())
    })?;
    out.write_all(&header(segments, homes, slots, count, &checksums.finish()))?;
    let mut out = io::BufWriter::with_capacity(1 << 16, out);
    place(entries(), homes, |slot| out.write_all(&slot))?;
    out.flush()
}

/// Calls `put` for every slot of the table, in order.
fn place(
    entries: impl Iterator<Item = Entry>,
    homes: usize,
    mut put: impl FnMut([u8; SLOT]) -> io::Result<()>,
) -> io::Result<()> {
    let empty = Entry { hash: 0, segment: EMPTY, row: 0 };
    let mut next = 0;
    for entry in entries {
        while next < home(entry.hash, homes) {
            put(slot(empty))?;
            next += 1;
        }
        put(slot(entry))?;
        next += 1;
    }
    while next < homes || !next.is_multiple_of(LINE) {
        put(slot(empty))?;
        next += 1;
    }
    Ok(())
}

fn slot(entry: Entry) -> [u8; SLOT] {
    let bits = u128::from(entry.hash) | u128::from(entry.segment) << 64 | u128::from(entry.row) << 96;
    bits.to_le_bytes()
}

fn header(segments: &[SegmentName], homes: usize, slots: usize, count: usize, checksums: &[u64]) -> Vec<u8> {
    // Counted from numbers of rows in memory or in mapped files: far from overflowing.
    let len = header_bytes(segments.len(), slots).unwrap_or_default();
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(segments.len() as u32).to_le_bytes());
    for number in [homes, slots, count, len] {
        out.extend_from_slice(&(number as u64).to_le_bytes());
    }
    for name in segments {
        out.extend_from_slice(&name.random.0);
        out.extend_from_slice(&name.tail.to_le_bytes());
    }
    out.extend(checksums.iter().flat_map(|checksum| checksum.to_le_bytes()));
    out.resize(len - 8, 0);
    let sum = checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}
