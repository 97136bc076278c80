//! Which blocks of a file this process has verified: each when it is first used.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::bytes::u64_at;
use crate::sys::checksum::checksum;

/// Bytes of a checksum.
pub(crate) const CHECKSUM: usize = size_of::<u64>();

/// Bytes of a table of checksums that are verified together.
pub(crate) const TABLE_PART: usize = 4096;

/// The checksums of the blocks of a file.
#[derive(Debug)]
pub(crate) enum Checksums {
    Known(Vec<u64>),
    InFile(ChecksumTable),
}

/// A table of checksums in the file itself, each part of which is verified when it is first used.
#[derive(Debug)]
pub(crate) struct ChecksumTable {
    /// Where it begins, and how many checksums it has.
    start: usize,
    count: usize,
    /// The checksum of each part.
    parts: Vec<u64>,
    verified: Bits,
    /// Parts that were read, where the file is not mapped.
    read: Box<[OnceLock<Box<[u8]>>]>,
}

impl ChecksumTable {
    /// `None` if there are not just as many parts as `count` checksums need.
    pub(crate) fn new(start: usize, count: usize, parts: Vec<u64>) -> Option<Self> {
        let bytes = count.checked_mul(CHECKSUM)?;
        start.checked_add(bytes)?;
        if parts.len() != bytes.div_ceil(TABLE_PART) {
            return None;
        }
        let (verified, read) = (Bits::new(parts.len()), parts.iter().map(|_| OnceLock::new()).collect());
        Some(Self { start, count, parts, verified, read })
    }

    /// The bytes of the part that has the checksum of this block.
    fn part(&self, block: usize) -> Range<usize> {
        let start = block * CHECKSUM / TABLE_PART * TABLE_PART;
        self.start + start..self.start + (start + TABLE_PART).min(self.count * CHECKSUM)
    }

    /// The bytes of the parts that have the checksums of these blocks, if some of them were not verified yet.
    fn unverified(&self, blocks: Range<usize>) -> Option<Range<usize>> {
        let number = |block: usize| block * CHECKSUM / TABLE_PART;
        let last = blocks.end.checked_sub(1)?;
        let were_verified = self.verified.has_all(number(blocks.start)..number(last) + 1);
        (!were_verified).then(|| self.part(blocks.start).start..self.part(last).end)
    }

    /// The bytes of the parts that have the checksums of these blocks, if some of them were not read yet, of a file that is not mapped.
    fn unread(&self, blocks: Range<usize>) -> Option<Range<usize>> {
        let number = |block: usize| block * CHECKSUM / TABLE_PART;
        let last = blocks.end.checked_sub(1)?;
        let parts = self.read.get(number(blocks.start)..number(last) + 1)?;
        let are_read = parts.iter().all(|part| part.get().is_some());
        (!are_read).then(|| self.part(blocks.start).start..self.part(last).end)
    }

    /// The checksum of a block; `None` if its part cannot be read, or is damaged.
    fn get<'f>(&self, block: usize, file: impl FnOnce(Range<usize>) -> Option<Cow<'f, [u8]>>) -> Option<u64> {
        if block >= self.count {
            return None;
        }
        let (number, at) = (block * CHECKSUM / TABLE_PART, block * CHECKSUM % TABLE_PART);
        if let Some(part) = self.read[number].get() {
            return u64_at(part, at);
        }
        let part = file(self.part(block))?;
        if !self.verified.has(number) {
            (checksum(&part) == self.parts[number]).then_some(())?;
            match part {
                Cow::Borrowed(_) => drop(self.verified.add(number)),
                Cow::Owned(part) => return u64_at(self.read[number].get_or_init(|| part.into()), at),
            }
        }
        u64_at(&part, at)
    }
}

/// A set of numbers below a limit, to which threads add.
#[derive(Debug)]
struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn new(limit: usize) -> Self {
        Self((0..limit.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn has(&self, number: usize) -> bool {
        self.from(number) & 1 == 1
    }

    /// A bit for each number, from `number` on, as far as they are in its word.
    #[inline]
    fn from(&self, number: usize) -> u64 {
        // Relaxed is enough: a bit orders nothing. It says that bytes which never change have been compared.
        self.0.get(number / 64).map_or(0, |word| word.load(Ordering::Relaxed) >> (number % 64))
    }

    /// Adds a number; whether its word is full now.
    fn add(&self, number: usize) -> bool {
        let bit = 1 << (number % 64);
        self.0.get(number / 64).is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) | bit == u64::MAX)
    }

    /// Whether it has every number of a range. Word by word.
    fn has_all(&self, range: Range<usize>) -> bool {
        let mut number = range.start;
        while number < range.end {
            let count = (64 - number % 64).min(range.end - number);
            if self.from(number).trailing_ones() < count as u32 {
                return false;
            }
            number += count;
        }
        true
    }
}

/// The checksums of a range of a file, from its beginning on, and which of its blocks this process has verified.
#[derive(Debug)]
pub(crate) struct VerifiedBlocks {
    /// How many bytes the checksums cover.
    len: usize,
    /// A block has 2 to the power of this bytes.
    shift: u32,
    verified: Bits,
    /// The words of `verified` that are full: a lookup asks for all blocks of large segments.
    full: Bits,
    checksums: Checksums,
}

impl VerifiedBlocks {
    /// `None` if there are not just as many checksums as `len` bytes need, or if the size of a block is no power of two.
    pub(crate) fn new(block: usize, checksums: Checksums, len: usize) -> Option<Self> {
        let count = match &checksums {
            Checksums::Known(checksums) => checksums.len(),
            Checksums::InFile(table) => table.count,
        };
        if !block.is_power_of_two() || count != len.div_ceil(block) {
            return None;
        }
        let shift = block.trailing_zeros();
        Some(Self { len, shift, verified: Bits::new(count), full: Bits::new(count.div_ceil(64)), checksums })
    }

    /// Bytes of a block.
    pub(crate) fn block(&self) -> usize {
        1 << self.shift
    }

    /// Whether the bytes of `start..end` may be used; `bytes` is the file, or begins with the range that the checksums cover.
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
        let (first, last) = (start >> self.shift, (end - 1) >> self.shift);
        // Nearly always one block or a few. Where the last is in the next word, `from` gives 0 for it: the answer is no, and the caller
        // verifies or asks for all.
        let more = last - first;
        more < 64 && {
            let wanted = u64::MAX >> (63 - more);
            self.verified.from(first) & wanted == wanted
        }
    }

    /// Whether every block of `start..end` has been verified, however many they are.
    pub(crate) fn were_all_verified(&self, start: usize, end: usize) -> bool {
        if start >= end || end > self.len {
            return start == end && end <= self.len;
        }
        let (first, end) = (start >> self.shift, ((end - 1) >> self.shift) + 1);
        let words = first.div_ceil(64)..end / 64;
        if words.start >= words.end {
            return self.verified.has_all(first..end);
        }
        self.verified.has_all(first..words.start * 64)
            && self.verified.has_all(words.end * 64..end)
            && self.full.has_all(words)
    }

    /// The range, or if it was not verified yet, all bytes of its blocks: they are needed to verify it. And what is needed of the table of
    /// checksums.
    pub(crate) fn with_unverified(&self, range: Range<usize>) -> (Range<usize>, Option<Range<usize>>) {
        if range.end > self.len || self.were_all_verified(range.start, range.end) {
            return (range, None);
        }
        let (first, end) = (range.start >> self.shift, (range.end - 1) >> self.shift);
        let table = match &self.checksums {
            Checksums::Known(_) => None,
            Checksums::InFile(table) => table.unverified(first..end + 1),
        };
        (first << self.shift..((end + 1) << self.shift).min(self.len), table)
    }

    /// Whole blocks, which are those of this range, and what is needed of the table to verify them.
    pub(crate) fn whole(&self, range: Range<usize>) -> Option<(Range<usize>, Option<Range<usize>>)> {
        if range.is_empty() || range.end > self.len {
            return None;
        }
        let blocks = self.numbers(&range);
        let table = match &self.checksums {
            Checksums::Known(_) => None,
            Checksums::InFile(table) => table.unverified(blocks.clone()),
        };
        Some((blocks.start << self.shift..(blocks.end << self.shift).min(self.len), table))
    }

    /// Whether whole blocks of the file, which were read from `start` on, are as they were written. `map` is the same file.
    pub(crate) fn verify_read(&self, map: &[u8], start: usize, read: &[u8]) -> bool {
        let first = start >> self.shift;
        start == first << self.shift
            && read.chunks(self.block()).zip(first..).all(|(bytes, block)| {
                let good = self.is_block(block, bytes, |range| map.get(range).map(Cow::Borrowed));
                good && self.remember(block)
            })
    }

    #[inline(never)]
    fn verify_now(&self, bytes: &[u8], start: usize, end: usize) -> bool {
        if start >= end || end > self.len {
            return false;
        }
        let mut blocks = start >> self.shift..((end - 1) >> self.shift) + 1;
        blocks.all(|block| self.verified.has(block) || self.verify_block(bytes, block))
    }

    /// Reads all bytes again, also those that were verified before.
    pub(crate) fn verify_again(&self, bytes: &[u8]) -> bool {
        (0..self.count()).all(|block| self.is_intact(bytes, block))
    }

    /// How many blocks there are.
    pub(crate) fn count(&self) -> usize {
        self.len.div_ceil(self.block())
    }

    /// The bytes of a block.
    pub(crate) fn range(&self, block: usize) -> Option<Range<usize>> {
        let start = block.checked_mul(self.block())?;
        (block < self.count()).then(|| start..self.len.min(start + self.block()))
    }

    /// The blocks of a range that is not empty.
    pub(crate) fn numbers(&self, range: &Range<usize>) -> Range<usize> {
        range.start >> self.shift..((range.end - 1) >> self.shift) + 1
    }

    /// The blocks of a range; `None` if it is empty, or is not one of these blocks.
    pub(crate) fn numbers_of(&self, range: &Range<usize>) -> Option<Range<usize>> {
        (!range.is_empty() && range.end <= self.len).then(|| self.numbers(range))
    }

    /// What has to be read of the table of checksums to verify these blocks, where the file is not mapped.
    pub(crate) fn unread_table(&self, blocks: Range<usize>) -> Option<Range<usize>> {
        match &self.checksums {
            Checksums::Known(_) => None,
            Checksums::InFile(table) => table.unread(blocks),
        }
    }

    /// Whether these are the bytes of a block. `file` reads a range of the file as it is.
    pub(crate) fn is_block<'f>(
        &self,
        block: usize,
        bytes: &[u8],
        file: impl FnOnce(Range<usize>) -> Option<Cow<'f, [u8]>>,
    ) -> bool {
        let is_whole = self.range(block).is_some_and(|range| range.len() == bytes.len());
        is_whole && self.checksum(block, file) == Some(checksum(bytes))
    }

    fn checksum<'f>(
        &self,
        block: usize,
        file: impl FnOnce(Range<usize>) -> Option<Cow<'f, [u8]>>,
    ) -> Option<u64> {
        match &self.checksums {
            Checksums::Known(checksums) => checksums.get(block).copied(),
            Checksums::InFile(table) => table.get(block, file),
        }
    }

    fn is_intact(&self, bytes: &[u8], block: usize) -> bool {
        let own = self.range(block).and_then(|range| bytes.get(range));
        own.is_some_and(|own| self.is_block(block, own, |range| bytes.get(range).map(Cow::Borrowed)))
    }

    fn verify_block(&self, bytes: &[u8], block: usize) -> bool {
        let good = self.is_intact(bytes, block);
        // Only good blocks are remembered: a bad one is computed again each time, and never served.
        good && self.remember(block)
    }

    /// The block was verified.
    fn remember(&self, block: usize) -> bool {
        if self.verified.add(block) {
            self.full.add(block / 64);
        }
        true
    }
}
