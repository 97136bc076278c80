//! A segment whose bytes are read piece by piece, not mapped.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::open::tail_len;
use crate::segment::memory_cache::{CacheKey, CachedPart, MemoryCache, Part};
use crate::storage::ReadAt;
use crate::storage::name::SegmentName;
use crate::sys::checksum::CHECKSUM_BLOCK;
use crate::sys::runtime::{self, lock};
use crate::sys::verified_blocks::VerifiedBlocks;

/// A range of this number of bytes or more is read at once and not kept: it would push everything else aside.
pub(super) const MANY: usize = 8 * CHECKSUM_BLOCK;

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
    is_far: bool,
    ahead: Mutex<Ahead>,
}

/// What is known of the blocks of a far file.
#[derive(Debug, Default)]
struct Ahead {
    /// Those that lookups have read ahead, as long as one of them needs them.
    blocks: HashMap<usize, Weak<CachedPart>>,
    /// How many of them were needed when those were forgotten that were not.
    needed: usize,
    /// Those that did not verify though they were read twice.
    damaged: HashSet<usize>,
    /// Those that could not be read with others, and since when.
    unread: HashMap<usize, Instant>,
}

/// This number of blocks that were read ahead is kept in mind without a look at whether they are needed.
const FEW: usize = 64;

/// So long a block is not asked for by itself that could not be read with others: a lookup would wait for each of its rows.
const UNREAD_FOR: Duration = Duration::from_secs(1);

/// What is known of a block of a far file.
enum Known {
    Nothing,
    /// A lookup has read it ahead.
    Here(Arc<CachedPart>),
    Damaged,
    /// It could not be read a moment ago.
    Unread,
}

impl Reader {
    pub(super) fn new(file: Box<dyn ReadAt>, segment: SegmentName, memory_cache: Arc<MemoryCache>) -> Self {
        let (is_far, failures, ahead) = (file.is_far(), AtomicUsize::new(0), Mutex::default());
        Self { file, segment, memory_cache, failures, is_far, ahead }
    }

    /// Whether it is on another machine.
    pub(super) fn is_far(&self) -> bool {
        self.is_far
    }

    /// The next read reads the file again, where bytes of it are kept that do not verify.
    pub(super) fn forget(&self) {
        self.file.forget();
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
                self.note_failure(&error);
                None
            }
        }
    }

    pub(super) fn note_failure(&self, error: &io::Error) {
        tracing::debug!(segment = %self.segment, "cannot read: {error}");
        self.failures.fetch_add(1, Ordering::Release);
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
        if range.len() >= MANY && !self.has_ahead(&numbers) {
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
        match self.known(number) {
            Known::Here(block) => return Some(block),
            Known::Damaged => return None,
            Known::Unread => {
                self.failures.fetch_add(1, Ordering::Release);
                return None;
            }
            Known::Nothing => {}
        }
        self.memory_cache.get(self.key(number), || {
            let range = blocks.range(number)?;
            let mut ahead = ahead.borrow_mut();
            if ahead.is_none() {
                let all = range.start..blocks.range(end.checked_sub(1)?)?.end;
                *ahead = Some((range.start, self.read_raw(all)?));
            }
            let (start, read) = ahead.as_ref()?;
            let block = read.get(range.start.checked_sub(*start)?..range.end.checked_sub(*start)?)?;
            if self.is_block(number, block, blocks) {
                return Some(CachedPart::Block(block.to_vec()));
            }
            self.read_again(number, blocks).map(CachedPart::Block)
        })
    }

    fn key(&self, number: usize) -> CacheKey {
        CacheKey { segment: self.segment, part: Part::Block(number) }
    }

    /// A block that did not verify, if the file is far: it may have been damaged on its way, once.
    fn read_again(&self, number: usize, blocks: &VerifiedBlocks) -> Option<Vec<u8>> {
        if !self.is_far {
            return None;
        }
        self.forget();
        let block = self.read_raw(blocks.range(number)?)?;
        let failures = self.failures();
        if self.is_block(number, &block, blocks) {
            return Some(block);
        }
        if self.failures() == failures {
            self.note_damage(number);
        }
        None
    }

    /// What is known of a block.
    fn known(&self, number: usize) -> Known {
        if !self.is_far {
            return Known::Nothing;
        }
        let ahead = lock(&self.ahead);
        if ahead.damaged.contains(&number) {
            return Known::Damaged;
        }
        if let Some(block) = ahead.blocks.get(&number).and_then(Weak::upgrade) {
            return Known::Here(block);
        }
        let is_recent = |since: &Instant| runtime::now().duration_since(*since) < UNREAD_FOR;
        if ahead.unread.get(&number).is_some_and(is_recent) { Known::Unread } else { Known::Nothing }
    }

    fn has_ahead(&self, numbers: &Range<usize>) -> bool {
        self.is_far && numbers.clone().all(|number| !matches!(self.known(number), Known::Nothing))
    }

    /// A block that need not be read, which is here from now on as long as the caller has it.
    pub(super) fn held(&self, number: usize) -> Option<Arc<CachedPart>> {
        match self.known(number) {
            Known::Here(block) => return Some(block),
            Known::Damaged => return None,
            Known::Nothing | Known::Unread => {}
        }
        let mut found = None;
        self.memory_cache.find_loaded(std::iter::once((self.key(number), &mut found)));
        found.inspect(|block| self.hold(number, block))
    }

    /// A block that was read and verified, which is here from now on as long as the caller has it. It is kept in the memory cache, if it
    /// is to be.
    pub(super) fn add(&self, number: usize, block: &[u8], keep: bool) -> Option<Arc<CachedPart>> {
        let load = || Some(CachedPart::Block(block.to_vec()));
        let part = if keep { self.memory_cache.get(self.key(number), load) } else { load().map(Arc::new) };
        part.inspect(|part| self.hold(number, part))
    }

    fn hold(&self, number: usize, block: &Arc<CachedPart>) {
        lock(&self.ahead).blocks.insert(number, Arc::downgrade(block));
    }

    /// A block does not verify, though it was read twice.
    pub(super) fn note_damage(&self, number: usize) {
        lock(&self.ahead).damaged.insert(number);
    }

    /// A block could not be read with others.
    pub(super) fn note_unread(&self, number: usize) {
        lock(&self.ahead).unread.insert(number, runtime::now());
    }

    /// Whether a block is known to be damaged.
    pub(super) fn is_damaged(&self, number: usize) -> bool {
        lock(&self.ahead).damaged.contains(&number)
    }

    /// Forgets which blocks were read ahead and are not needed any more, and which could not be read. The memory cache may keep very many,
    /// so each lookup looks at them only if there are twice the number of those that were needed last.
    pub(super) fn tidy(&self) {
        let mut ahead = lock(&self.ahead);
        if ahead.blocks.len() > 2 * ahead.needed + FEW {
            ahead.blocks.retain(|_, block| block.strong_count() > 0);
            ahead.needed = ahead.blocks.len();
        }
        ahead.unread.clear();
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
        for (number, block) in numbers.zip(bytes.chunks_mut(blocks.block())) {
            if !self.is_block(number, block, blocks) {
                block.copy_from_slice(&self.read_again(number, blocks)?);
            }
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
