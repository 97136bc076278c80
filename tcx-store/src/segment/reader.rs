//! A segment whose bytes are read piece by piece, not mapped.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::open::tail_len;
use crate::segment::memory_cache::{CacheKey, CachedPart, MemoryCache, Part};
use crate::storage::ReadAt;
use crate::storage::name::SegmentName;
use crate::sys::checksum::CHECKSUM_BLOCK;
use crate::sys::verified_blocks::VerifiedBlocks;

/// A range of this number of bytes or more is read at once and not kept: it would push everything else aside.
const MANY: usize = 8 * CHECKSUM_BLOCK;

/// So much of a file's end is read at first: nearly always all of its tail.
const TAIL: usize = CHECKSUM_BLOCK;

/// Reads blocks, verifies each when it is read, and keeps them in the memory cache.
#[derive(Debug)]
pub(super) struct Reader {
    file: Box<dyn ReadAt>,
    segment: SegmentName,
    memory_cache: Arc<MemoryCache>,
    /// How often the file could not be read.
    failures: AtomicUsize,
}

impl Reader {
    pub(super) fn new(file: Box<dyn ReadAt>, segment: SegmentName, memory_cache: Arc<MemoryCache>) -> Self {
        Self { file, segment, memory_cache, failures: AtomicUsize::new(0) }
    }

    /// How often the file could not be read so far. If a part is not available and this number has
    /// grown since, the reason is a failed read and not damage.
    pub(super) fn failures(&self) -> usize {
        self.failures.load(Ordering::Acquire)
    }

    /// The size of the file.
    pub(super) fn bytes(&self) -> usize {
        self.file.bytes()
    }

    /// The bytes of a range as they are; `None` if they cannot be read.
    pub(super) fn read_raw(&self, range: Range<usize>) -> Option<Vec<u8>> {
        if range.end > self.bytes() {
            return None;
        }
        let mut bytes = vec![0; range.len()];
        match self.file.read_at(&mut bytes, range.start) {
            Ok(()) => Some(bytes),
            Err(error) => {
                tracing::debug!(segment = %self.segment, "cannot read: {error}");
                self.failures.fetch_add(1, Ordering::Release);
                None
            }
        }
    }

    /// The tail of the file, which is not verified; nothing if it has none.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(super) fn read_tail(&self) -> io::Result<Option<Vec<u8>>> {
        let mut len = self.bytes().min(TAIL);
        loop {
            let mut end = vec![0; len];
            self.file.read_at(&mut end, self.bytes() - len)?;
            match tail_len(&end) {
                Some(tail) if tail <= len => return Ok(Some(end.split_off(len - tail))),
                Some(tail) if tail <= self.bytes() => len = tail,
                _ => return Ok(None),
            }
        }
    }

    /// The bytes of a range of the body, verified; `None` if they cannot be read or trusted.
    pub(super) fn read(&self, range: Range<usize>, blocks: &VerifiedBlocks) -> Option<Vec<u8>> {
        if range.is_empty() {
            return Some(Vec::new());
        }
        let numbers = blocks.numbers(&range);
        if range.len() >= MANY {
            return self.read_blocks(range, numbers, blocks);
        }
        let (mut bytes, ahead) = (Vec::with_capacity(range.len()), RefCell::new(None));
        for number in numbers.clone() {
            let kept = self.block(number, numbers.end, blocks, &ahead)?;
            let (start, block) = (blocks.range(number)?.start, kept.block()?);
            let wanted = range.start.max(start) - start..block.len().min(range.end - start);
            bytes.extend_from_slice(block.get(wanted)?);
        }
        (bytes.len() == range.len()).then_some(bytes)
    }

    /// A block. If it has to be read, it is read with the others up to `end`, which are left in `ahead`.
    fn block(
        &self,
        number: usize,
        end: usize,
        blocks: &VerifiedBlocks,
        ahead: &RefCell<Option<(usize, Vec<u8>)>>,
    ) -> Option<Arc<CachedPart>> {
        let key = CacheKey { segment: self.segment, part: Part::Block(number) };
        self.memory_cache.get(key, || {
            let range = blocks.range(number)?;
            let mut ahead = ahead.borrow_mut();
            if ahead.is_none() {
                let all = range.start..blocks.range(end.checked_sub(1)?)?.end;
                *ahead = Some((range.start, self.read_raw(all)?));
            }
            let (start, read) = ahead.as_ref()?;
            let block = read.get(range.start.checked_sub(*start)?..range.end.checked_sub(*start)?)?;
            self.is_block(number, block, blocks).then(|| CachedPart::Block(block.to_vec()))
        })
    }

    fn is_block(&self, number: usize, block: &[u8], blocks: &VerifiedBlocks) -> bool {
        blocks.is_block(number, block, |range| self.read_raw(range).map(Cow::Owned))
    }

    /// Reads whole blocks at once and cuts the range out of them.
    fn read_blocks(
        &self,
        range: Range<usize>,
        numbers: Range<usize>,
        blocks: &VerifiedBlocks,
    ) -> Option<Vec<u8>> {
        let (first, last) = (blocks.range(numbers.start)?, blocks.range(numbers.end.checked_sub(1)?)?);
        let mut bytes = self.read_raw(first.start..last.end)?;
        let mut good = numbers.zip(bytes.chunks(blocks.block()));
        if !good.all(|(number, block)| self.is_block(number, block, blocks)) {
            return None;
        }
        bytes.truncate(range.end.checked_sub(first.start)?);
        bytes.drain(..range.start.checked_sub(first.start)?);
        (bytes.len() == range.len()).then_some(bytes)
    }

    /// Reads all blocks; whether every byte of them is as it was written.
    pub(super) fn is_intact(&self, blocks: &VerifiedBlocks) -> bool {
        (0..blocks.count()).all(|number| {
            let block = blocks.range(number).and_then(|range| self.read_raw(range));
            block.is_some_and(|block| self.is_block(number, &block, blocks))
        })
    }
}
