//! How long rows are kept, and how much room a folder takes.

use std::sync::Arc;

use crate::changes::now_millis;
use crate::options::{Options, WhenFull};
use crate::segment::Segment;
use crate::sys::clock;

/// The number of age groups within which segments are joined, so that what is removed for its age is of that age.
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
