//! The thread that sends what waits as soon as that works.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tcx_store::unstable::runtime;

use super::reach::is_away;
use super::{Inner, RemoteFolder};

/// The pause before what waits is tried again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl Inner {
    /// Whether segments of this process wait.
    fn own_wait(&self) -> bool {
        let own = self.state(|state| state.own.clone()).unwrap_or_default();
        self.near.spooled().is_ok_and(|waiting| waiting.iter().any(|spooled| own.contains(&spooled.name)))
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
        if tries.go_on(&settled, folder.own_wait()) {
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
