//! Segments on other machines: several are opened at the same time, and one whose file comes here is opened again.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::{SegmentSet, State};
use crate::changes::instance::KnownIdentity;
use crate::segment::{Segment, SegmentError};
use crate::storage::name::SegmentName;
use crate::sys::helpers::{take, with_helpers};
use crate::sys::runtime::{is_simulated, lock};

/// Segments of another machine that are opened at the same time.
const OPENED_AT_ONCE: usize = 16;

/// Which segments are read in another way now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// Those that have come to this machine: to open them takes no request.
    Here,
    Any,
}

impl SegmentSet {
    /// Opens the segments that are on another machine, several at a time: each takes the time of a few requests.
    pub(super) fn open_far(
        &self,
        names: &[SegmentName],
        identity: &KnownIdentity,
    ) -> HashMap<SegmentName, io::Result<Result<Segment, SegmentError>>> {
        let is_far = |name: &&SegmentName| self.storage.is_here(&name.to_string()) == Some(false);
        let far: Vec<SegmentName> = names.iter().filter(is_far).copied().collect();
        let (next, opened) = (Mutex::new(far.iter()), Mutex::new(HashMap::new()));
        if far.len() > 1 {
            let threads = if is_simulated() { 1 } else { far.len().min(OPENED_AT_ONCE) };
            with_helpers("tcx-open", threads - 1, || {
                while let Some(name) = take(&next) {
                    let file = self.open_file(*name, identity);
                    lock(&opened).insert(*name, file);
                }
            });
        }
        opened.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of these segments that are not in the folder any more. Where each look is a request to another machine, several are made at
    /// the same time.
    pub(super) fn gone(&self, names: &[SegmentName]) -> Vec<SegmentName> {
        let (next, gone) = (Mutex::new(names.iter()), Mutex::new(Vec::new()));
        let is_dear = self.storage.list_every().is_some() && !is_simulated();
        let threads = if is_dear { names.len().min(OPENED_AT_ONCE) } else { 1 };
        with_helpers("tcx-look", threads.saturating_sub(1), || {
            while let Some(name) = take(&next) {
                if matches!(self.storage.is_there(&name.to_string()), Ok(false)) {
                    lock(&gone).push(*name);
                }
            }
        });
        gone.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the segments again that are read in another way now: those that have come, or `Moved::Any`. One that cannot be opened stays as
    /// it is.
    pub(crate) fn reopen_moved(&mut self, identity: &KnownIdentity, wanted: Moved) -> bool {
        let has_moved = |segment: &Arc<Segment>| {
            (wanted == Moved::Any || segment.is_far())
                && self
                    .storage
                    .is_here(&segment.name().to_string())
                    .is_some_and(|is_here| is_here == segment.is_far())
        };
        let moved: Vec<Arc<Segment>> = self.usable().into_iter().filter(has_moved).collect();
        let mut any = false;
        for before in moved {
            let name = before.name();
            match self.open_file(name, identity) {
                Ok(Ok(segment)) if segment.is_far() != before.is_far() => {
                    self.known.insert(name, State::Usable(Arc::new(segment)));
                    any = true;
                }
                _ => {}
            }
        }
        any
    }
}
