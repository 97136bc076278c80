//! Invalidations, and what the oracle learns of them.

use super::{fresh, seal};
use crate::sys::clock;
use crate::testing::simulation::history::Matcher;
use crate::testing::simulation::process::{Process, Session};
use crate::testing::simulation::schedule::Clock;
use crate::{ErrorKind, Keys};

pub(super) fn invalidate(process: &Process, session: &Session, matcher: Matcher) {
    let invalidation = process.world.oracle().invalidate(Some(session.number()), matcher.clone());
    let store = &session.store;
    let invalidated = match matcher {
        Matcher::All => store.invalidate_all(),
        Matcher::Prefix(prefix) => store.invalidate_prefix(prefix.as_bytes()),
        Matcher::Keys(keys) => store.invalidate(&Keys::text(keys, 0).unwrap()),
        Matcher::Row(..) => unreachable!("only what recomputes invalidates one view"),
        Matcher::Found(_) | Matcher::OlderThan(_) | Matcher::Evicted(_) | Matcher::Damaged(_) => {
            unreachable!("an operation of its own")
        }
    };
    match invalidated {
        Ok(()) => process.world.oracle().invalidated(invalidation),
        Err(error) => {
            if error.kind() == ErrorKind::Io {
                process.world.oracle().failed_to_invalidate(invalidation);
            }
            process.failed(&error);
        }
    }
}

/// Invalidates by age, as [`Store::invalidate_older_than`](crate::Store::invalidate_older_than) does once its writer has sealed what is
/// buffered.
pub(super) fn age(process: &Process, session: &Session, limit: u64) {
    if !seal(process, session) {
        return;
    }
    let matcher = Matcher::OlderThan(limit);
    let invalidation = process.world.oracle().invalidate(Some(session.number()), matcher);
    let before = (process.unread_changes().1, process.faulty_listings().1);
    let aged = session.store.invalidate_stored_before(clock::millis(Clock::wall(limit)));
    process.see_misled(session);
    let is_sure = before == (process.unread_changes().1, process.faulty_listings().1);
    process.world.oracle().aged(invalidation, aged.is_ok() && is_sure, process.millis());
    aged.unwrap_or_else(|error| process.failed(&error));
}

/// Invalidates by a predicate.
pub(super) fn invalidate_found(process: &Process, session: &Session, keys: &[&'static str]) {
    let invalidation =
        process.world.oracle().invalidate(Some(session.number()), Matcher::Found(keys.to_vec()));
    let before = (process.unread_changes().1, process.faulty_listings().1);
    let is_found = |key: &[u8]| keys.iter().any(|own| own.as_bytes() == key);
    let invalidated = fresh(|| session.store.invalidate_where(is_found));
    process.see_misled(session);
    let is_sure = before == (process.unread_changes().1, process.faulty_listings().1);
    match invalidated {
        Ok(()) if is_sure => process.world.oracle().invalidated(invalidation),
        Ok(()) => process.world.oracle().doubted(invalidation),
        // What was found may be dead all the same, or be invalidated later.
        Err(error) => process.failed(&error),
    }
}
