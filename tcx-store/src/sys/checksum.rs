//! Checksums: one per 64 KiB block, made while a file is written, verified when a block is first used.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of a file under one checksum.
pub(crate) const CHECKSUM_BLOCK: usize = 64 * 1024;

/// CRC-64/NVME.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

fn digest() -> Digest {
    Digest::new(CrcAlgorithm::Crc64Nvme)
}

/// Writes the checksum of everything behind it.
pub(crate) struct ChecksummedWriter<W> {
    out: W,
    digest: Digest,
}

impl<W: Write> ChecksummedWriter<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, digest: digest() }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.out.write_all(bytes)
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&self.digest.finalize().to_le_bytes())?;
        self.out.flush()
    }
}

/// Makes the checksums of a stream of bytes.
pub(crate) struct BlockChecksums {
    digest: Digest,
    filled: usize,
    blocks: Vec<u64>,
}

impl BlockChecksums {
    pub(crate) fn new() -> Self {
        Self { digest: digest(), filled: 0, blocks: Vec::new() }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(CHECKSUM_BLOCK - self.filled));
            self.digest.update(head);
            self.filled += head.len();
            if self.filled == CHECKSUM_BLOCK {
                self.close_block();
            }
            bytes = rest;
        }
    }

    fn close_block(&mut self) {
        self.blocks.push(self.digest.finalize_reset());
        self.filled = 0;
    }

    pub(crate) fn finish(mut self) -> Vec<u64> {
        if self.filled > 0 {
            self.close_block();
        }
        self.blocks
    }
}

/// The checksums of a mapped range of bytes, and which of its blocks this process has verified.
#[derive(Debug)]
pub(crate) struct VerifiedBlocks {
    /// How many bytes the checksums cover.
    len: usize,
    checksums: Vec<u64>,
    verified: Box<[AtomicU64]>,
}

impl VerifiedBlocks {
    /// `None` if there are not just as many checksums as `len` bytes need.
    pub(crate) fn new(checksums: Vec<u64>, len: usize) -> Option<Self> {
        if checksums.len() != len.div_ceil(CHECKSUM_BLOCK) {
            return None;
        }
        let verified = (0..checksums.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Some(Self { len, checksums, verified })
    }

    /// Whether the bytes of `start..end` may be used; `bytes` begins with the range that the checksums cover.
    ///
    /// Two threads may verify a block at the same time; both find the same.
    #[inline]
    pub(crate) fn verify(&self, bytes: &[u8], start: usize, end: usize) -> bool {
        self.were_verified(start, end) || self.verify_now(bytes, start, end)
    }

    /// As [`verify`](Self::verify), as far as that is known: nothing is computed. Ranges of many blocks are not known.
    #[inline]
    pub(crate) fn were_verified(&self, start: usize, end: usize) -> bool {
        if start >= end || end > self.len {
            return start == end && end <= self.len;
        }
        let (first, last) = (start / CHECKSUM_BLOCK, (end - 1) / CHECKSUM_BLOCK);
        // Nearly always one block or two. Where the second is in the next word, `bits_from` gives 0 for it: the answer is no, and the
        // caller verifies or asks for all.
        let wanted = if first == last { 0b1 } else { 0b11 };
        last - first <= 1 && self.bits_from(first) & wanted == wanted
    }

    /// Whether every block of `start..end` has been verified, however many they are.
    pub(crate) fn were_all_verified(&self, start: usize, end: usize) -> bool {
        if start >= end || end > self.len {
            return start == end && end <= self.len;
        }
        let (mut block, end) = (start / CHECKSUM_BLOCK, (end - 1) / CHECKSUM_BLOCK + 1);
        // Word by word.
        while block < end {
            let count = (64 - block % 64).min(end - block);
            if self.bits_from(block).trailing_ones() < count as u32 {
                return false;
            }
            block += count;
        }
        true
    }

    /// The range, or if it was not verified yet, all bytes of its blocks: they are needed to verify it.
    pub(crate) fn with_unverified(&self, range: Range<usize>) -> Range<usize> {
        if range.end > self.len || self.were_all_verified(range.start, range.end) {
            return range;
        }
        let end = range.end.div_ceil(CHECKSUM_BLOCK) * CHECKSUM_BLOCK;
        range.start / CHECKSUM_BLOCK * CHECKSUM_BLOCK..end.min(self.len)
    }

    /// A bit for each verified block, from `block` on, as far as they are in its word.
    #[inline]
    fn bits_from(&self, block: usize) -> u64 {
        // Relaxed is enough: a bit orders nothing. It says that bytes which never change have been compared.
        self.verified.get(block / 64).map_or(0, |word| word.load(Ordering::Relaxed) >> (block % 64))
    }

    #[inline(never)]
    fn verify_now(&self, bytes: &[u8], start: usize, end: usize) -> bool {
        if start >= end || end > self.len {
            return false;
        }
        let mut blocks = start / CHECKSUM_BLOCK..(end - 1) / CHECKSUM_BLOCK + 1;
        blocks.all(|block| self.bits_from(block) & 1 == 1 || self.verify_block(bytes, block))
    }

    /// Reads all bytes again, also those that were verified before.
    pub(crate) fn verify_again(&self, bytes: &[u8]) -> bool {
        bytes.chunks(CHECKSUM_BLOCK).map(checksum).eq(self.checksums.iter().copied())
    }

    /// How many blocks there are.
    pub(crate) fn count(&self) -> usize {
        self.checksums.len()
    }

    /// The bytes of a block.
    pub(crate) fn range(&self, block: usize) -> Option<Range<usize>> {
        let start = block.checked_mul(CHECKSUM_BLOCK)?;
        (block < self.count()).then(|| start..self.len.min(start + CHECKSUM_BLOCK))
    }

    /// Whether these are the bytes of a block.
    pub(crate) fn is_block(&self, block: usize, bytes: &[u8]) -> bool {
        self.range(block).is_some_and(|range| range.len() == bytes.len())
            && Some(&checksum(bytes)) == self.checksums.get(block)
    }

    fn verify_block(&self, bytes: &[u8], block: usize) -> bool {
        let bytes = self.range(block).and_then(|range| bytes.get(range));
        let good = bytes.is_some_and(|bytes| self.is_block(block, bytes));
        // Only good blocks are remembered: a bad one is computed again each time, and never served.
        if let Some(word) = self.verified.get(block / 64).filter(|_| good) {
            word.fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_in_any_pieces_has_the_checksums_of_its_blocks() {
        let bytes: Vec<u8> = (0..3 * CHECKSUM_BLOCK + 17).map(|i| (i * 31 % 251) as u8).collect();
        let whole: Vec<u64> = bytes.chunks(CHECKSUM_BLOCK).map(checksum).collect();
        for piece in [1, 100, CHECKSUM_BLOCK, CHECKSUM_BLOCK + 1, bytes.len()] {
            let mut stream = BlockChecksums::new();
            bytes.chunks(piece).for_each(|piece| stream.update(piece));
            assert_eq!(stream.finish(), whole);
        }
    }

    #[test]
    fn a_changed_block_is_noticed_and_its_neighbours_are_served() {
        let mut bytes = vec![7; 3 * CHECKSUM_BLOCK];
        let checksums = bytes.chunks(CHECKSUM_BLOCK).map(checksum).collect::<Vec<_>>();
        bytes[CHECKSUM_BLOCK] ^= 1;
        assert!(VerifiedBlocks::new(checksums.clone(), bytes.len() + 1).is_none());
        let blocks = VerifiedBlocks::new(checksums, bytes.len()).unwrap();
        assert!(blocks.verify(&bytes, 0, CHECKSUM_BLOCK));
        assert!(!blocks.verify(&bytes, CHECKSUM_BLOCK - 1, CHECKSUM_BLOCK + 1));
        assert!(blocks.verify(&bytes, 2 * CHECKSUM_BLOCK, 3 * CHECKSUM_BLOCK));
        assert!(!blocks.verify(&bytes, 2 * CHECKSUM_BLOCK, 3 * CHECKSUM_BLOCK + 1));
    }

    #[test]
    fn every_block_counts_wherever_a_range_begins_and_ends() {
        let mut bytes: Vec<u8> = (0..67 * CHECKSUM_BLOCK).map(|i| (i / CHECKSUM_BLOCK) as u8).collect();
        let checksums = bytes.chunks(CHECKSUM_BLOCK).map(checksum).collect::<Vec<_>>();
        let changed = [1, 64];
        for block in changed {
            bytes[block * CHECKSUM_BLOCK] ^= 1;
        }
        let blocks = VerifiedBlocks::new(checksums, bytes.len()).unwrap();
        assert!(!blocks.were_all_verified(0, 1) && blocks.were_all_verified(7, 7));
        // Twice: first they are verified, then they have been.
        for _ in 0..2 {
            for (first, last) in (0..67).flat_map(|first| (first + 1..67).map(move |last| (first, last))) {
                let good = blocks.verify(&bytes, (first + 1) * CHECKSUM_BLOCK - 1, last * CHECKSUM_BLOCK + 1);
                let expected = !changed.iter().any(|block| (first..=last).contains(block));
                assert_eq!(good, expected, "{first} {last}");
            }
        }
        for (first, last) in (0..67).flat_map(|first| (first + 1..67).map(move |last| (first, last))) {
            let all = blocks.were_all_verified((first + 1) * CHECKSUM_BLOCK - 1, last * CHECKSUM_BLOCK + 1);
            assert_eq!(all, !changed.iter().any(|block| (first..=last).contains(block)), "{first} {last}");
        }
        assert!(!blocks.were_all_verified(66 * CHECKSUM_BLOCK, bytes.len() + 1));
    }
}
