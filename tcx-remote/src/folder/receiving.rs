//! The threads that receive segments which a listing has shown. Until a segment is here, its rows are read in the store, unless everything
//! that a lookup lacks [is to be here soon](Inner::wait_for_arrivals).

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tcx_store::unstable::runtime;

use super::Inner;
use super::fetch::{Received, is_full};
use super::reach::is_away;

/// Segments that are received at the same time; each in ranges that are in flight together.
const RECEIVERS: usize = 4;

/// If there is no room for a segment, nothing of its size is tried again within this time.
const NO_ROOM_FOR: Duration = Duration::from_mins(10);

/// After a listing, lookups wait so long in all for what it has shown first. To read the same rows in the store would take as long, and each
/// process of the machine would receive parts of a segment that one of them receives as a whole.
const WAIT_AT_MOST: Duration = Duration::from_secs(2);

/// More than that does not arrive in this time: half a gigabyte a second.
const SOON: u64 = 1 << 30;

/// Between two looks at what has come.
const PAUSE: Duration = Duration::from_millis(5);

/// What this process is to receive.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Names and lengths.
    waiting: VecDeque<(String, u64)>,
    /// The names of those that are being received.
    receiving: Vec<String>,
    /// What the last listing has shown.
    wanted: HashSet<String>,
    wait: Wait,
    /// The threads that run.
    receivers: usize,
    /// When there was no room, and for what length.
    no_room: Option<(Instant, u64)>,
}

/// Whether lookups wait for what is on its way.
#[derive(Clone, Copy, Debug, Default)]
enum Wait {
    #[default]
    No,
    /// None has waited yet.
    Possible,
    Until(Instant),
}

impl Wait {
    fn is_possible(self, now: Instant) -> bool {
        match self {
            Self::No => false,
            Self::Possible => true,
            Self::Until(until) => now < until,
        }
    }

    /// Until when a lookup waits that begins to wait now.
    fn begin(&mut self, now: Instant) -> Instant {
        match *self {
            Self::No => now,
            Self::Possible => {
                *self = Self::Until(now + WAIT_AT_MOST);
                now + WAIT_AT_MOST
            }
            Self::Until(until) => until,
        }
    }
}

impl Arrivals {
    /// These segments are not here. Returns how many threads are to be started.
    fn want(&mut self, missing: Vec<(String, u64)>) -> usize {
        let no_room = self.no_room.filter(|(since, _)| runtime::now().duration_since(*since) < NO_ROOM_FOR);
        let has_room = |bytes: u64| no_room.is_none_or(|(_, refused)| bytes < refused);
        self.waiting = missing.into_iter().filter(|(_, bytes)| has_room(*bytes)).collect();
        let bytes = self.waiting.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let wanted: HashSet<String> = self.waiting.iter().map(|(name, _)| name.clone()).collect();
        if bytes > SOON || wanted.is_empty() {
            self.wait = Wait::No;
        } else if !wanted.is_subset(&self.wanted) {
            self.wait = Wait::Possible;
        }
        self.wanted = wanted;
        let more = self.waiting.len().min(RECEIVERS).saturating_sub(self.receivers);
        self.receivers += more;
        more
    }

    /// The next segment. If there is no other, the thread ends.
    fn next(&mut self) -> Option<(String, u64)> {
        let next = self.waiting.pop_front();
        self.receivers -= usize::from(next.is_none());
        self.receiving.extend(next.iter().map(|(name, _)| name.clone()));
        next
    }

    /// A segment is not being received any more.
    fn is_over(&mut self, name: &str) {
        self.receiving.retain(|own| own != name);
    }

    fn is_coming(&self, name: &str) -> bool {
        self.receiving.iter().chain(self.waiting.iter().map(|(own, _)| own)).any(|own| own == name)
    }

    fn refuse(&mut self, bytes: u64) {
        let least = self
            .no_room
            .filter(|(since, _)| runtime::now().duration_since(*since) < NO_ROOM_FOR)
            .map(|(_, least)| least);
        self.no_room = Some((runtime::now(), least.unwrap_or(bytes).min(bytes)));
        self.waiting.retain(|(_, waiting)| *waiting < bytes);
    }
}

impl Inner {
    /// Receives these segments, whose copies are not here. Those of an earlier call that are not among them are not wanted any more.
    pub(super) fn receive_later(self: &Arc<Self>, missing: Vec<(String, u64)>) -> io::Result<()> {
        for _ in 0..self.state(|state| state.arrivals.want(missing))? {
            let folder = Arc::downgrade(self);
            let started = std::thread::Builder::new()
                .name("tcx-receive".to_owned())
                .spawn(move || keep_receiving(&folder));
            if started.is_err() {
                // The next listing tries again.
                self.state(|state| state.arrivals.receivers -= 1)?;
            }
        }
        Ok(())
    }

    /// A lookup needs these segments. If those that are not here are on their way, to this process or to another one of the machine, and
    /// may be here soon, it waits for them.
    pub(super) fn wait_for_arrivals<'a>(&self, names: impl Iterator<Item = &'a str>) -> io::Result<()> {
        let now = runtime::now();
        if runtime::is_simulated() || !self.state(|state| state.arrivals.wait.is_possible(now))? {
            return Ok(());
        }
        let mut lacking: Vec<&str> = names.filter(|name| !self.is_here(name)).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let until = self.state(|state| state.arrivals.wait.begin(now))?;
        while runtime::now() < until && self.are_coming(&lacking)? {
            runtime::sleep(PAUSE);
            lacking.retain(|name| !self.is_here(name));
            if lacking.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn are_coming(&self, names: &[&str]) -> io::Result<bool> {
        let elsewhere: Vec<&str> = self
            .state(|state| names.iter().filter(|name| !state.arrivals.is_coming(name)).copied().collect())?;
        if elsewhere.is_empty() {
            return Ok(true);
        }
        let arriving = self.near.arriving()?;
        Ok(elsewhere.iter().all(|name| arriving.iter().any(|own| own == name)))
    }

    /// Receives a segment.
    fn receive_next(&self, name: &str, bytes: u64) -> io::Result<()> {
        if self.is_here(name) {
            return Ok(());
        }
        let received = self.receive(name, bytes, &self.bucket.in_background());
        match &received {
            Ok(Received::NoRoom) => self.state(|state| state.arrivals.refuse(bytes))?,
            Err(error) if is_full(error) => self.state(|state| state.arrivals.refuse(0))?,
            // The next listing asks for the rest again.
            Err(error) if is_away(error) => self.state(|state| state.arrivals.waiting.clear())?,
            _ => {}
        }
        received.map(drop)
    }
}

fn keep_receiving(folder: &Weak<Inner>) {
    while let Some(folder) = folder.upgrade() {
        let Ok(Some((name, bytes))) = folder.state(|state| state.arrivals.next()) else { return };
        if let Err(error) = folder.receive_next(&name, bytes) {
            tracing::debug!(segment = %name, "not received: {error}");
        }
        if folder.state(|state| state.arrivals.is_over(&name)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(lengths: &[u64]) -> Vec<(String, u64)> {
        lengths.iter().map(|bytes| (format!("seg-{bytes}"), *bytes)).collect()
    }

    #[test]
    fn a_few_threads_receive_what_the_last_listing_has_shown() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.want(segments(&[1, 2])), 2);
        assert_eq!(arrivals.want(segments(&[1, 2, 3, 4, 5, 6])), RECEIVERS - 2);
        assert_eq!(arrivals.want(segments(&[3, 4])), 0);
        assert_eq!(
            (arrivals.next(), arrivals.next()),
            (Some(("seg-3".into(), 3)), Some(("seg-4".into(), 4)))
        );
        assert_eq!((arrivals.next(), arrivals.receivers), (None, RECEIVERS - 1));
    }

    #[test]
    fn lookups_wait_for_what_is_on_its_way_for_a_while_after_each_listing_that_shows_it() {
        let (mut arrivals, start) = (Arrivals::default(), Instant::now());
        assert!(!arrivals.wait.is_possible(start), "nothing was listed");
        arrivals.want(segments(&[1, 2]));
        assert!(arrivals.is_coming("seg-1") && !arrivals.is_coming("seg-3"));
        arrivals.next();
        assert!(arrivals.is_coming("seg-1"), "it is received");
        arrivals.is_over("seg-1");
        assert!(!arrivals.is_coming("seg-1"));
        let until = start + WAIT_AT_MOST;
        assert_eq!(arrivals.wait.begin(start), until);
        assert_eq!(arrivals.wait.begin(start + WAIT_AT_MOST / 2), until);
        assert!(arrivals.wait.is_possible(start) && !arrivals.wait.is_possible(until));
        arrivals.want(segments(&[2]));
        assert!(!arrivals.wait.is_possible(until), "it was waited for");
        arrivals.want(segments(&[1, 3]));
        assert_eq!(arrivals.wait.begin(until), until + WAIT_AT_MOST);
        arrivals.want(segments(&[1, SOON]));
        assert!(!arrivals.wait.is_possible(until), "all of that takes longer");
    }

    #[test]
    fn what_there_is_no_room_for_is_not_tried_at_each_listing() {
        let mut arrivals = Arrivals::default();
        arrivals.want(segments(&[10, 50, 100]));
        arrivals.refuse(50);
        assert_eq!(arrivals.waiting.len(), 1);
        assert_eq!(arrivals.want(segments(&[20, 50, 100])), 0);
        assert_eq!(arrivals.waiting, segments(&[20]));
    }
}
