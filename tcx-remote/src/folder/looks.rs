//! Looks at the store that several questions share.
//!
//! The engine compares a module with what it knows before and after each step of a write, and so does what sends a segment. Each comparison
//! is a request, and most of them ask what has just been answered. So an answer holds for a while, unless this process has written to the
//! store since: a comparison *after* a write is always a new look. What may happen in that while is what may happen between a comparison
//! and the write that follows it: the comparison after the write notices it.

use std::collections::BTreeMap;
use std::io;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use tcx_store::unstable::runtime;

use super::Inner;
use crate::bucket::Object;

/// So long an answer holds: longer than a segment waits for its name, after the module was compared first.
const HOLDS: Duration = Duration::from_secs(10);

/// A listing is due so often for each page of it.
pub(super) const PAGE_EVERY: Duration = Duration::from_mins(1);

/// The objects that a page of a listing shows.
pub(super) const PAGE: usize = 1000;

/// When something was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    at: Instant,
    /// How often this process had written to the store.
    writes: u64,
}

/// A listing that a thread has made ahead.
#[derive(Debug)]
struct Ahead {
    thread: ThreadId,
    /// Before it was begun.
    look: Look,
    /// When it was complete: one of many pages takes longer than an answer holds.
    complete: Instant,
    objects: BTreeMap<String, Object>,
}

#[derive(Debug, Default)]
pub(super) struct Looks {
    writes: u64,
    /// A listing that a thread has made, and goes on with: comparisons on that thread are with it.
    ahead: Option<Ahead>,
    /// Change 0 has to be looked at itself: a change was created since.
    needs_origin: bool,
}

impl Inner {
    /// Before a question is asked.
    pub(super) fn look(&self) -> io::Result<Look> {
        self.state(|state| Look { at: runtime::now(), writes: state.looks.writes })
    }

    /// Whether the answer of this look holds.
    pub(super) fn holds(&self, look: Look) -> io::Result<bool> {
        let writes = self.state(|state| state.looks.writes)?;
        Ok(look.writes == writes && runtime::now().duration_since(look.at) < HOLDS)
    }

    /// This process has written to the store, or seems not to have, or goes on with a listing: no earlier answer holds.
    pub(super) fn wrote(&self) -> io::Result<()> {
        self.state(|state| state.looks.writes += 1)
    }

    /// This process has created a change, or seems not to have: it counts only with change 0.
    pub(super) fn created(&self) -> io::Result<()> {
        self.state(|state| {
            state.looks.writes += 1;
            state.looks.needs_origin = true;
        })
    }

    /// Change 0 is looked at before its copy is used again.
    pub(super) fn doubt_origin(&self) -> io::Result<()> {
        self.state(|state| state.looks.needs_origin = true)
    }

    pub(super) fn needs_origin(&self) -> io::Result<bool> {
        self.state(|state| state.looks.needs_origin)
    }

    /// Change 0 was looked at. What was asked before this process has written says nothing of the time since.
    pub(super) fn saw_origin(&self, look: Look) -> io::Result<()> {
        self.state(|state| state.looks.needs_origin &= look.writes != state.looks.writes)
    }

    /// Lists the module for [`list`](Self::list) and the comparisons before it. What fails is asked one by one.
    pub(super) fn look_ahead(&self) {
        let list = || {
            // The comparisons are with this listing, and not with what was known before.
            self.wrote()?;
            let (thread, look, objects) = (thread::current().id(), self.look()?, self.list_objects()?);
            io::Result::Ok(Ahead { thread, look, complete: runtime::now(), objects })
        };
        let listed = list();
        let _ = self.state(|state| state.looks.ahead = listed.ok());
    }

    /// The listing that this thread has made ahead, if it has made it just now: a comparison that failed may have left an old one.
    pub(super) fn take_ahead(&self) -> io::Result<Option<BTreeMap<String, Object>>> {
        let own = thread::current().id();
        let ahead = self.state(|state| state.looks.ahead.take_if(|ahead| ahead.thread == own))?;
        let Some(Ahead { look, complete, objects, .. }) = ahead else { return Ok(None) };
        Ok(self.holds(Look { at: complete, ..look })?.then_some(objects))
    }

    /// What the listing says of an object that this thread has made ahead, and when the store said it. It holds as any other answer does:
    /// nothing is taken to be the same because of a listing that was made before something else.
    pub(super) fn seen_ahead(&self, name: &str) -> io::Result<Option<(Object, Look)>> {
        let own = thread::current().id();
        let seen = self.state(|state| {
            let ahead = state.looks.ahead.as_ref().filter(|ahead| ahead.thread == own)?;
            Some((ahead.objects.get(name)?.clone(), ahead.look))
        })?;
        let holds = seen.as_ref().map_or(Ok(false), |(_, look)| self.holds(*look))?;
        Ok(seen.filter(|_| holds))
    }

    /// The objects of the module, by their names.
    pub(super) fn list_objects(&self) -> io::Result<BTreeMap<String, Object>> {
        let objects = self.ask(|bucket| bucket.list(&self.module, None))?;
        Ok(objects.into_iter().map(|object| (object.name.clone(), object)).collect())
    }
}
