//! Keeping a folder within the room that it may take.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::live::retention::EVICTED_PARTS;
use crate::options::WhenFull;
use crate::storage::name::FileName;
use crate::sys::notice::{Trouble, notice};
use crate::sys::runtime::lock;
use crate::upkeep::compaction::{Excess, evict};
use crate::upkeep::eviction::EvictionOrder;

impl Core {
    /// Whether the folder is full, and nothing more is kept.
    pub(crate) fn is_full(&self) -> bool {
        let sealed = self.counters.bytes_sealed.get();
        let since = sealed.saturating_sub(self.sealed_when_measured.load(Ordering::Relaxed));
        let is_full = |max| {
            let used = self.used_bytes.load(Ordering::Relaxed).saturating_add(since);
            used.saturating_add(self.buffer.waiting().1 as u64) >= max
        };
        self.retention.when_full == WhenFull::StopWriting && self.retention.max_bytes.is_some_and(is_full)
    }

    /// Reports that rows are not kept because the folder is full: as a notice, since `stats` counts them and it is what the caller
    /// has chosen.
    #[cold]
    pub(crate) fn report_full(&self) {
        let full = format_args!(
            "{} has reached its max_bytes: rows are computed but not kept; raise it, remove rows, or choose another `when_full`",
            self.storage.path().display()
        );
        notice(Trouble::Full, full);
    }

    /// Looks how much room the folder takes, and makes some if it is too much. Done before the first row, after every seal, when
    /// the writer is idle and when it ends, by the thread that joins files: the writer does not wait for it.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed, or is not the one that was opened.
    pub(crate) fn keep_within_limits(&self) -> Result<()> {
        let Some(max) = self.retention.max_bytes else { return Ok(()) };
        let _alone = lock(&self.evicting);
        if self.used()? > max {
            self.collect(Duration::ZERO)?;
            if self.retention.when_full.evicts() {
                self.evict(max)?;
            }
        }
        self.note_room()
    }

    /// Removes entries of the index that lead to no row, and rows if that is not enough. A part of the limit is left to such entries,
    /// so that the index is not written again for each segment.
    fn evict(&self, max: u64) -> Result<()> {
        let stale = max / EVICTED_PARTS;
        if self.used()? > max {
            self.trim_index(stale)?;
        }
        let used = self.used()?;
        if used > max {
            self.evict_within(max, used)?;
            self.trim_index(stale)?;
        }
        Ok(())
    }

    /// Removes rows until the folder, which takes `used` bytes, takes `max`: the oldest, or those that the policy chooses. Where that
    /// would take the rows that have just become durable because other files cannot be removed, those files are not counted: without
    /// them, the rows are kept within the limit.
    fn evict_within(&self, max: u64, used: u64) -> Result<()> {
        let usable = self.live().decided();
        let rows = usable.iter().map(|segment| segment.bytes() as u64).sum::<u64>().min(used);
        let newest = usable.iter().max_by_key(|segment| (segment.born(), segment.name()));
        let sealed = self.counters.bytes_sealed.get();
        let fresh = sealed.saturating_sub(self.sealed_at_eviction.swap(sealed, Ordering::Relaxed));
        let kept = fresh.max(newest.map_or(0, |segment| segment.bytes() as u64));
        let is_within_reach = (used - rows).saturating_add(kept) <= max;
        self.note_what_stays(max, is_within_reach)?;
        let counted = if is_within_reach { used } else { rows };
        if counted > max {
            evict(
                self,
                Excess::Folder(counted - max),
                EvictionOrder::of(self.retention.when_full, kept, max),
            )?;
        }
        Ok(())
    }

    /// Warns once of segments that keep the folder above its limit, and that eviction does not remove.
    fn note_what_stays(&self, max: u64, is_within_reach: bool) -> Result<()> {
        let bytes = if is_within_reach { 0 } else { self.unusable_bytes()? };
        let folder = self.storage.path();
        let cache = folder.parent().unwrap_or(folder).display();
        let within = if bytes == 0 {
            Ok(())
        } else {
            Err(format!(
                "{bytes} bytes of segments are damaged, belong to another cache or have a newer version: eviction removes none of \
                 them, so they are not counted in `max_bytes` ({max}); `tcx verify {cache}` names them, and \
                 `tcx verify {cache} --repair --yes` moves damaged ones away"
            ))
        };
        self.failing.note("keep within the limit", folder, within);
        Ok(())
    }

    /// The bytes of segments that cannot be served.
    fn unusable_bytes(&self) -> Result<u64> {
        let names = self.storage.list().map_err(|e| Error::io("cannot list", self.storage.path(), e))?;
        let live = self.live();
        let unusable = names.iter().filter(|name| match FileName::parse(name) {
            // One that has got its name in this moment was not looked at yet.
            Some(FileName::Segment(name)) => matches!(live.segments.opened(name), Some(Err(_))),
            _ => false,
        });
        let bytes = unusable.filter_map(|name| self.storage.info(name).ok()).map(|info| info.bytes);
        Ok(bytes.fold(0, u64::saturating_add))
    }

    /// Looks how much room the folder takes, if that matters.
    pub(crate) fn note_room(&self) -> Result<()> {
        if self.retention.max_bytes.is_none() {
            return Ok(());
        }
        // The last count holds, whichever thread made it.
        let _alone = lock(&self.measuring);
        // Before the listing: what is sealed meanwhile may be counted twice, and is not forgotten.
        let sealed = self.counters.bytes_sealed.get();
        self.used_bytes.store(self.used()?, Ordering::Relaxed);
        self.sealed_when_measured.store(sealed, Ordering::Relaxed);
        Ok(())
    }

    /// The bytes of all files, temporary and replaced ones too.
    fn used(&self) -> Result<u64> {
        let names = self.storage.list().map_err(|e| Error::io("cannot list", self.storage.path(), e))?;
        let own = names.iter().filter(|name| FileName::parse(name).is_some());
        // One that has vanished takes none.
        let bytes = own.filter_map(|name| self.storage.info(name).ok()).map(|info| info.bytes);
        Ok(bytes.fold(0, u64::saturating_add))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{compute, process, seal_all};

    #[test]
    fn a_segment_that_was_not_looked_at_yet_is_not_reported_as_one_that_cannot_be_served() {
        let dir = tempfile::tempdir().unwrap();
        let (store, other) = (process(dir.path()), process(dir.path()));
        compute(&store, &["x"], 1);
        seal_all(&store);
        compute(&other, &["y"], 1);
        seal_all(&other);
        assert_eq!(store.core.unusable_bytes().unwrap(), 0);
    }
}
