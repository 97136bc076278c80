//! Which workers are gone. No clocks of two machines are compared: a worker is gone if its record has not changed for the expiry time,
//! by the monotonic clock of the worker that looks at it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::sys::bytes::Random;

/// Of the time between two looks, so much of the expiry time counts at most. A process that was stopped itself, with all others perhaps,
/// knows nothing of the time in which it did not look.
const LOOKS: u32 = 4;

/// What one worker knows of the others by looking at their records.
#[derive(Debug)]
pub(crate) struct Watch {
    expiry: Duration,
    watched: BTreeMap<Random, Watched>,
    /// Whether all records were looked at once.
    has_looked: bool,
}

#[derive(Debug)]
struct Watched {
    /// The checksum of the record; `None` if it does not exist.
    content: Option<u64>,
    /// Whether the record, or that it does not exist, has been seen.
    was_read: bool,
    /// When it was looked at last.
    last: Instant,
    /// How long it has been the same.
    silent: Duration,
    has_changed: bool,
}

impl Watch {
    pub(crate) fn new(expiry: Duration) -> Self {
        Self { expiry, watched: BTreeMap::new(), has_looked: false }
    }

    pub(crate) fn expiry(&self) -> Duration {
        self.expiry
    }

    /// The record of a worker has this checksum now, or it has none. Returns whether that is new.
    pub(crate) fn look(&mut self, worker: Random, content: Option<u64>, now: Instant) -> bool {
        let most = self.expiry / LOOKS;
        let Some(watched) = self.watched.get_mut(&worker) else {
            self.begin(worker, content, true, now);
            return true;
        };
        let since = now.saturating_duration_since(watched.last);
        watched.last = now;
        if !watched.was_read {
            (watched.content, watched.was_read, watched.silent) = (content, true, Duration::ZERO);
            return true;
        }
        if watched.content == content {
            watched.silent = watched.silent.saturating_add(since.min(most));
            return false;
        }
        (watched.content, watched.silent, watched.has_changed) = (content, Duration::ZERO, true);
        true
    }

    /// All records that exist were looked at: those that appear from now on are of workers that live.
    pub(crate) fn looked(&mut self) {
        self.has_looked = true;
    }

    fn begin(&mut self, worker: Random, content: Option<u64>, was_read: bool, now: Instant) {
        let has_changed = self.has_looked && was_read;
        let new = Watched { content, was_read, last: now, silent: Duration::ZERO, has_changed };
        self.watched.insert(worker, new);
    }

    /// The record could not be read. If that stays so for the expiry time, the worker counts as gone, or others would wait for it forever.
    pub(crate) fn look_failed(&mut self, worker: Random, now: Instant) {
        let most = self.expiry / LOOKS;
        let Some(watched) = self.watched.get_mut(&worker) else {
            return self.begin(worker, None, false, now);
        };
        let since = now.saturating_duration_since(watched.last);
        watched.last = now;
        watched.silent = watched.silent.saturating_add(since.min(most));
    }

    /// Whether the record has been the same for the expiry time.
    pub(crate) fn is_gone(&self, worker: Random) -> bool {
        self.watched.get(&worker).is_some_and(|watched| watched.silent >= self.expiry)
    }

    /// Whether the record has changed since it was seen first, or has appeared since the first look: its worker was alive then.
    pub(crate) fn has_changed(&self, worker: Random) -> bool {
        self.watched.get(&worker).is_some_and(|watched| watched.has_changed)
    }

    /// How long to wait before the next look, which reads a record of each worker. Many workers that wait look less often: the reads of
    /// all of them in a second grow with their number, and not with its square.
    pub(crate) fn pause(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(2);
        const FEW: usize = 8;
        let crowds = u32::try_from(self.watched.len().div_ceil(FEW)).unwrap_or(u32::MAX).max(1);
        (self.expiry / (2 * LOOKS)).clamp(Duration::from_millis(1), LONGEST.saturating_mul(crowds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: Random = Random([1; 16]);

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn a_worker_is_gone_once_its_record_has_been_the_same_for_the_expiry_time() {
        let (mut watch, start) = (Watch::new(second(8)), Instant::now());
        for at in 0..8 {
            watch.look(WORKER, Some(1), start + second(at));
            assert!(!watch.is_gone(WORKER));
        }
        watch.look(WORKER, Some(1), start + second(8));
        assert!(watch.is_gone(WORKER) && !watch.has_changed(WORKER));
        watch.look(WORKER, Some(2), start + second(9));
        assert!(!watch.is_gone(WORKER) && watch.has_changed(WORKER), "it is back");
    }

    #[test]
    fn the_time_in_which_a_process_did_not_look_does_not_count() {
        let (mut watch, start) = (Watch::new(second(8)), Instant::now());
        watch.look(WORKER, None, start);
        watch.look(WORKER, None, start + second(1000));
        assert!(!watch.is_gone(WORKER), "it may have slept as long as this process did");
        for at in 1001..1006 {
            watch.look(WORKER, None, start + second(at));
            assert!(!watch.is_gone(WORKER));
        }
        watch.look(WORKER, None, start + second(1006));
        assert!(watch.is_gone(WORKER));
    }

    #[test]
    fn a_worker_whose_record_cannot_be_read_is_gone_after_the_expiry_time_and_back_when_it_can() {
        let (mut watch, start) = (Watch::new(second(8)), Instant::now());
        watch.look(WORKER, Some(1), start);
        for at in 1..8 {
            watch.look_failed(WORKER, start + second(at));
            assert!(!watch.is_gone(WORKER));
        }
        watch.look_failed(WORKER, start + second(8));
        assert!(watch.is_gone(WORKER));
        watch.look(WORKER, Some(2), start + second(9));
        assert!(!watch.is_gone(WORKER));
    }

    #[test]
    fn many_workers_that_wait_look_less_often_and_at_least_as_often_as_they_report() {
        let (mut watch, start) = (Watch::new(second(120)), Instant::now());
        assert_eq!(watch.pause(), second(2));
        for (number, expected) in [(8, 2), (9, 4), (16, 4), (56, 14), (60, 15), (250, 15)] {
            for own in 0..number {
                watch.look(Random([own; 16]), None, start);
            }
            assert_eq!(watch.pause(), second(expected), "{number} workers");
        }
        assert_eq!(Watch::new(second(4)).pause(), Duration::from_millis(500));
    }

    #[test]
    fn a_worker_that_appears_after_the_first_look_is_alive() {
        let (mut watch, start) = (Watch::new(second(8)), Instant::now());
        watch.looked();
        watch.look(WORKER, Some(1), start);
        assert!(watch.has_changed(WORKER));
    }

    #[test]
    fn a_record_that_could_not_be_read_at_first_has_not_changed_when_it_can() {
        let (mut watch, start) = (Watch::new(second(8)), Instant::now());
        watch.look_failed(WORKER, start);
        watch.looked();
        assert!(watch.look(WORKER, Some(1), start + second(1)));
        assert!(!watch.has_changed(WORKER), "it may be that of a worker that is gone");
        watch.look(WORKER, Some(2), start + second(2));
        assert!(watch.has_changed(WORKER));
    }
}
