//! The index: from key hashes to rows, in immutable, mapped files that can be made again at any time.

mod builder;
mod merge;
mod run;

pub(crate) use builder::build_run;
pub(crate) use merge::{mergeable, write_merged};
pub(crate) use run::{Candidate, Run};

use crate::key::KeyHash;

const MAGIC: &[u8; 8] = b"TCXRUN01";
const VERSION: u32 = 1;
/// Bytes of a slot: hash, segment, row.
const SLOT: usize = 16;
/// The segment number of an empty slot.
const EMPTY: u32 = u32::MAX;
/// Bytes of the header before the segments.
const FIXED_HEADER: usize = 48;
/// Bytes of a segment in the header.
const SEGMENT: usize = 24;
/// Slots in a cache line. A home is the first of a line, so that most probes touch one line.
const LINE: usize = 64 / SLOT;

/// A row and the hash of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    hash: KeyHash,
    /// The segment's number in the run.
    segment: u32,
    row: u32,
}

/// The slot that a hash calls home, among the first `homes` slots of a table. Ascending hashes have ascending homes.
#[inline]
fn home(hash: KeyHash, homes: usize) -> usize {
    ((u128::from(hash) * (homes / LINE) as u128) >> 64) as usize * LINE
}

/// Bytes of the header of a run of so many segments and slots: a multiple of 64, so that slots are aligned.
fn header_bytes(segments: usize, slots: usize) -> Option<usize> {
    let blocks = slots.checked_mul(SLOT)?.div_ceil(crate::checksum::CHECKSUM_BLOCK);
    let content =
        FIXED_HEADER.checked_add(segments.checked_mul(SEGMENT)?)?.checked_add(blocks.checked_mul(8)?)?;
    content.checked_add(8)?.checked_next_multiple_of(64)
}
