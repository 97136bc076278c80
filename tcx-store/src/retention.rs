//! How long rows are kept, and how much room a folder takes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::changes::now_millis;
use crate::clock;
use crate::compaction::evict;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::name::FileName;
use crate::options::{Options, WhenFull};
use crate::segment::Segment;

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
        let is_full = |max| {
            self.used_bytes.load(Ordering::Relaxed).saturating_add(self.buffer.waiting().1 as u64) >= max
        };
        self.retention.when_full == WhenFull::Freeze && self.retention.max_bytes.is_some_and(is_full)
    }

    /// Looks how much room the folder takes, and makes some if it is too much. Done before the first row, after every seal, and
    /// when the writer is idle.
    ///
    /// # Errors
    ///
    /// A folder that cannot be listed, or that is another's.
    pub(crate) fn keep_within_limits(&self) -> Result<()> {
        let Some(max) = self.retention.max_bytes else { return Ok(()) };
        if self.measure()? > max {
            self.collect(Duration::ZERO)?;
            let used = self.measure()?;
            if used > max && self.retention.when_full == WhenFull::EvictOldest {
                evict(self, used - max)?;
                self.measure()?;
            }
        }
        Ok(())
    }

    /// Looks how much room the folder takes, if that matters.
    pub(crate) fn note_room(&self) -> Result<()> {
        self.retention.max_bytes.map_or(Ok(()), |_| self.measure().map(drop))
    }

    /// The bytes of all files, temporary and replaced ones too.
    fn measure(&self) -> Result<u64> {
        // What was looked at last is what counts, whoever looked.
        let _alone = lock(&self.measuring);
        let names = self.storage.list().map_err(|e| Error::io("cannot list", self.storage.path(), e))?;
        let own = names.iter().filter(|name| FileName::parse(name).is_some());
        // One that has vanished takes none.
        let used = own
            .filter_map(|name| self.storage.info(name).ok())
            .map(|info| info.bytes)
            .fold(0, u64::saturating_add);
        self.used_bytes.store(used, Ordering::Relaxed);
        Ok(used)
    }
}
