//! The caches of identities, beside that of their module, that no program has used for a while.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tcx_store::{Inspection, SegmentState, sessions};

use super::rm;
use crate::cache;
use crate::failure::Result;
use crate::text::human;

/// A cache that is removed as a whole.
#[derive(Debug, Serialize)]
pub(super) struct Unused {
    pub(super) module: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    last_used_ms: Option<u64>,
    #[serde(skip)]
    pub(super) last_used: String,
}

/// Takes those out of `inspections` that no program has used for `age`.
pub(super) fn take(
    dir: &Path,
    inspections: &mut BTreeMap<String, Inspection>,
    age: Duration,
) -> Result<Vec<Unused>> {
    let mut unused = Vec::new();
    for (name, inspection) in inspections.iter().filter(|(name, _)| cache::is_separate(name)) {
        let last_used = last_used(dir, name, inspection)?;
        if is_old(last_used, age) {
            let served = inspection.segments().filter(|own| own.state == SegmentState::Served);
            unused.push(Unused {
                module: name.clone(),
                rows: served.map(|own| own.rows).sum(),
                bytes: cache::bytes(inspection),
                last_used_ms: last_used.map(human::millis),
                last_used: last_used.map_or_else(|| "?".to_owned(), human::ago),
            });
        }
    }
    for own in &unused {
        inspections.remove(&own.module);
    }
    Ok(unused)
}

/// Removes those that no program has used since they were found; returns them.
pub(super) fn remove(dir: &Path, unused: Vec<Unused>, age: Duration) -> Result<Vec<Unused>> {
    let mut removed = Vec::new();
    for own in unused {
        let inspection = cache::inspect(dir, &own.module)?;
        if is_old(last_used(dir, &own.module, &inspection)?, age) {
            drop(inspection);
            rm::remove_module(dir, &own.module)?;
            removed.push(own);
        }
    }
    Ok(removed)
}

/// The last use that the file system or a program has recorded.
fn last_used(dir: &Path, name: &str, inspection: &Inspection) -> Result<Option<SystemTime>> {
    let recorded = sessions(&dir.join(name))?.iter().map(|session| session.ended).max();
    Ok(inspection.last_used().max(recorded))
}

/// A cache whose last use is unknown is not old.
fn is_old(last_used: Option<SystemTime>, age: Duration) -> bool {
    let unused_for = last_used.and_then(|time| SystemTime::now().duration_since(time).ok());
    unused_for.is_some_and(|unused_for| unused_for >= age)
}
