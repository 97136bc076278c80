//! Decoding index runs that no store has written.

use std::sync::Arc;

use super::*;
use crate::storage::name::SegmentName;
use crate::sys::bytes::{Random, u64_at};
use crate::sys::checksum::{CHECKSUM_BLOCK, checksum};
use crate::testing::fuzzing::mapped;

/// A whole file.
pub(crate) fn run(bytes: &[u8]) {
    open_and_use(bytes);
    let mut sealed = bytes.to_vec();
    if seal(&mut sealed).is_some() {
        open_and_use(&sealed);
    }
}

/// Makes the checksums of the header, of the lines and of the trailer right, as far as there is room for them.
fn seal(file: &mut [u8]) -> Option<()> {
    let len = file.len();
    let count = u32::from_le_bytes(*file.get(12..)?.first_chunk()?) as usize;
    let fixed = if file.get(8..12)? == UNSEEDED.to_le_bytes() { UNSEEDED_HEADER } else { FIXED_HEADER };
    let header = header_bytes(fixed, count)?;
    let lines = usize::try_from(u64_at(file, len.checked_sub(16)?)?).ok()?;
    let trailer = header.checked_add(lines.checked_mul(LINE)?)?;
    let (lines, sums) = file.get_mut(header..)?.split_at_mut_checked(trailer - header)?;
    for (sum, block) in sums.chunks_exact_mut(8).zip(lines.chunks(CHECKSUM_BLOCK)) {
        sum.copy_from_slice(&checksum(block).to_le_bytes());
    }
    for part in [0..header, trailer..len] {
        let (bytes, sum) = file.get_mut(part)?.split_last_chunk_mut::<8>()?;
        *sum = checksum(bytes).to_le_bytes();
    }
    Some(())
}

/// Probes the run for what is in it and for other hashes, and merges it with another.
fn open_and_use(bytes: &[u8]) {
    let Some(run) = Run::open(mapped(bytes), Random([2; 16])) else { return };
    let _ = run.is_intact();
    let table = run.table();
    let own: Vec<u64> = table.entries().map(|entry| entry.mark).collect();
    assert!(own.len() * SLOT <= bytes.len());
    for hash in own.into_iter().take(100).chain([0, 1 << 40, u64::MAX]) {
        let mut place = table.home(hash);
        table.prefetch(place);
        while let Ok(Some(found)) = table.probe_from(hash, place) {
            place = found.next;
        }
    }
    if !run.is_intact() {
        return;
    }
    let other = build_run(
        run.seed(),
        &[(SegmentName { random: Random([3; 16]), tail: 0 }, vec![0, 1 << 40, u64::MAX])],
    );
    let other = Run::open(mapped(&other), Random([4; 16])).expect("what was just built can be read");
    let mut merged = Vec::new();
    if write_merged(&mut merged, &[Arc::new(run), Arc::new(other)], &|_| false).is_ok() {
        assert!(Run::open(mapped(&merged), Random([5; 16])).is_some(), "what was merged can be read");
    }
}
