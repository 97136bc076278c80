//! How long lookups took: a histogram whose buckets never change, so that threads add to it without a lock and records of other
//! processes can be added up.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The shortest time, as a power of two of nanoseconds, that has a bucket of its own (128 ns). All shorter ones are in the first.
const SHORTEST: u32 = 7;
/// The buckets of each power of two.
const STEPS: u32 = 4;
/// Powers of two up to 17 s. All longer times are in the last bucket.
const POWERS: u32 = 27;
/// The number of buckets.
const BUCKETS: usize = (POWERS * STEPS) as usize;

/// The times of lookups of whole batches, as a histogram: a quantile is right within a fourth.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// store.lookup(Keys::ints([1, 2], 0))?;
/// let stats = store.stats();
/// assert_eq!((stats.hit_times.count(), stats.miss_times.count()), (1, 1));
/// assert!(stats.hit_times.p50() <= stats.hit_times.p999());
/// println!("{}", stats.hit_times); // p50 2.1µs, p99 2.1µs, p99.9 2.1µs
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BatchTimes {
    counts: [u64; BUCKETS],
}

impl BatchTimes {
    /// How many lookups there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |all, count| all.saturating_add(*count))
    }

    /// The time that this share of the lookups did not exceed, from 0 to 1; zero without lookups.
    pub fn quantile(&self, share: f64) -> Duration {
        // The rank of the lookup, from 1.
        let rank = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut before = 0_u64;
        for (bucket, &count) in self.counts.iter().enumerate() {
            if before.saturating_add(count) >= rank {
                let (start, width) = bounds(bucket);
                // As if its times were evenly distributed in the bucket.
                let part = (rank - before) as f64 / count as f64;
                return Duration::from_nanos(start + (width as f64 * part) as u64);
            }
            before = before.saturating_add(count);
        }
        Duration::ZERO
    }

    /// The median.
    pub fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    /// The time that one lookup of a hundred exceeded.
    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// The time that one lookup of a thousand exceeded.
    pub fn p999(&self) -> Duration {
        self.quantile(0.999)
    }

    /// These lookups and the others together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            counts: std::array::from_fn(|bucket| self.counts[bucket].saturating_add(other.counts[bucket])),
        }
    }

    /// The buckets that are not empty, and their counts.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// Adds to a bucket; `None` if no bucket has that number.
    pub(crate) fn add(&mut self, bucket: usize, count: u64) -> Option<()> {
        let own = self.counts.get_mut(bucket)?;
        *own = own.saturating_add(count);
        Some(())
    }
}

impl Default for BatchTimes {
    fn default() -> Self {
        Self { counts: [0; BUCKETS] }
    }
}

/// Such as `p50 12.4µs, p99 20.1µs, p99.9 33.0µs`.
impl fmt::Display for BatchTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}", self.p50(), self.p99(), self.p999())
    }
}

/// As it is printed, with the count: there are too many buckets to read.
impl fmt::Debug for BatchTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchTimes({}: {self})", self.count())
    }
}

/// The bucket of a time.
fn bucket(time: Duration) -> usize {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1 << SHORTEST);
    let power = nanoseconds.ilog2();
    // The two bits after the first.
    let step = (nanoseconds >> (power - 2)) & u64::from(STEPS - 1);
    let bucket = (power - SHORTEST) * STEPS + step as u32;
    (bucket as usize).min(BUCKETS - 1)
}

/// The shortest time of a bucket, and how far its longest is from that, in nanoseconds.
fn bounds(bucket: usize) -> (u64, u64) {
    let (power, step) = (bucket as u32 / STEPS + SHORTEST, bucket as u32 % STEPS);
    let width = 1 << (power - 2);
    (u64::from(STEPS + step) * width, width)
}

/// Takes the times of lookups.
#[derive(Debug)]
pub(crate) struct BatchClock {
    counts: [AtomicU64; BUCKETS],
}

impl BatchClock {
    /// A lookup took so long.
    pub(crate) fn add(&self, took: Duration) {
        self.counts[bucket(took)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn times(&self) -> BatchTimes {
        BatchTimes { counts: std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)) }
    }
}

impl Default for BatchClock {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        let mut end = 1 << SHORTEST;
        for number in 0..BUCKETS {
            let (start, width) = bounds(number);
            assert_eq!(start, end, "bucket {number}");
            for inside in [start, start + width / 2, start + width - 1] {
                assert_eq!(bucket(Duration::from_nanos(inside)), number);
            }
            end = start + width;
        }
        assert_eq!((bucket(Duration::ZERO), bucket(Duration::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn a_quantile_is_right_within_a_fourth() {
        let clock = BatchClock::default();
        for microseconds in 1..=10_000 {
            clock.add(Duration::from_micros(microseconds));
        }
        let times = clock.times();
        assert_eq!(times.count(), 10_000);
        for (found, right) in [(times.p50(), 5000.), (times.p99(), 9900.), (times.p999(), 9990.)] {
            let found = found.as_secs_f64() * 1e6;
            assert!((found / right - 1.).abs() < 0.25, "{found} µs instead of {right}");
        }
        assert!(times.quantile(0.) <= times.p50() && times.p999() <= times.quantile(1.));
    }

    #[test]
    fn one_slow_lookup_of_a_thousand_shows_in_the_last_quantile_alone() {
        let clock = BatchClock::default();
        (0..998).for_each(|_| clock.add(Duration::from_micros(10)));
        (0..2).for_each(|_| clock.add(Duration::from_millis(50)));
        let times = clock.times();
        assert!(
            times.p99() < Duration::from_micros(13) && times.p999() > Duration::from_millis(40),
            "{times}"
        );
        assert_eq!(times.and(&times).count(), 2000);
        assert_eq!(BatchTimes::default().p999(), Duration::ZERO);
    }
}
