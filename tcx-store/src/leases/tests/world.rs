//! What simulated workers share: a folder whose listings and reads may be old, whose calls may fail, and whose files may be damaged;
//! and the rows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::leases::files::LeaseFiles;
use crate::testing::simulation::chance::Chance;

/// What goes wrong with calls, of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    /// A listing or a read shows what there was up to this many milliseconds ago.
    pub(super) stale: usize,
    pub(super) stale_for: u64,
    pub(super) refused: usize,
    pub(super) lost_reply: usize,
}

/// The state of a file since a time; `None` if it is not there.
type History = Vec<(u64, Option<Vec<u8>>)>;

#[derive(Debug)]
pub(super) struct World {
    /// Milliseconds of a clock that no worker has.
    pub(super) now: u64,
    pub(super) chance: Chance,
    pub(super) weather: Weather,
    files: BTreeMap<String, History>,
}

impl World {
    pub(super) fn new(chance: Chance, weather: Weather) -> Self {
        Self { now: 0, chance, weather, files: BTreeMap::new() }
    }

    fn happens(&mut self, of_thousand: usize) -> bool {
        self.chance.below(1000) < of_thousand
    }

    /// The time that a look at the folder shows.
    fn seen(&mut self) -> u64 {
        let Weather { stale, stale_for, .. } = self.weather;
        let back = if self.happens(stale) { self.chance.below(stale_for as usize + 1) as u64 } else { 0 };
        self.now.saturating_sub(back)
    }

    fn at(&self, name: &str, time: u64) -> Option<&Vec<u8>> {
        let history = self.files.get(name)?;
        history.iter().rev().find(|(since, _)| *since <= time)?.1.as_ref()
    }

    fn put(&mut self, name: &str, bytes: Option<Vec<u8>>) {
        let now = self.now;
        self.files.entry(name.to_owned()).or_default().push((now, bytes));
    }

    fn fails<T>(&mut self, happen: impl FnOnce(&mut Self) -> T) -> io::Result<T> {
        let Weather { refused, lost_reply, .. } = self.weather;
        if self.happens(refused) {
            return Err(io::Error::other("refused"));
        }
        let done = happen(self);
        if self.happens(lost_reply) { Err(io::Error::other("the reply was lost")) } else { Ok(done) }
    }

    /// Damages or removes a file.
    pub(super) fn damage(&mut self) {
        let now = self.now;
        let names: Vec<String> =
            self.files.keys().filter(|name| self.at(name, now).is_some()).cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = &names[self.chance.below(names.len())];
        let mut bytes = self.at(name, now).cloned().unwrap_or_default();
        match self.chance.below(3) {
            0 => return self.put(name, None),
            1 => bytes.truncate(bytes.len() / 2),
            _ => bytes.iter_mut().take(20).for_each(|byte| *byte ^= 0x20),
        }
        self.put(name, Some(bytes));
    }
}

/// The folder as a worker has it.
#[derive(Clone, Debug)]
pub(super) struct SimulatedFiles(pub(super) Rc<RefCell<World>>);

impl LeaseFiles for SimulatedFiles {
    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.0.borrow_mut().fails(|world| {
            let is_absent = world.at(name, world.now).is_none();
            if is_absent {
                world.put(name, Some(bytes.to_vec()));
            }
            is_absent
        })
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().fails(|world| world.put(name, Some(bytes.to_vec())))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.borrow_mut().fails(|world| {
            let seen = world.seen();
            world.at(name, seen).cloned()
        })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.borrow_mut().fails(|world| {
            let seen = world.seen();
            world.files.keys().filter(|name| world.at(name, seen).is_some()).cloned().collect()
        })
    }

    fn age(&self, _: &str) -> io::Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.borrow_mut().fails(|world| world.put(name, None))
    }
}
