//! When to look for what other processes have added.

use std::time::{Duration, Instant};

use crate::storage::Stamp;
use crate::sys::runtime;

/// A stamp younger than this says nothing: file systems stamp coarsely, and a later change may get the same.
const COARSE: Duration = Duration::from_secs(2);
/// Listings are at least so far apart.
const LIST_AT_MOST_EVERY: Duration = Duration::from_millis(100);
/// Stamps may be cached by a network file system: so often the folder is listed whatever they say.
const LIST_AT_LEAST_EVERY: Duration = Duration::from_secs(30);

/// What the last look at the folder showed.
#[derive(Debug)]
pub(crate) struct Refresh {
    every: Duration,
    checked: Instant,
    listed: Instant,
    /// The stamp before the last listing, if it can be trusted to change with the next file.
    stamp: Option<Stamp>,
}

impl Refresh {
    /// The folder has just been listed.
    pub(crate) fn new(every: Duration, at: ListAt) -> Self {
        let now = runtime::now();
        Self { every, checked: now, listed: now, stamp: at.stamp }
    }

    /// Whether it is time to look, at the start of a batch.
    pub(crate) fn is_due(&self) -> bool {
        runtime::now().duration_since(self.checked) >= self.every
    }

    /// Whether a listing may show something new. `stamp` is called at most once.
    pub(crate) fn should_list(&mut self, stamp: impl FnOnce() -> Option<Stamp>) -> Option<ListAt> {
        self.checked = runtime::now();
        let since = self.checked.duration_since(self.listed);
        if since < LIST_AT_MOST_EVERY {
            return None;
        }
        let found = stamp();
        let same = found.is_some() && found == self.stamp;
        (!same || since >= LIST_AT_LEAST_EVERY).then(|| ListAt::new(found))
    }

    /// The folder has been listed.
    pub(crate) fn listed(&mut self, at: ListAt) {
        self.listed = runtime::now();
        self.stamp = at.stamp;
    }
}

/// A listing that is about to be made, with the stamp taken before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListAt {
    stamp: Option<Stamp>,
}

impl ListAt {
    /// The stamp has just been taken: a slow listing must not make it look older than it was.
    pub(crate) fn new(stamp: Option<Stamp>) -> Self {
        Self { stamp: settled(stamp) }
    }
}

fn settled(stamp: Option<Stamp>) -> Option<Stamp> {
    // A stamp from the future has no age, and is not trusted either.
    stamp.filter(|stamp| runtime::wall().duration_since(stamp.modified).is_ok_and(|age| age >= COARSE))
}
