//! The segments that a look at a folder has found.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use super::{Inspected, SegmentFacts, SegmentState};
use crate::changes::KnownChanges;
use crate::error::{Error, Result};
use crate::live::folder::Live;
use crate::live::listing::Listing;
use crate::segment::{Segment, SegmentError};
use crate::storage::Storage;
use crate::storage::name::{FileName, SegmentName};
use crate::sys::clock::time;

/// A folder that changes while it is looked at is looked at so often.
const LOOKS_AT_MOST: usize = 5;

/// The names in the folder, with those of segments that are gone since and were opened, and the segments that have come since: nothing is
/// known of these, if the folder changes faster than it is looked at. Rows that were joined while it was listed are in one or the other.
pub(super) fn settled(
    live: &mut Live,
    storage: &dyn Storage,
) -> Result<(Vec<String>, BTreeSet<SegmentName>)> {
    let mut looks = 0;
    loop {
        looks += 1;
        live.refresh()?;
        let mut names = storage.list().map_err(|e| Error::io("cannot list", storage.path(), e))?;
        let listed = Listing::of(&names).segments;
        let is_new =
            |name: &SegmentName| live.segments.opened(*name).is_none() && !live.segments.is_gone(*name);
        let came: BTreeSet<SegmentName> = listed.iter().filter(|name| is_new(name)).copied().collect();
        if came.is_empty() || looks == LOOKS_AT_MOST {
            names.retain(
                |name| !matches!(FileName::parse(name), Some(FileName::Segment(own)) if came.contains(&own)),
            );
            let open = live.segments.usable().into_iter().map(|segment| segment.name());
            names.extend(open.filter(|name| !listed.contains(name)).map(|name| name.to_string()));
            return Ok((names, came));
        }
    }
}

/// A segment that has come since the folder was looked at.
pub(super) fn came_since(name: SegmentName) -> Inspected {
    let state = SegmentState::Unreadable("it came while the folder was looked at; look again".to_owned());
    Inspected { facts: facts(name, 0, None, state), segment: None, keys: OnceLock::new() }
}

/// The segments of a listing, the oldest first, and what has become of each.
pub(crate) fn inspected(live: &mut Live, storage: &dyn Storage, names: &[String]) -> Vec<Inspected> {
    let replaced = live.segments.replaced(&live.changes);
    let segments = Listing::of(names).segments.into_iter().filter_map(|name| {
        let (segment, state) = match live.segments.opened(name) {
            Some(Ok(segment)) => {
                let state = state(segment, &live.changes, replaced.contains(&name));
                (Some(segment.clone()), state)
            }
            Some(Err(SegmentError::Damaged(what))) => (None, SegmentState::Damaged(what.clone())),
            Some(Err(SegmentError::Foreign(why) | SegmentError::Unknown(why))) => {
                (None, SegmentState::Foreign(why.clone()))
            }
            Some(Err(SegmentError::Failed(error))) => (None, SegmentState::Unreadable(error.to_string())),
            // One that has come or gone since is left to the next look.
            None => match storage.open(&name.to_string()) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    (None, SegmentState::Unreadable(error.to_string()))
                }
                _ => return None,
            },
        };
        let bytes = storage.info(&name.to_string()).map_or(0, |info| info.bytes);
        let facts = facts(name, bytes, segment.as_deref(), state);
        Some(Inspected { facts, segment, keys: OnceLock::new() })
    });
    let mut segments: Vec<_> = segments.collect();
    segments.sort_by(|a, b| (a.facts.born, &a.facts.name).cmp(&(b.facts.born, &b.facts.name)));
    segments
}

fn state(segment: &Segment, changes: &KnownChanges, is_replaced: bool) -> SegmentState {
    let (needs, newest) = (segment.needs(), changes.newest());
    match changes.committed(needs) {
        Some(false) => return SegmentState::Void,
        None if newest.is_none_or(|newest| needs.base > newest) => return SegmentState::Uncommitted,
        // The change is there and cannot be read.
        None => return SegmentState::Ahead,
        Some(true) => {}
    }
    match () {
        () if newest.is_none_or(|newest| needs.base > newest) => SegmentState::Ahead,
        () if is_replaced => SegmentState::Replaced,
        () if !changes.serves(needs, segment.dated()) => SegmentState::Dead,
        () => SegmentState::Served,
    }
}

fn facts(name: SegmentName, bytes: u64, segment: Option<&Segment>, state: SegmentState) -> SegmentFacts {
    SegmentFacts {
        name: name.to_string(),
        bytes,
        rows: segment.map_or(0, |segment| segment.rows() as u64),
        base: segment.map_or(0, Segment::base),
        replaces_rows: segment.is_some_and(|segment| segment.needs().commit.is_some()),
        born: segment.map_or(UNIX_EPOCH, |segment| time(segment.born())),
        format: segment.map_or(0, Segment::format),
        state,
    }
}
