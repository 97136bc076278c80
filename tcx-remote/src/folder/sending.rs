//! The threads that send what waits: a few at the same time at first, and one again and again if the store is away.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tcx_store::unstable::runtime;
use tcx_store::{Trouble, notice};

use super::reach::is_away;
use super::{Inner, RemoteFolder};
use crate::near::Spooled;

/// The pause before what waits is tried again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Segments that are sent at the same time; each in parts that are in flight together.
pub(super) const SENDERS: usize = 4;

/// What this process is sending.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// The threads that run.
    pub(super) senders: usize,
    /// The segments that they are sending.
    under_way: HashSet<String>,
    /// Whether a segment of another process was passed over because another one has its lock.
    pub(super) skipped: bool,
    /// How many have come to wait so far: one that came after a thread has looked for them must not be overlooked.
    arrived: u64,
}

impl Inner {
    /// Sends the segments of this process that wait, in the background. One has just come to wait.
    pub(super) fn send_later(self: &Arc<Self>) {
        let starts = self.state(|state| {
            state.departures.arrived += 1;
            let starts = state.departures.senders < SENDERS;
            state.departures.senders += usize::from(starts);
            starts
        });
        if !starts.unwrap_or(false) {
            return;
        }
        let folder = Arc::downgrade(self);
        let started = runtime::spawn_lasting("tcx-send", move || send_own(&folder));
        if started.is_err() {
            // The next flush sends it.
            let _ = self.state(|state| state.departures.senders -= 1);
        }
    }

    /// The next segment of this process that no thread sends. If there is no other, the thread ends.
    fn next_to_send(&self) -> io::Result<Option<Spooled>> {
        loop {
            let arrived = self.state(|state| state.departures.arrived)?;
            let waiting = self.near.spooled().unwrap_or_default();
            let next = self.state(|state| {
                let (own, departures) = (&state.own, &mut state.departures);
                let next = waiting.into_iter().find(|spooled| {
                    own.contains(&spooled.name) && !departures.under_way.contains(&spooled.name)
                });
                if let Some(next) = next {
                    departures.under_way.insert(next.name.clone());
                    return Some(Some(next));
                }
                let is_over = departures.arrived == arrived;
                departures.senders -= usize::from(is_over);
                is_over.then_some(None)
            })?;
            if let Some(next) = next {
                return Ok(next);
            }
        }
    }

    /// A segment of this process was not sent.
    fn wait_for_the_store(self: &Arc<Self>, error: &io::Error) {
        if !self.start_sending() {
            return;
        }
        let path = self.path().display();
        tracing::warn!(%path, "rows wait on this machine to be sent: {error}; retrying");
        let waiting = format_args!(
            "cannot send rows to {path}: {error}; they wait in {} and are sent as soon as that works; `flush` waits for it",
            self.near.dir().display()
        );
        notice(Trouble::Failing, waiting);
    }

    /// Whether segments of this process wait.
    fn own_wait(&self) -> bool {
        let own = self.state(|state| state.own.clone()).unwrap_or_default();
        self.near.spooled().is_ok_and(|waiting| waiting.iter().any(|spooled| own.contains(&spooled.name)))
    }

    /// Whether segments of other processes were passed over since the last call.
    fn has_skipped(&self) -> bool {
        self.state(|state| std::mem::take(&mut state.departures.skipped)).unwrap_or(false)
    }

    /// Starts a thread that sends what waits as soon as that works; `false` if there is one.
    pub(super) fn start_sending(self: &Arc<Self>) -> bool {
        if self.is_sending.swap(true, Ordering::AcqRel) {
            return false;
        }
        let folder = Arc::downgrade(self);
        let started = runtime::spawn_lasting("tcx-send", move || keep_sending(&folder));
        if started.is_err() {
            // The next flush sends it.
            self.is_sending.store(false, Ordering::Release);
        }
        true
    }
}

impl RemoteFolder {
    /// Sends what an earlier process has left.
    pub(crate) fn resume(&self) {
        if self.0.near.spooled().is_ok_and(|spooled| !spooled.is_empty()) {
            self.0.start_sending();
        }
    }
}

fn send_own(folder: &Weak<Inner>) {
    while let Some(folder) = folder.upgrade() {
        let Ok(Some(next)) = folder.next_to_send() else { return };
        let sent = folder.check_time().and_then(|()| folder.send_one(&next));
        let ends = sent.is_err();
        let _ = folder.state(|state| {
            state.departures.under_way.remove(&next.name);
            state.departures.senders -= usize::from(ends);
        });
        if let Err(error) = sent {
            return folder.wait_for_the_store(&error);
        }
    }
}

/// When what waits is tried again.
#[derive(Debug)]
struct Tries {
    pause: Duration,
    /// Whether it was reported that the store refuses segments of this process.
    is_reported: bool,
}

impl Tries {
    fn new() -> Self {
        Self { pause: PAUSES.0, is_reported: false }
    }

    /// Whether the thread goes on after a try that has come to this end. `pause` is the time until the next one.
    fn go_on(&mut self, settled: &io::Result<()>, own_wait: bool) -> bool {
        self.pause = (self.pause * 2).min(PAUSES.1);
        // Segments of this process may be refused because an older copy has taken the place of the module, which may be restored.
        settled.as_ref().is_err_and(|error| own_wait || is_away(error))
    }

    /// Whether this is to be reported: once, because it is tried again and again.
    fn is_news(&mut self, settled: &io::Result<()>) -> bool {
        settled.as_ref().is_err_and(|error| !is_away(error))
            && !std::mem::replace(&mut self.is_reported, true)
    }
}

fn keep_sending(folder: &Weak<Inner>) {
    let mut tries = Tries::new();
    loop {
        runtime::sleep(tries.pause);
        let Some(folder) = folder.upgrade() else { return };
        let (settled, path) = (folder.settle(), folder.path().display());
        let is_left = folder.has_refused() || folder.has_skipped();
        if tries.go_on(&settled, folder.own_wait()) || is_left {
            if tries.is_news(&settled)
                && let Err(error) = &settled
            {
                tracing::warn!(%path, "rows that wait on this machine cannot be sent: {error}; `flush` returns this error");
            }
            continue;
        }
        if settled.is_ok() {
            tracing::info!(%path, "the store can be reached again");
        }
        folder.is_sending.store(false, Ordering::Release);
        // A segment that came to wait in this moment has found this thread running.
        if folder.own_wait() {
            folder.start_sending();
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn segments_that_the_store_refuses_are_tried_more_and_more_seldom_and_reported_once() {
        let (refused, mut tries) = (Err(ErrorKind::InvalidData.into()), Tries::new());
        let (mut pauses, mut reports) = (Vec::new(), 0);
        for _ in 0..8 {
            assert!(tries.go_on(&refused, true));
            pauses.push(tries.pause.as_secs());
            reports += u32::from(tries.is_news(&refused));
        }
        assert_eq!((pauses, reports), (vec![2, 4, 8, 16, 30, 30, 30, 30], 1));
        assert!(!tries.go_on(&Ok(()), true));
    }

    #[test]
    fn what_other_processes_have_left_is_tried_until_the_store_answers() {
        let mut tries = Tries::new();
        assert!(tries.go_on(&Err(ErrorKind::NotConnected.into()), false));
        assert!(!tries.go_on(&Err(ErrorKind::InvalidData.into()), false));
        assert!(!Tries::new().go_on(&Ok(()), false));
    }
}
