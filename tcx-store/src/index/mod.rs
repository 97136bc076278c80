//! The index: from key hashes to rows, in immutable, mapped files that can be made again at any time.

mod builder;
mod check;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod merge;
mod run;
mod table;

pub(crate) use builder::build_run;
pub(crate) use merge::{Stale, fit_in_one, mergeable, write_merged};
pub(crate) use run::Run;
pub(crate) use table::{Candidate, DamagedRun, Place, ProbeResult, Table};

use crate::schema::key::KeyHash;

const MAGIC: &[u8; 8] = b"TCXRUN03";
const VERSION: u32 = 3;
/// The earlier version that is read: its hashes have no seed.
const UNSEEDED_MAGIC: &[u8; 8] = b"TCXRUN02";
const UNSEEDED: u32 = 2;
/// Bytes of a line, which is a cache line of the processor. Lines are the homes of hashes: most probes touch one.
const LINE: usize = 64;
/// Bytes of a slot: a mark and a row.
const SLOT: usize = 12;
/// Slots of a line. Its last four bytes are zero.
const SLOTS: usize = LINE / SLOT;
/// The most segments of a run; the last number of 16 bits marks an empty slot.
pub(crate) const MOST_SEGMENTS: usize = u16::MAX as usize;
/// The mark of an empty slot: greater than every other.
const EMPTY: u64 = u64::MAX;
/// Bytes of the header before the segments, and of that of runs without a seed.
const FIXED_HEADER: usize = 48;
const UNSEEDED_HEADER: usize = 40;
/// Bytes of a segment in the header.
const SEGMENT: usize = 24;

/// A row and what a run knows of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// The key's hash, with its lowest 16 bits replaced by the segment's number in the run.
    mark: u64,
    row: u32,
}

impl Entry {
    fn new(hash: KeyHash, segment: u16, row: u32) -> Self {
        Self { mark: known_bits(hash) | u64::from(segment), row }
    }

    fn segment(self) -> u16 {
        self.mark as u16
    }
}

/// The bits of a hash that a run knows.
#[inline]
fn known_bits(hash: u64) -> u64 {
    hash & !0xffff
}

/// The line that a hash or mark calls home, of `homes` lines. Ascending hashes have ascending homes.
#[inline]
fn home(hash: u64, homes: usize) -> usize {
    ((u128::from(known_bits(hash)) * homes as u128) >> 64) as usize
}

/// Bytes of the header of a run of `segments` segments, `fixed` of them before the segments: a multiple of a line, so that lines are
/// aligned.
fn header_bytes(fixed: usize, segments: usize) -> Option<usize> {
    fixed.checked_add(segments.checked_mul(SEGMENT)?)?.checked_add(8)?.checked_next_multiple_of(LINE)
}

/// Bytes after `lines` lines: their checksums, their number, and a checksum of both.
fn trailer_bytes(lines: usize) -> Option<usize> {
    let blocks = lines.checked_mul(LINE)?.div_ceil(crate::sys::checksum::CHECKSUM_BLOCK);
    blocks.checked_mul(8)?.checked_add(16)
}
