//! The memory cache: what was decompressed or read lately, so that it is there when it is wanted again.
//!
//! The crate `lru` keeps the order of use; this room adds what a general cache does not give together: one thread loads an
//! entry while others wait for it without a lock, an entry whose load fails is not kept, the limit counts bytes and is lower when
//! the machine runs short of memory. A cache with an approximate order (`quick_cache`) would still need all of it.

mod parts;
mod pressure;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::options::MemoryCachePolicy;
use crate::segment::Unpacked;
use crate::stats::TierCounts;
use crate::storage::name::SegmentName;
use crate::sys::memory::available;
use parts::Parts;
use pressure::Pressure;

/// What an entry takes beside its bytes, about.
const ENTRY: usize = 300;

/// A part of a segment: its name distinguishes it from every other, even from a forged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub(crate) segment: SegmentName,
    pub(crate) part: Part,
}

/// What is kept of a segment, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// Rows that were decompressed together, by the first of them.
    Rows(usize),
    /// A checksum block that was read.
    Block(usize),
}

/// The value of a key.
#[derive(Debug)]
pub(crate) enum CachedPart {
    Rows(Unpacked),
    Block(Vec<u8>),
}

impl CachedPart {
    pub(crate) fn rows(&self) -> Option<&Unpacked> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::Block(_) => None,
        }
    }

    pub(crate) fn block(&self) -> Option<&[u8]> {
        match self {
            Self::Block(block) => Some(block),
            Self::Rows(_) => None,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.heap_bytes(),
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
    pressure: Pressure,
    entries: Mutex<Entries>,
}

#[derive(Debug)]
struct Entries {
    parts: Parts,
    /// How often something was wanted.
    wanted: u64,
    /// How often it had to be loaded.
    loaded: u64,
}

impl MemoryCache {
    /// A cache of at most `limit` bytes; with 0, it keeps nothing.
    pub(crate) fn new(limit: usize, policy: MemoryCachePolicy) -> Self {
        Self::with_pressure(limit, policy, Pressure::new(limit, Box::new(available)))
    }

    fn with_pressure(limit: usize, policy: MemoryCachePolicy, pressure: Pressure) -> Self {
        let entries = Entries { parts: Parts::new(policy, limit), wanted: 0, loaded: 0 };
        Self { limit, pressure, entries: Mutex::new(entries) }
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
            kept.parts.want(key)
        };
        let mut is_new = false;
        let loaded = cell.get_or_init(|| {
            is_new = true;
            load().map(Arc::new)
        });
        if is_new {
            self.settle(key, &cell, loaded.as_ref());
        }
        // Why another could not have it is not known here.
        if !is_new && loaded.is_none() { load().map(Arc::new) } else { loaded.clone() }
    }

    /// Finds those of the wanted parts that are loaded. One search after the other, with the lock held once: so the processor waits for the
    /// memory of several at the same time.
    pub(crate) fn find_loaded<'p>(
        &self,
        wanted: impl Iterator<Item = (CacheKey, &'p mut Option<Arc<CachedPart>>)>,
    ) {
        let mut wanted = wanted.peekable();
        if self.limit == 0 || wanted.peek().is_none() {
            return;
        }
        let mut kept = self.kept();
        for (key, part) in wanted {
            *part = kept.parts.want_loaded(key);
            kept.wanted += u64::from(part.is_some());
        }
    }

    /// Counts what was loaded, and lets go of what the policy says. What could not be loaded is tried again when it is wanted
    /// again.
    fn settle(&self, key: CacheKey, cell: &Cell, part: Option<&Arc<CachedPart>>) {
        // Before the lock is taken: others do not wait for files to be read.
        let most = self.pressure.limit(|| self.bytes());
        let mut kept = self.kept();
        kept.loaded += 1;
        let gone = kept.parts.fill(key, cell, part, most);
        drop(kept);
        // Freed without the lock.
        drop(gone);
    }

    /// The most bytes that are kept now: the setting, or less as long as memory is short.
    pub(crate) fn limit(&self) -> usize {
        self.pressure.allowed()
    }

    /// How often it was made smaller because memory was short.
    pub(crate) fn shrinks(&self) -> u64 {
        self.pressure.shrinks()
    }

    /// Bytes of all that is kept.
    pub(crate) fn bytes(&self) -> usize {
        self.kept().parts.bytes()
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
mod tests;
