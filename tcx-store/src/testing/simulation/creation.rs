//! What the oracle learns when a file comes to the folder.

use super::committed::{
    Age, Committed, Stored, age, is_identity, rows_committed, rows_named, rows_of_dead_segments, segment,
    segments,
};
use super::folder::State;
use super::process::World;

/// A change that a process creates.
pub(super) struct Creation {
    /// The rows that it names in their views.
    named: Vec<(String, u32)>,
    /// What it says of the age of rows.
    age: Option<Age>,
    /// What it has made count, and what was stored by then.
    committed: Option<Vec<Committed>>,
    stored: Option<(Age, Vec<Stored>)>,
    /// The rows that are evicted by it.
    evicted: Vec<i64>,
    /// It has made the module.
    is_first: bool,
}

impl Creation {
    pub(super) fn new(change: &[u8]) -> Self {
        Self {
            named: rows_named(change),
            age: age(change),
            committed: None,
            stored: None,
            evicted: Vec::new(),
            is_first: false,
        }
    }

    /// It is about to come to this folder, which has none of its number.
    pub(super) fn happens(&mut self, folder: &State, change: &[u8]) {
        self.committed = (!self.named.is_empty()).then(|| rows_committed(folder, change));
        self.stored = self.age.map(|age| (age, segments(folder)));
        self.evicted = rows_of_dead_segments(folder, change);
        self.is_first = is_identity(change);
    }

    /// `is_durable` says that no loss of power takes it away again.
    pub(super) fn tell(self, world: &World, process: usize, name: &str, is_durable: bool) {
        if self.is_first {
            world.oracle().made();
        }
        if let Some(committed) = self.committed {
            world.oracle().replaces(process, name, &self.named, &committed);
        }
        if let Some((age, stored)) = self.stored {
            world.oracle().ages(process, age, &stored);
        }
        if !self.evicted.is_empty() {
            world.oracle().evicted(process, &self.evicted, is_durable);
        }
    }
}

/// A segment comes to the folder: rows may have been invalidated by their age.
pub(super) fn tell_segment(world: &World, name: &str, bytes: &[u8]) {
    if name.starts_with("seg-")
        && world.oracle().has_aged()
        && let Some(segment) = segment(bytes)
    {
        world.oracle().stores(&segment);
    }
}
