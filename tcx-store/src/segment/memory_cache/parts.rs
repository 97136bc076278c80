//! The parts that are kept, and which of them go first.
//!
//! With [`MemoryCachePolicy::Lru`] there is one list. With [`MemoryCachePolicy::ScanResistant`] there are two, and the keys of
//! parts that went:
//!
//! - *probation*: parts that were loaded, and may never be wanted again. They go first.
//! - *protected*: parts that are known to be wanted again soon, at most four fifths of the bytes.
//!
//! Intervals decide, measured in loaded bytes. A part is protected if it was wanted twice within a fourth of the interval for which
//! the protected part that was used least recently was idle, which then goes back on probation. So an epoch larger than the cache
//! displaces nothing that is wanted more often than once in an epoch, and what is not wanted any more goes. As long as there is
//! room, the first parts are protected.

use std::sync::Arc;

use lru::LruCache;

use super::{CacheKey, CachedPart, Cell, ENTRY};
use crate::options::MemoryCachePolicy;

/// Wanted again before this part of the limit was loaded, a part is only still in use: rows of one batch are often near each other.
const STILL_IN_USE: usize = 16;
/// How many times the interval a protected part has to be idle to make way. If every epoch has another order, a part that came late in
/// one and early in the next was wanted twice within a short interval, and says nothing.
const IDLE: u64 = 4;

#[derive(Debug)]
pub(super) struct Parts {
    policy: MemoryCachePolicy,
    /// The setting. What is kept may be limited to less for a time.
    limit: usize,
    /// All parts, if there is one list.
    probation: List<Entry>,
    protected: List<Entry>,
    /// Parts that went, with at most the bytes of the limit.
    gone: List<Gone>,
    /// The bytes that were loaded up to now.
    loaded: u64,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    cell: Cell,
    /// What the cell holds, once it is filled: one step less for those that find it.
    part: Option<Arc<CachedPart>>,
    /// 0 until the cell is filled.
    bytes: usize,
    /// The bytes that had been loaded when it was wanted last.
    used: u64,
}

/// A part that went.
#[derive(Debug)]
struct Gone {
    bytes: usize,
    used: u64,
}

impl Parts {
    pub(super) fn new(policy: MemoryCachePolicy, limit: usize) -> Self {
        Self {
            policy,
            limit,
            probation: List::default(),
            protected: List::default(),
            gone: List::default(),
            loaded: 0,
        }
    }

    /// The cell of the key, which counts as wanted now; an empty one if there was none.
    pub(super) fn want(&mut self, key: CacheKey) -> Cell {
        if let Some(entry) = self.protected.get_mut(&key) {
            entry.used = self.loaded;
            return entry.cell.clone();
        }
        let loaded = self.loaded;
        let entry = self.probation.keys.get_or_insert_mut(key, || Entry { used: loaded, ..Entry::default() });
        let (cell, interval) = (entry.cell.clone(), loaded - entry.used);
        self.wanted_again(key, interval);
        cell
    }

    /// The part of the key, which counts as wanted now, if it is loaded.
    pub(super) fn want_loaded(&mut self, key: CacheKey) -> Option<Arc<CachedPart>> {
        if let Some(entry) = self.protected.get_mut(&key) {
            entry.used = self.loaded;
            return entry.part.clone();
        }
        let entry = self.probation.get_mut(&key)?;
        let (part, interval) = (entry.part.clone()?, self.loaded - entry.used);
        self.wanted_again(key, interval);
        Some(part)
    }

    /// A part on probation was wanted again, after this interval.
    fn wanted_again(&mut self, key: CacheKey, interval: u64) {
        if interval < (self.limit / STILL_IN_USE) as u64 {
            return;
        }
        let loaded = self.loaded;
        if let Some(entry) = self.probation.keys.peek_mut(&key).filter(|entry| entry.bytes > 0) {
            entry.used = loaded;
            self.protect_if_wanted_within(key, interval);
        }
    }

    /// The cell that [`want`](Self::want) has returned is filled with a part; `None` if it could not be loaded. Returns the parts that go,
    /// so that at most `most` bytes are kept.
    pub(super) fn fill(
        &mut self,
        key: CacheKey,
        cell: &Cell,
        part: Option<&Arc<CachedPart>>,
        most: usize,
    ) -> Vec<Entry> {
        let Some(entry) = self.probation.keys.peek_mut(&key).filter(|own| Arc::ptr_eq(&own.cell, cell))
        else {
            return Vec::new();
        };
        let kept = part.map(|part| (part, part.heap_bytes() + ENTRY)).filter(|(_, bytes)| *bytes <= most);
        let Some((part, bytes)) = kept else {
            let mut gone: Vec<Entry> = self.probation.pop(key).into_iter().collect();
            gone.extend(self.shrink(most));
            return gone;
        };
        self.loaded += bytes as u64;
        (entry.part, entry.bytes, entry.used) = (Some(part.clone()), bytes, self.loaded);
        self.probation.bytes += bytes;
        if self.policy == MemoryCachePolicy::ScanResistant {
            let gone = self.gone.pop(key);
            self.protect_if_wanted_within(key, gone.map_or(u64::MAX, |gone| self.loaded - gone.used));
        }
        self.shrink(most)
    }

    /// Lets go of parts until at most `most` bytes are kept, and returns them.
    pub(super) fn shrink(&mut self, most: usize) -> Vec<Entry> {
        let mut gone = Vec::new();
        while self.bytes() > most {
            let Some((key, entry)) = self.probation.pop_last().or_else(|| self.protected.pop_last()) else {
                break;
            };
            if self.policy == MemoryCachePolicy::ScanResistant && entry.bytes > 0 {
                self.gone.push(key, Gone { bytes: entry.bytes, used: entry.used });
            }
            gone.push(entry);
        }
        while self.gone.bytes > self.limit && self.gone.pop_last().is_some() {}
        gone
    }

    /// Protects a part on probation that was wanted twice within this interval, if there is room, or a protected part was idle for
    /// longer.
    fn protect_if_wanted_within(&mut self, key: CacheKey, interval: u64) {
        if self.policy != MemoryCachePolicy::ScanResistant {
            return;
        }
        let most = self.limit / 5 * 4;
        let bytes = self.probation.keys.peek(&key).map_or(0, |entry| entry.bytes);
        let is_idle = |(_, last): (_, &Entry)| self.loaded - last.used > interval.saturating_mul(IDLE);
        if self.protected.bytes + bytes > most && !self.protected.keys.peek_lru().is_some_and(is_idle) {
            return;
        }
        let Some(entry) = self.probation.pop(key) else { return };
        self.protected.push(key, entry);
        while self.protected.bytes > most {
            let Some((key, entry)) = self.protected.pop_last() else { break };
            self.probation.push(key, entry);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.probation.bytes + self.protected.bytes
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.probation.keys.len() + self.protected.keys.len()
    }
}

/// Keys in the order of their use, and the bytes of what they stand for.
#[derive(Debug)]
struct List<T> {
    keys: LruCache<CacheKey, T>,
    bytes: usize,
}

/// Something in a [`List`].
trait Listed {
    fn bytes(&self) -> usize;
}

impl Listed for Entry {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Listed for Gone {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T: Listed> List<T> {
    /// What has the key, which is used now.
    fn get_mut(&mut self, key: &CacheKey) -> Option<&mut T> {
        // Hashed only if there is something: with one list, the other is empty.
        if self.keys.is_empty() { None } else { self.keys.get_mut(key) }
    }

    /// Adds what is not there, as that which was used last.
    fn push(&mut self, key: CacheKey, listed: T) {
        self.bytes += listed.bytes();
        self.keys.put(key, listed);
    }

    fn pop(&mut self, key: CacheKey) -> Option<T> {
        let listed = self.keys.pop(&key)?;
        self.bytes -= listed.bytes();
        Some(listed)
    }

    /// What was not used for the longest time.
    fn pop_last(&mut self) -> Option<(CacheKey, T)> {
        let (key, listed) = self.keys.pop_lru()?;
        self.bytes -= listed.bytes();
        Some((key, listed))
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { keys: LruCache::unbounded(), bytes: 0 }
    }
}
