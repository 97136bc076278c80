//! When to look for what other processes have added.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::storage::Stamp;
use crate::sys::runtime;
use crate::sys::runtime::lock;

/// A stamp that was seen for a shorter time says nothing: file systems stamp coarsely, and a later change may get the same. By the
/// monotonic time of this machine: its clock may be ahead of that of the file system.
const COARSE: Duration = Duration::from_secs(2);
/// Listings are at least so far apart.
const LIST_AT_MOST_EVERY: Duration = Duration::from_millis(100);
/// Stamps may be cached by a network file system: so often the folder is listed whatever they say.
const LIST_AT_LEAST_EVERY: Duration = Duration::from_secs(30);

/// Rows that are computed for so long may die by what another machine did just before.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// What the last look at the folder showed.
#[derive(Debug)]
pub(crate) struct Refresh {
    every: Duration,
    checked: Instant,
    listed: Instant,
    at: ListAt,
    /// When files have come to this machine or left it last, and when that was seen first.
    moved: Option<(Stamp, Instant)>,
}

impl Refresh {
    /// The folder has just been listed.
    pub(crate) fn new(every: Duration, at: ListAt) -> Self {
        let now = runtime::now();
        Self { every, checked: now, listed: now, at, moved: None }
    }

    /// Whether it is time to look, at the start of a batch.
    pub(crate) fn is_due(&self) -> bool {
        runtime::now().duration_since(self.checked) >= self.every
    }

    /// Whether files may have come to this machine or left it since the last call. `moves` is [that of the
    /// folder](crate::storage::Storage::moves), as coarse as other stamps are.
    pub(crate) fn may_have_moved(&mut self, moves: Option<Stamp>) -> bool {
        let (Some(moves), now) = (moves, runtime::now()) else { return false };
        match self.moved {
            Some((known, seen)) if known == moves => now.duration_since(seen) < COARSE,
            _ => {
                self.moved = Some((moves, now));
                true
            }
        }
    }

    /// Whether a listing may show something new. `stamp` is called at most once. `every` is [that of the
    /// folder](crate::storage::Storage::list_every).
    pub(crate) fn should_list(
        &mut self,
        every: Option<Duration>,
        stamp: impl FnOnce() -> Option<Stamp>,
    ) -> Option<ListAt> {
        self.checked = runtime::now();
        let since = self.checked.duration_since(self.listed);
        if since < LIST_AT_MOST_EVERY && every.is_none_or(|every| since < every) {
            return None;
        }
        let at = self.list_at(stamp);
        if let Some(every) = every {
            // Such a folder has another stamp only if it knows by itself that its listing is of no use any more.
            let is_useless = self.at.stamp.is_some() && at.stamp != self.at.stamp;
            return (is_useless || since >= every).then_some(at);
        }
        (!self.at.shows_changes_since(&at) || since >= LIST_AT_LEAST_EVERY).then_some(at)
    }

    /// A listing that is about to be made in any case.
    pub(crate) fn list_at(&self, stamp: impl FnOnce() -> Option<Stamp>) -> ListAt {
        // Before: taking it may take long.
        let asked = runtime::now();
        let at = ListAt::new(stamp());
        let is_same = at.stamp.is_some() && at.stamp == self.at.stamp;
        if is_same { ListAt { asked, seen: self.at.seen, ..at } } else { at }
    }

    /// Whether the stamp of the last listing had been seen for so long that a later change has another.
    pub(crate) fn is_settled(&self) -> bool {
        self.at.shows_changes_since(&self.at)
    }

    /// The folder has been listed.
    pub(crate) fn listed(&mut self, at: ListAt) {
        self.listed = runtime::now();
        self.at = at;
    }
}

/// When this process looked for the next change last, before it computed rows, where each look is a request to another machine.
///
/// What others have done since is not known, so rows that are computed until the next look may die by it. That costs work and makes no
/// wrong row: they have the numbers that were known.
#[derive(Debug)]
pub(crate) struct Looks {
    every: Duration,
    last: Mutex<Option<Instant>>,
}

/// The look of one thread. Others wait for it, and for what it learns, since they go by its answer.
pub(crate) struct Look<'a> {
    last: MutexGuard<'a, Option<Instant>>,
    begun: Instant,
    every: Duration,
}

impl Looks {
    /// A look is enough for a second at most, and for no longer than the time between looks at hits.
    pub(crate) fn new(refresh_every: Duration) -> Self {
        Self { every: refresh_every.min(LOOK_AT_LEAST_EVERY), last: Mutex::default() }
    }

    pub(crate) fn begin(&self) -> Look<'_> {
        let last = lock(&self.last);
        Look { last, begun: runtime::now(), every: self.every }
    }
}

impl Look<'_> {
    /// Whether the last look is not enough.
    pub(crate) fn is_due(&self) -> bool {
        self.last.is_none_or(|last| self.begun.duration_since(last) >= self.every)
    }

    /// The store has answered.
    pub(crate) fn was_answered(mut self) {
        *self.last = Some(self.begun);
    }
}

/// A listing that is about to be made, with the stamp taken before it: a slow listing must not make it look older than it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListAt {
    stamp: Option<Stamp>,
    /// When the stamp was asked for.
    asked: Instant,
    /// When it was seen first.
    seen: Instant,
}

impl ListAt {
    /// The stamp has just been taken, and is seen for the first time.
    pub(crate) fn new(stamp: Option<Stamp>) -> Self {
        let now = runtime::now();
        Self { stamp, asked: now, seen: now }
    }

    /// Whether a folder that had another file after this listing would have another stamp than `later`.
    fn shows_changes_since(&self, later: &Self) -> bool {
        self.stamp.is_some() && self.stamp == later.stamp && self.asked.duration_since(self.seen) >= COARSE
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_stamp_is_trusted_once_it_was_seen_for_a_while_however_old_the_clock_says_it_is() {
        let stamp = Some(Stamp { modified: UNIX_EPOCH, inode: 1 });
        let first = ListAt::new(stamp);
        let later = ListAt { asked: first.seen + COARSE, ..first };
        assert!(!first.shows_changes_since(&later), "a file may have come since and got the same");
        assert!(later.shows_changes_since(&ListAt::new(stamp)));
        assert!(!later.shows_changes_since(&ListAt::new(Some(Stamp { modified: UNIX_EPOCH, inode: 2 }))));
        assert!(!ListAt { stamp: None, ..later }.shows_changes_since(&ListAt::new(None)));
    }

    #[test]
    fn a_look_for_changes_is_enough_for_a_second_or_until_hits_are_looked_after_again() {
        let is_due = |every, ago| {
            let looks = Looks::new(every);
            assert!(looks.begin().is_due(), "it is the first");
            assert!(looks.begin().is_due(), "it was not answered");
            looks.begin().was_answered();
            *lock(&looks.last) = runtime::now().checked_sub(ago);
            looks.begin().is_due()
        };
        let (second, hour) = (Duration::from_secs(1), Duration::from_hours(1));
        assert!(is_due(Duration::ZERO, Duration::ZERO));
        assert!(!is_due(hour, second / 10));
        assert!(is_due(hour, second));
        assert!(is_due(second / 5, second / 5));
    }

    #[test]
    fn files_may_have_moved_until_a_stamp_was_seen_for_a_while() {
        let mut refresh = Refresh::new(Duration::ZERO, ListAt::new(None));
        let stamp = |inode| Some(Stamp { modified: UNIX_EPOCH, inode });
        assert!(!refresh.may_have_moved(None));
        assert!(refresh.may_have_moved(stamp(1)) && refresh.may_have_moved(stamp(1)), "it is coarse");
        refresh.moved = refresh.moved.map(|(stamp, seen)| (stamp, seen.checked_sub(COARSE).unwrap()));
        assert!(!refresh.may_have_moved(stamp(1)));
        assert!(refresh.may_have_moved(stamp(2)));
    }

    #[test]
    fn a_folder_that_stays_as_it_is_is_listed_until_its_stamp_is_trusted() {
        let stamp = || Some(Stamp { modified: UNIX_EPOCH, inode: 1 });
        let mut refresh = Refresh::new(Duration::ZERO, ListAt::new(stamp()));
        refresh.listed = runtime::now().checked_sub(LIST_AT_MOST_EVERY).unwrap();
        let at = refresh.should_list(None, stamp).expect("it was seen just now");
        refresh.at = ListAt { asked: refresh.at.seen + COARSE, ..at };
        assert!(refresh.should_list(None, stamp).is_none());
        assert!(refresh.should_list(None, || None).is_some());
    }

    #[test]
    fn a_folder_whose_listing_is_dear_is_listed_when_its_time_has_come_and_not_before() {
        let stamp = || Some(Stamp { modified: UNIX_EPOCH, inode: 1 });
        let (mut refresh, every) = (Refresh::new(Duration::ZERO, ListAt::new(None)), Duration::from_mins(1));
        assert!(refresh.should_list(Some(every), stamp).is_none());
        refresh.listed = runtime::now().checked_sub(every / 2).unwrap();
        assert!(refresh.should_list(Some(every), stamp).is_none());
        refresh.at = ListAt::new(stamp());
        assert!(refresh.should_list(Some(every), stamp).is_none());
        let other = || Some(Stamp { modified: UNIX_EPOCH, inode: 2 });
        assert!(refresh.should_list(Some(every), other).is_some(), "a segment was not found");
        refresh.listed = runtime::now().checked_sub(every).unwrap();
        assert!(refresh.should_list(Some(every), stamp).is_some());
    }
}
