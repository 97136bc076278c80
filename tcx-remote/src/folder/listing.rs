//! What the folder contains.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tcx_store::unstable::runtime;

use super::fetch::SMALL;
use super::looks::{PAGE, PAGE_EVERY};
use super::{Inner, State};
use crate::copy::files::{Kind, change, kind};

/// A copy whose object is gone is removed at this age: another process may have just sent it.
const STAY: Duration = Duration::from_hours(1);

/// A listing may show a segment that is gone for so long: to list again because of it would be in vain.
const LISTED_WITHIN: Duration = Duration::from_mins(1);

/// The near tier is cleaned at most this often.
const CLEAN_EVERY: Duration = Duration::from_mins(10);

impl Inner {
    /// The objects of the store, the segments that wait to be sent, and the index runs of the near tier. Nothing, if the store has no
    /// change 0: then the module does not exist.
    pub(super) fn list(self: &Arc<Self>) -> io::Result<Vec<String>> {
        self.take_back_strays()?;
        let objects = match self.take_ahead()? {
            Some(ahead) => ahead,
            None => self.list_objects()?,
        };
        // What is learned of it is confirmed by new looks.
        self.wrote()?;
        if !self.is_origin(objects.get(&change(0)))? {
            // The module is being removed, or was replaced: from now on its newest change says nothing of change 0.
            self.doubt_origin()?;
        }
        let listed: BTreeMap<_, _> =
            objects.into_iter().map(|(name, object)| (name, (object.bytes, object.modified))).collect();
        if !listed.contains_key(&change(0)) {
            self.state(|state| state.listed.clear())?;
            return Ok(Vec::new());
        }
        let mut names: Vec<String> =
            listed.keys().filter(|name| kind(name) != Some(Kind::Run)).cloned().collect();
        let segments: Vec<_> =
            names.iter().filter(|name| kind(name) == Some(Kind::Segment)).cloned().collect();
        let is_due = self.state(|state| {
            state.listed = listed;
            let State { listed, unsound, .. } = &mut *state;
            unsound.retain(|name, _| listed.contains_key(name));
            state.gone.retain(|_, since| runtime::now().duration_since(*since) < LISTED_WITHIN);
            let is_due =
                state.cleaned.is_none_or(|cleaned| runtime::now().duration_since(cleaned) >= CLEAN_EVERY);
            if is_due {
                state.cleaned = Some(runtime::now());
            }
            is_due
        })?;
        if is_due {
            self.clean()?;
        }
        self.receive_missing(&segments)?;
        let waiting: Vec<_> = self.waiting()?.into_iter().filter(|name| !segments.contains(name)).collect();
        self.state(|state| {
            state.shown = waiting.iter().filter(|name| !state.own.contains(*name)).cloned().collect();
        })?;
        names.extend(waiting);
        names.extend(self.near.runs()?);
        Ok(names)
    }

    /// Receives the segments that are not here: small ones now, and others while their rows are read in the store. Those whose copies are
    /// damaged each time are left out for a while.
    fn receive_missing(self: &Arc<Self>, segments: &[String]) -> io::Result<()> {
        let missing =
            segments.iter().filter(|name| !self.is_here(name) && self.is_receivable(name).unwrap_or(true));
        let with_length = |name: &String| {
            self.state(|state| state.listed.get(name).map(|(bytes, _)| (name.clone(), *bytes)))
        };
        let missing: Vec<_> =
            missing.map(with_length).filter_map(io::Result::transpose).collect::<io::Result<_>>()?;
        let (small, large): (Vec<_>, Vec<_>) = missing.into_iter().partition(|(_, bytes)| *bytes <= SMALL);
        self.receive_all(&small);
        if self.receives { self.receive_later(large) } else { Ok(()) }
    }

    /// How often the module is listed: at most one page a minute is asked for, however many files it has.
    pub(super) fn list_every(&self) -> Duration {
        let pages = self.state(|state| state.listed.len().div_ceil(PAGE).max(1)).unwrap_or(1);
        PAGE_EVERY.saturating_mul(u32::try_from(pages).unwrap_or(u32::MAX))
    }

    /// The segments that wait to be sent, of the history that the store has: in another one, the changes that they know are not those of
    /// these numbers.
    fn waiting(&self) -> io::Result<Vec<String>> {
        let mut of_origins: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for spooled in self.near.spooled()? {
            if kind(&spooled.name) == Some(Kind::Segment) {
                of_origins.entry(spooled.origin).or_default().push(spooled.name);
            }
        }
        let mut waiting = Vec::new();
        for (origin, names) in of_origins {
            if self.has_origin(&origin)? {
                waiting.extend(names);
            }
        }
        Ok(waiting)
    }

    fn clean(&self) -> io::Result<()> {
        let changes = self.copies()?;
        let listed: BTreeSet<String> = self.state(|state| state.listed.keys().cloned().collect())?;
        if let Err(error) = self.budget.keep() {
            tracing::debug!(near = %self.near.dir().display(), "cannot count the copies: {error}");
        }
        self.near
            .clean(STAY, |name| listed.contains(name) || changes.iter().any(|path| path.ends_with(name)));
        Ok(())
    }
}
