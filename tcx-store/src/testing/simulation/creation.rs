//! What the oracle is told of a change that a process creates.

use super::committed::{Committed, keys_named, rows_committed, rows_named, rows_older_than};
use super::folder::State;
use super::process::World;
use super::schedule::Clock;
use crate::sys::clock;

pub(super) struct Creation {
    /// The rows that it names in their views, and the keys that it names in all of them.
    named: Vec<(String, u32)>,
    keys: Vec<String>,
    /// The time of the invalidation by age that it is a part of.
    limit: Option<u64>,
    /// What it has made count, and what was old enough by then.
    committed: Option<Vec<Committed>>,
    old: Option<Vec<Committed>>,
}

impl Creation {
    pub(super) fn new(world: &World, process: usize, change: &[u8]) -> Self {
        let (named, keys) = (rows_named(change), keys_named(change));
        let limit = world.oracle().age_limit(process).filter(|_| !keys.is_empty());
        Self { named, keys, limit, committed: None, old: None }
    }

    /// It is about to come to this folder, which has none of its number.
    pub(super) fn happens(&mut self, folder: &State, change: &[u8]) {
        self.committed = (!self.named.is_empty()).then(|| rows_committed(folder, change));
        self.old = self.limit.map(|millis| rows_older_than(folder, clock::millis(Clock::wall(millis))));
    }

    pub(super) fn tell(self, world: &World, process: usize, name: &str) {
        if let Some(committed) = self.committed {
            world.oracle().replaces(process, name, &self.named, &committed);
        }
        if let Some(old) = self.old {
            world.oracle().ages(process, &self.keys, &old);
        }
    }
}
