//! The memory cache: what was decompressed or read lately, so that it is there when it is wanted again.
//!
//! The crate `lru` keeps the order of use; this file adds what a general cache does not give together: one thread loads an
//! entry while others wait for it without a lock, an entry whose load fails is not kept, and the limit counts bytes. A cache
//! with an approximate order (`quick_cache`) would still need all of it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lru::LruCache;

use crate::segment::Unpacked;
use crate::stats::TierCounts;
use crate::storage::name::SegmentName;

/// What an entry takes beside its bytes, about.
const ENTRY: usize = 200;

/// A part of a segment: its name distinguishes it from every other, even from a forged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub(crate) segment: SegmentName,
    pub(crate) part: Part,
}

/// What is kept of a segment, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// A record batch that was decompressed.
    Batch(usize),
    /// A checksum block that was read.
    Block(usize),
}

/// The value of a key.
#[derive(Debug)]
pub(crate) enum CachedPart {
    Batch(Unpacked),
    Block(Vec<u8>),
}

impl CachedPart {
    pub(crate) fn batch(&self) -> Option<&Unpacked> {
        match self {
            Self::Batch(batch) => Some(batch),
            Self::Block(_) => None,
        }
    }

    pub(crate) fn block(&self) -> Option<&[u8]> {
        match self {
            Self::Block(block) => Some(block),
            Self::Batch(_) => None,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Batch(batch) => batch.heap_bytes(),
            Self::Block(block) => block.capacity(),
        }
    }
}

/// Filled by the thread that comes first; the others wait for it. `None` means that the part is not available.
type Cell = Arc<OnceLock<Option<Arc<CachedPart>>>>;

/// Recently used parts, with a limit of bytes for all of them.
#[derive(Debug)]
pub(crate) struct MemoryCache {
    limit: usize,
    entries: Mutex<Entries>,
}

#[derive(Debug)]
struct Entries {
    parts: LruCache<CacheKey, Entry>,
    bytes: usize,
    /// How often something was wanted.
    wanted: u64,
    /// How often it had to be loaded.
    loaded: u64,
}

#[derive(Debug, Default)]
struct Entry {
    cell: Cell,
    /// 0 until the cell is filled.
    bytes: usize,
}

impl MemoryCache {
    /// A cache of at most `limit` bytes; with 0, it keeps nothing.
    pub(crate) fn new(limit: usize) -> Self {
        let entries = Entries { parts: LruCache::unbounded(), bytes: 0, wanted: 0, loaded: 0 };
        Self { limit, entries: Mutex::new(entries) }
    }

    /// The value of the key; `load` makes it if it is missing. Of several threads that want the same at once, one
    /// loads it, without holding the lock.
    pub(crate) fn get(
        &self,
        key: CacheKey,
        load: impl Fn() -> Option<CachedPart>,
    ) -> Option<Arc<CachedPart>> {
        if self.limit == 0 {
            return load().map(Arc::new);
        }
        let cell = {
            let mut kept = self.kept();
            kept.wanted += 1;
            kept.parts.get_or_insert(key, Entry::default).cell.clone()
        };
        let mut is_new = false;
        let loaded = cell.get_or_init(|| {
            is_new = true;
            load().map(Arc::new)
        });
        if is_new {
            self.settle(key, &cell, loaded.as_deref().map(CachedPart::heap_bytes));
        }
        // Why another could not have it is not known here.
        if !is_new && loaded.is_none() { load().map(Arc::new) } else { loaded.clone() }
    }

    /// Counts what was loaded, and lets go of what was not used for the longest time. What could not be loaded is tried
    /// again when it is wanted again.
    fn settle(&self, key: CacheKey, cell: &Cell, bytes: Option<usize>) {
        // Freed when the lock is.
        let mut gone = Vec::new();
        let mut kept = self.kept();
        kept.loaded += 1;
        let Some(entry) = kept.parts.peek_mut(&key).filter(|entry| Arc::ptr_eq(&entry.cell, cell)) else {
            return;
        };
        match bytes.filter(|bytes| bytes + ENTRY <= self.limit) {
            Some(bytes) => {
                entry.bytes = bytes + ENTRY;
                kept.bytes += bytes + ENTRY;
            }
            None => gone.extend(kept.parts.pop(&key)),
        }
        while kept.bytes > self.limit {
            let Some((_, oldest)) = kept.parts.pop_lru() else { break };
            kept.bytes -= oldest.bytes;
            gone.push(oldest);
        }
        drop(kept);
    }

    /// Bytes of all that is kept.
    pub(crate) fn bytes(&self) -> usize {
        self.kept().bytes
    }

    /// How often something was here, and how often it had to be loaded.
    pub(crate) fn counts(&self) -> TierCounts {
        let kept = self.kept();
        TierCounts { hits: kept.wanted.saturating_sub(kept.loaded), misses: kept.loaded }
    }

    fn kept(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::sys::bytes::Random;

    fn key(number: usize) -> CacheKey {
        let segment = SegmentName { random: Random([7; 16]), tail: 7 };
        CacheKey { segment, part: Part::Block(number) }
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_goes_first() {
        let memory_cache = MemoryCache::new(3 * (1000 + ENTRY));
        let get = |number| {
            let mut is_new = false;
            let loads = std::cell::Cell::new(false);
            let kept = memory_cache.get(key(number), || {
                loads.set(true);
                Some(CachedPart::Block(vec![number as u8; 1000]))
            });
            is_new |= loads.get();
            assert_eq!(kept.unwrap().block().unwrap()[0], number as u8);
            assert!(memory_cache.bytes() <= 3 * (1000 + ENTRY));
            is_new
        };
        assert!(get(1) && get(2) && get(3));
        assert!(!get(1) && !get(2) && !get(3) && !get(1));
        assert!(get(4));
        assert!(!get(1) && !get(3) && !get(4));
        assert!(get(2));
    }

    #[test]
    fn what_is_too_large_and_what_cannot_be_loaded_is_not_kept() {
        let memory_cache = MemoryCache::new(5000);
        assert!(memory_cache.get(key(1), || Some(CachedPart::Block(vec![0; 5000]))).is_some());
        assert!(memory_cache.get(key(2), || None).is_none());
        assert_eq!((memory_cache.bytes(), memory_cache.kept().parts.len()), (0, 0));
        assert!(memory_cache.get(key(2), || Some(CachedPart::Block(vec![0; 10]))).is_some());
        assert_eq!(memory_cache.bytes(), 10 + ENTRY);
    }

    #[test]
    fn of_many_threads_that_want_the_same_one_loads_it() {
        let (memory_cache, loads, start) = (MemoryCache::new(1 << 20), AtomicUsize::new(0), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let kept = memory_cache.get(key(1), || {
                        loads.fetch_add(1, Ordering::SeqCst);
                        Some(CachedPart::Block(vec![5; 100]))
                    });
                    assert_eq!(kept.unwrap().block(), Some(&[5; 100][..]));
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }
}
