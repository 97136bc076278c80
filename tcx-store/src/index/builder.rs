//! Making an index run.

use super::{EMPTY, LINE, MAGIC, SLOT, VERSION, header_bytes, home};
use crate::checksum::{CHECKSUM_BLOCK, checksum};
use crate::key::KeyHash;
use crate::name::SegmentName;

/// Slots for so many entries: whole lines, load 0.72, never full, so that every probe ends.
fn slots_for(entries: usize) -> usize {
    (entries + entries * 28 / 72 + 1).next_multiple_of(LINE)
}

/// The bytes of a run over the rows of `segments`: for each, the hashes of its rows in order.
pub(crate) fn build_run(segments: &[(SegmentName, Vec<KeyHash>)]) -> Vec<u8> {
    let entries = segments.iter().map(|(_, hashes)| hashes.len()).sum::<usize>();
    let slots = slots_for(entries);
    // Counted from numbers of rows in memory: far from overflowing.
    let header = header_bytes(segments.len(), slots).unwrap_or_default();
    let mut bytes = vec![0xff; header + slots * SLOT];
    let reach = fill_slots(&mut bytes[header..], slots, segments);
    write_header(&mut bytes, header, slots, entries, reach, segments);
    bytes
}

fn fill_slots(table: &mut [u8], slots: usize, segments: &[(SegmentName, Vec<KeyHash>)]) -> u32 {
    let mut reach = 0;
    for (segment, (_, hashes)) in segments.iter().enumerate() {
        for (row, &hash) in hashes.iter().enumerate() {
            let start = home(hash, slots);
            let steps = (0..slots).find(|step| is_empty(table, (start + step) % slots)).unwrap_or_default();
            let slot = &mut table[(start + steps) % slots * SLOT..][..SLOT];
            slot[..8].copy_from_slice(&hash.to_le_bytes());
            slot[8..12].copy_from_slice(&(segment as u32).to_le_bytes());
            slot[12..].copy_from_slice(&(row as u32).to_le_bytes());
            reach = reach.max(steps as u32);
        }
    }
    reach
}

fn is_empty(table: &[u8], slot: usize) -> bool {
    table[slot * SLOT + 8..][..4] == EMPTY.to_le_bytes()
}

fn write_header(
    bytes: &mut [u8],
    header: usize,
    slots: usize,
    entries: usize,
    reach: u32,
    segments: &[(SegmentName, Vec<KeyHash>)],
) {
    let mut out = Vec::with_capacity(header);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(segments.len() as u32).to_le_bytes());
    out.extend_from_slice(&(slots as u64).to_le_bytes());
    out.extend_from_slice(&(entries as u64).to_le_bytes());
    out.extend_from_slice(&reach.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(header as u64).to_le_bytes());
    for (name, _) in segments {
        out.extend_from_slice(&name.random.0);
        out.extend_from_slice(&name.tail.to_le_bytes());
    }
    for block in bytes[header..].chunks(CHECKSUM_BLOCK) {
        out.extend_from_slice(&checksum(block).to_le_bytes());
    }
    out.resize(header - 8, 0);
    out.extend_from_slice(&checksum(&out).to_le_bytes());
    bytes[..header].copy_from_slice(&out);
}
