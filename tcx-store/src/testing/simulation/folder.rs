//! The folder in memory that all processes share: its files, what of them is durable, and what happened lately.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chance::Chance;
use super::schedule::{self, Clock};
use super::trace::Trace;
use crate::changes::IdentityChange;
use crate::storage::name::FileName;
use crate::sys::bytes::Random;

/// Listings are at most so many events late.
pub(super) const STALE: usize = 6;

#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) bytes: Arc<[u8]>,
    /// Whether its bytes survive a loss of power.
    pub(super) synced: bool,
    /// Whether its name does.
    pub(super) named: bool,
    pub(super) written: u64,
}

/// A name came or went.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) came: bool,
    pub(super) name: String,
    /// The process that did it.
    by: usize,
    pub(super) at: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) files: BTreeMap<String, File>,
    /// What was removed since the folder was last synced.
    removed: BTreeMap<String, File>,
    /// What damaged files had been, by their names.
    sound: BTreeMap<String, Arc<[u8]>>,
    pub(super) events: Vec<Event>,
    pub(super) exists: bool,
    /// Another for every folder that there was.
    pub(super) inode: u64,
}

/// The folder that all processes share.
#[derive(Debug)]
pub(super) struct Folder {
    state: Mutex<State>,
    /// The folder that has gone away and comes back.
    away: Mutex<Option<State>>,
    /// A copy of the folder.
    backup: Mutex<Option<State>>,
    /// How many folders there were.
    inodes: AtomicU64,
    pub(super) clock: Arc<Clock>,
    /// Stamps are multiples of so many milliseconds.
    pub(super) grain: u64,
    pub(super) trace: Trace,
}

impl Folder {
    pub(super) fn new(clock: Arc<Clock>, grain: u64, trace: Trace) -> Self {
        let (state, away, backup) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { state, away, backup, inodes: AtomicU64::new(0), clock, grain, trace }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the module in place, if there is one.
    pub(super) fn instance(&self) -> Option<Random> {
        let zero = FileName::Change(0).to_string();
        let bytes = self.state().files.get(&zero).map(|file| file.bytes.clone())?;
        IdentityChange::decode(&bytes).ok().map(|zero| zero.instance)
    }

    /// What happens in the folder with this inode, in place or away.
    ///
    /// # Errors
    ///
    /// Returns an error if it is neither, and no process will see it again.
    pub(super) fn within<T>(
        &self,
        inode: u64,
        happen: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        if state.inode == inode {
            return happen(&mut state);
        }
        away.as_mut().filter(|away| away.inode == inode).map_or(Err(io::ErrorKind::NotFound.into()), happen)
    }

    /// The names that begin so.
    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        self.state().files.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
    }

    pub(super) fn remove_file(&self, name: &str) {
        self.state().remove(name, usize::MAX, self.clock.millis());
    }

    /// A file of another process, durable like all that it counts on.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) {
        let file = File { bytes: bytes.into(), synced: true, named: true, written: 0 };
        let mut state = self.state();
        state.add(name, file, usize::MAX, self.clock.millis());
        state.sync();
    }

    /// The disk gives other bytes of a file from now on; `None` if there is no such file.
    pub(super) fn damage(&self, name: &str, damage: impl FnOnce(&mut Vec<u8>)) -> Option<Arc<[u8]>> {
        let mut state = self.state();
        let file = state.files.get_mut(name)?;
        let mut bytes = file.bytes.to_vec();
        damage(&mut bytes);
        let before = std::mem::replace(&mut file.bytes, bytes.into());
        state.sound.insert(name.to_owned(), before.clone());
        Some(before)
    }

    /// A user removes the folder with all that is in it.
    pub(super) fn remove_all(&self) {
        let mut state = self.state();
        let names: Vec<String> = state.files.keys().cloned().collect();
        for name in names {
            state.remove(&name, usize::MAX, self.clock.millis());
        }
        state.removed.clear();
        state.exists = false;
        state.inode = self.inode();
    }

    /// An inode that no folder has had.
    fn inode(&self) -> u64 {
        1 + self.inodes.fetch_add(1, Ordering::Relaxed)
    }

    /// No folder, where one may be made.
    fn none(&self) -> State {
        State { inode: self.inode(), ..State::default() }
    }

    /// The folder goes away, as that of a mount; `false` if one is away already.
    pub(super) fn take_away(&self) -> bool {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let goes = away.is_none();
        if goes {
            *away = Some(std::mem::replace(&mut *self.state(), self.none()));
        }
        goes
    }

    /// It comes back, in the place of what was made there; `false` if none is away.
    pub(super) fn bring_back(&self) -> bool {
        let back = self.away.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(back) = back else { return false };
        *self.state() = back;
        true
    }

    /// A user copies the folder. Returns whether it exists.
    pub(super) fn back_up(&self) -> bool {
        let copy = self.state().clone();
        let exists = copy.exists;
        if exists {
            *self.backup.lock().unwrap_or_else(PoisonError::into_inner) = Some(copy);
        }
        exists
    }

    /// A user replaces the folder by the copy. Returns whether there is a copy.
    pub(super) fn restore(&self) -> bool {
        let copy = self.backup.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let exists = copy.is_some();
        if let Some(State { files, sound, exists, .. }) = copy {
            let mut state = State { files, sound, exists, ..self.none() };
            state.files.values_mut().for_each(|file| file.synced = true);
            state.sync();
            *self.state() = state;
        }
        exists
    }

    /// What is not durable may be lost: names, removals, and the bytes of files that were never synced.
    pub(super) fn lose_power(&self, chance: &mut Chance) {
        let mut state = self.state();
        for (name, file) in std::mem::take(&mut state.removed) {
            if chance.permille(500) {
                state.files.entry(name).or_insert(file);
            }
        }
        state.files.retain(|_, file| file.named || chance.permille(500));
        for file in state.files.values_mut().filter(|file| !file.synced) {
            match chance.below(3) {
                0 => file.bytes = file.bytes[..file.bytes.len() / 2].into(),
                1 => file.bytes = vec![0; file.bytes.len()].into(),
                _ => {}
            }
        }
        state.sync();
    }
}

impl State {
    pub(super) fn add(&mut self, name: &str, mut file: File, by: usize, at: u64) {
        file.written = at;
        self.exists = true;
        self.sound.remove(name);
        self.files.insert(name.to_owned(), file);
        self.events.push(Event { came: true, name: name.to_owned(), by, at });
    }

    pub(super) fn remove(&mut self, name: &str, by: usize, at: u64) {
        self.sound.remove(name);
        if let Some(file) = self.files.remove(name) {
            self.removed.insert(name.to_owned(), file);
            self.events.push(Event { came: false, name: name.to_owned(), by, at });
        }
    }

    /// What was written to a file, damaged or not.
    pub(super) fn written<'a>(&'a self, name: &str, file: &'a File) -> &'a [u8] {
        self.sound.get(name).unwrap_or(&file.bytes)
    }

    /// Whether a file is not what was written.
    pub(super) fn is_damaged(&self, name: &str) -> bool {
        self.sound.contains_key(name)
    }

    /// The folder is synced: names and removals are durable.
    pub(super) fn sync(&mut self) {
        self.removed.clear();
        self.files.values_mut().for_each(|file| file.named = true);
    }

    /// How many of the last `late` events `process` may not have seen yet: none before its own last one.
    pub(super) fn unseen(&self, process: usize, late: usize) -> &[Event] {
        let own = self.events.iter().rposition(|event| event.by == process).map_or(0, |own| own + 1);
        &self.events[own.max(self.events.len().saturating_sub(late))..]
    }

    pub(super) fn names_before(&self, unseen: &[Event]) -> Vec<String> {
        let mut names: BTreeSet<&str> = self.files.keys().map(String::as_str).collect();
        for event in unseen.iter().rev() {
            if event.came {
                names.remove(event.name.as_str());
            } else {
                names.insert(&event.name);
            }
        }
        names.into_iter().map(str::to_owned).collect()
    }

    /// All names but one that another process has added lately, and that begins so. Of changes, those that this process has added since are
    /// missing as well: an eviction has two.
    pub(super) fn names_with_a_gap(&self, process: usize, prefix: &str) -> Vec<String> {
        let recent = || {
            let recent = &self.events[self.events.len().saturating_sub(2 * STALE)..];
            recent.iter().filter(|event| event.came && event.by != process)
        };
        let named: Vec<&Event> = recent().filter(|event| event.name.starts_with(prefix)).collect();
        if named.is_empty() {
            return self.files.keys().cloned().collect();
        }
        let gap = schedule::draw(|chance| chance.pick(&named));
        let is_change = |event: &Event| event.name.starts_with("change-");
        let newer = recent().filter(|own| own.by == gap.by && own.name >= gap.name);
        let newer = newer.filter(|own| is_change(gap) && is_change(own));
        let missing: Vec<&str> = newer.chain([gap]).map(|event| event.name.as_str()).collect();
        self.files.keys().filter(|name| !missing.contains(&name.as_str())).cloned().collect()
    }
}
