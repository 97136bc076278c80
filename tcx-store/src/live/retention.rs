//! How long rows are kept, and how much room a folder takes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::changes::now_millis;
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::options::{Options, WhenFull};
use crate::segment::Segment;
use crate::storage::name::FileName;
use crate::sys::clock;
use crate::sys::runtime::lock;
use crate::upkeep::compaction::evict;

/// Segments are joined within so many age groups at most, so that what is removed for its age is of that age.
const AGE_GROUPS: u64 = 16;

/// The limits of one folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    time_to_live: Option<u64>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) when_full: WhenFull,
}

impl Retention {
    pub(crate) fn new(options: &Options) -> Self {
        let time_to_live = options.time_to_live.map(clock::whole_millis);
        Self { time_to_live, max_bytes: options.max_bytes, when_full: options.when_full }
    }

    /// Rows that were computed before this moment, in milliseconds since 1970, are not served any more.
    pub(crate) fn oldest_kept(&self) -> u64 {
        self.time_to_live.map_or(0, |time| now_millis().saturating_sub(time))
    }

    /// When the first of these segments is to be let go of.
    pub(crate) fn expires<'a>(&self, segments: impl Iterator<Item = &'a Arc<Segment>>) -> Option<u64> {
        let time = self.time_to_live?;
        segments.map(|segment| segment.born().saturating_add(time)).min()
    }

    /// The age group of a segment among `all`: one, unless age decides what goes.
    pub(crate) fn age_group(&self, segment: &Segment, all: &[Arc<Segment>]) -> u64 {
        let ages = all.iter().map(|segment| segment.born());
        let (oldest, newest) = (ages.clone().min().unwrap_or(0), ages.max().unwrap_or(0));
        let span = match (self.time_to_live, self.max_bytes, self.when_full) {
            (Some(time), ..) => time,
            (None, Some(_), WhenFull::EvictOldest) => newest - oldest,
            _ => return 0,
        };
        // Counted from 1970, in powers of two: a segment's group does not change with every one that comes.
        segment.born() / (span / AGE_GROUPS).max(1).next_power_of_two()
    }
}

impl Core {
    /// Whether the folder is full, and nothing more is kept.
    pub(crate) fn is_frozen(&self) -> bool {
        let sealed = self.counters.bytes_sealed.get();
        let since = sealed.saturating_sub(self.sealed_when_measured.load(Ordering::Relaxed));
        let is_full = |max| {
            let used = self.used_bytes.load(Ordering::Relaxed).saturating_add(since);
            used.saturating_add(self.buffer.waiting().1 as u64) >= max
        };
        self.retention.when_full == WhenFull::Freeze && self.retention.max_bytes.is_some_and(is_full)
    }

    /// Looks how much room the folder takes, and makes some if it is too much. Done before the first row, after every seal, when
    /// the writer is idle and when it ends, by the thread that joins files: the writer does not wait for it.
    ///
    /// # Errors
    ///
    /// A folder that cannot be listed, or that is another's.
    pub(crate) fn keep_within_limits(&self) -> Result<()> {
        let Some(max) = self.retention.max_bytes else { return Ok(()) };
        if self.used()? > max {
            self.collect(Duration::ZERO)?;
            let used = self.used()?;
            if used > max && self.retention.when_full == WhenFull::EvictOldest {
                self.evict_within(max, used)?;
            }
        }
        self.note_room()
    }

    /// Removes the oldest rows until the folder, which takes `used` bytes, takes `max`. Where that would take the rows that have
    /// just become durable because other files cannot be removed, those files are not counted: without them, the rows are
    /// kept within the limit.
    fn evict_within(&self, max: u64, used: u64) -> Result<()> {
        let usable = self.live().segments.usable();
        let rows = usable.iter().map(|segment| segment.bytes() as u64).sum::<u64>().min(used);
        let newest = usable.iter().max_by_key(|segment| (segment.born(), segment.name()));
        let sealed = self.counters.bytes_sealed.get();
        let fresh = sealed.saturating_sub(self.sealed_at_eviction.swap(sealed, Ordering::Relaxed));
        let kept = fresh.max(newest.map_or(0, |segment| segment.bytes() as u64));
        let is_within_reach = (used - rows).saturating_add(kept) <= max;
        self.note_what_stays(max, is_within_reach)?;
        let counted = if is_within_reach { used } else { rows };
        if counted > max {
            evict(self, counted - max)?;
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
                "{bytes} bytes of segments are damaged, of another cache or of a newer version, and eviction removes none of \
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
            Some(FileName::Segment(name)) => live.segments.find(name).is_none(),
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
