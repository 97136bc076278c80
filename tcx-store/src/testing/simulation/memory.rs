//! The folder as each process sees it: listings may be late or incomplete, replies may be lost.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::committed::{keys_named, rows_committed, rows_named, rows_older_than};
use super::folder::{File, State};
use super::pieces::Pieces;
use super::process::World;
use super::schedule::{self, Clock, Fault};
use super::weather::Weather;
use crate::storage::{Draft, FileInfo, Held, Sealed, Stamp, Storage};
use crate::sys::clock;
use crate::sys::mmap::Mapped;

/// The folder as one process sees it.
#[derive(Clone, Debug)]
pub(super) struct MemoryStorage {
    world: Arc<World>,
    process: usize,
    weather: Weather,
    path: PathBuf,
    /// The files that this process has found once, or made.
    found: Arc<Mutex<BTreeSet<String>>>,
    doubt: Arc<Doubt>,
}

/// Whether a process may have missed what took the place of a segment that has gone: then it misses the rows too.
#[derive(Debug, Default)]
struct Doubt {
    /// The last listing, or a segment of it, was not as it is.
    is_faulty: AtomicBool,
    is_misled: AtomicBool,
    /// The last listing that has succeeded was late or incomplete.
    is_listing_faulty: AtomicBool,
    /// How often one was.
    faulty_listings: AtomicUsize,
    /// Since the last listing began, which reads it again, a change could not be read.
    is_change_unread: AtomicBool,
    /// How often one could not.
    unread_changes: AtomicUsize,
}

impl MemoryStorage {
    pub(super) fn new(world: Arc<World>, process: usize, weather: Weather) -> Self {
        Self {
            world,
            process,
            weather,
            path: PathBuf::from("/memory/m_v1"),
            found: Arc::default(),
            doubt: Arc::default(),
        }
    }

    /// Whether a segment has gone since this was asked, while its successor could not be seen.
    pub(super) fn was_misled(&self) -> bool {
        self.doubt.is_misled.swap(false, SeqCst)
    }

    /// Whether a change could not be read lately, and how often that was so.
    pub(super) fn unread_changes(&self) -> (bool, usize) {
        (self.doubt.is_change_unread.load(SeqCst), self.doubt.unread_changes.load(SeqCst))
    }

    /// Whether the last listing was late or incomplete, and how often one was.
    pub(super) fn faulty_listings(&self) -> (bool, usize) {
        (self.doubt.is_listing_faulty.load(SeqCst), self.doubt.faulty_listings.load(SeqCst))
    }

    fn found(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, what: &'static str, file: &str) -> io::Result<Option<Fault>> {
        let forced = schedule::step(what, file)?;
        let fault = forced.or_else(|| schedule::draw(|chance| self.weather.fault(what, file, chance)));
        // The end of a segment's name is not decided by the seed: its footer is a hash map.
        let file = &file[..file.len().min(36)];
        self.world.folder.trace.note(|| format!("    process {}: {what} {file} {fault:?}", self.process));
        Ok(fault)
    }

    /// A piece of a file is read.
    pub(super) fn may_read(&self, file: &str) -> io::Result<()> {
        let Some(Fault::Refused(kind)) = self.step("read", file)? else { return Ok(()) };
        Err(kind.into())
    }

    fn info_in(&self, state: &State, name: &str) -> io::Result<FileInfo> {
        let file = state.files.get(name).ok_or(ErrorKind::NotFound)?;
        let age = Duration::from_millis(self.world.folder.clock.millis().saturating_sub(file.written));
        let modified = Clock::wall(file.written);
        let came = state.events.iter().rposition(|event| event.came && event.name == name);
        let stamp = Stamp { modified, inode: came.unwrap_or_default() as u64 };
        Ok(FileInfo { bytes: file.bytes.len() as u64, age, stamp })
    }

    /// A step that changes the folder. It happens, does not happen, or happens without an answer.
    fn change<T>(
        &self,
        what: &'static str,
        file: &str,
        happen: impl FnOnce(&mut State, bool) -> io::Result<T>,
    ) -> io::Result<T> {
        self.change_in(None, what, file, happen)
    }

    /// As [`change`](Self::change), in the folder with this inode.
    fn change_in<T>(
        &self,
        inode: Option<u64>,
        what: &'static str,
        file: &str,
        happen: impl FnOnce(&mut State, bool) -> io::Result<T>,
    ) -> io::Result<T> {
        let fault = self.step(what, file)?;
        if let Some(Fault::Refused(kind)) = fault {
            return Err(kind.into());
        }
        let answered = fault != Some(Fault::LostReply);
        let done = match inode {
            Some(inode) => self.world.folder.within(inode, |state| happen(state, answered))?,
            None => happen(&mut self.world.folder.state(), answered)?,
        };
        self.found().insert(file.to_owned());
        if answered { Ok(done) } else { Err(io::Error::other("the reply was lost")) }
    }
}

impl Storage for MemoryStorage {
    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let fault = self.step("list", "")?;
        self.doubt.is_faulty.store(fault.is_some(), SeqCst);
        self.doubt.is_change_unread.store(false, SeqCst);
        if !matches!(fault, Some(Fault::Refused(_))) {
            self.doubt.is_listing_faulty.store(fault.is_some(), SeqCst);
            self.doubt.faulty_listings.fetch_add(usize::from(fault.is_some()), SeqCst);
        }
        let state = self.world.folder.state();
        let mut names = match fault {
            Some(Fault::Refused(kind)) => return Err(kind.into()),
            Some(Fault::Stale(late)) => state.names_before(state.unseen(self.process, late)),
            Some(Fault::Gap(prefix)) => state.names_with_a_gap(self.process, prefix),
            _ => state.names_before(&[]),
        };
        schedule::draw(|chance| chance.shuffle(&mut names));
        Ok(names)
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        let fault = self.step("stamp", "")?;
        let state = self.world.folder.state();
        let unseen = match fault {
            Some(Fault::Refused(kind)) => return Err(kind.into()),
            Some(Fault::Stale(late)) => state.unseen(self.process, late).len(),
            _ => 0,
        };
        let seen = &state.events[..state.events.len() - unseen];
        let changed =
            seen.last().map_or(0, |event| event.at) / self.world.folder.grain * self.world.folder.grain;
        Ok(state.exists.then(|| Stamp { modified: Clock::wall(changed), inode: state.inode }))
    }

    fn map(&self, name: &str) -> io::Result<Mapped> {
        let fault = self.step("map", name)?;
        let mut found = self.found();
        if name.starts_with("seg-") {
            self.doubt.is_faulty.fetch_or(fault.is_some(), SeqCst);
            let is_gone = !self.world.folder.state().files.contains_key(name);
            self.doubt.is_misled.fetch_or(is_gone && self.doubt.is_faulty.load(SeqCst), SeqCst);
        }
        if name.starts_with("change-") && matches!(fault, Some(Fault::Refused(_))) {
            self.doubt.is_change_unread.store(true, SeqCst);
            self.doubt.unread_changes.fetch_add(1, SeqCst);
        }
        match fault {
            Some(Fault::Refused(kind)) => return Err(kind.into()),
            Some(Fault::Late) if !found.contains(name) => return Err(ErrorKind::NotFound.into()),
            _ => {}
        }
        let state = self.world.folder.state();
        let file = state.files.get(name).ok_or(ErrorKind::NotFound)?;
        found.insert(name.to_owned());
        Ok(Mapped::in_memory(file.bytes.clone()))
    }

    fn open(&self, name: &str) -> io::Result<Sealed> {
        let bytes = self.map(name)?;
        let is_read = self.weather.unreadable_segment > 0;
        Ok(if is_read {
            Sealed::Read(Box::new(Pieces::new(self.clone(), name, bytes)))
        } else {
            Sealed::Mapped(bytes)
        })
    }

    fn make(&self) -> io::Result<()> {
        if let Some(Fault::Refused(kind)) = self.step("make", "")? {
            return Err(kind.into());
        }
        self.world.folder.state().exists = true;
        Ok(())
    }

    fn draft(&self) -> io::Result<Box<dyn Draft>> {
        if let Some(Fault::Refused(kind)) = self.step("draft", "")? {
            return Err(kind.into());
        }
        let state = self.world.folder.state();
        if !state.exists {
            return Err(ErrorKind::NotFound.into());
        }
        let (storage, inode) = (self.clone(), state.inode);
        Ok(Box::new(MemoryDraft { storage, inode, bytes: Vec::new(), is_synced: false }))
    }

    fn sync(&self) -> io::Result<()> {
        self.change("sync", "", |state, _| {
            if !state.exists {
                return Err(ErrorKind::NotFound.into());
            }
            state.sync();
            Ok(())
        })
    }

    fn info(&self, name: &str) -> io::Result<FileInfo> {
        self.step("info", name)?;
        self.info_in(&self.world.folder.state(), name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change("remove", name, |state, _| {
            state.remove(name, self.process, self.world.folder.clock.millis());
            Ok(())
        })
    }

    fn hold(&self) -> io::Result<Box<dyn Held>> {
        if let Some(Fault::Refused(kind)) = self.step("hold", "")? {
            return Err(kind.into());
        }
        let state = self.world.folder.state();
        if !state.exists {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(Box::new(MemoryHeld { storage: self.clone(), inode: state.inode }))
    }

    fn map_unnamed(&self, bytes: &[u8]) -> io::Result<Mapped> {
        Ok(Mapped::in_memory(bytes.into()))
    }
}

/// A folder by itself, in place or not.
struct MemoryHeld {
    storage: MemoryStorage,
    inode: u64,
}

impl Held for MemoryHeld {
    fn info(&self, name: &str) -> io::Result<FileInfo> {
        self.storage.step("info", name)?;
        self.storage.world.folder.within(self.inode, |state| self.storage.info_in(state, name))
    }

    fn sync(&self) -> io::Result<()> {
        self.storage.change_in(Some(self.inode), "sync", "", |state, _| {
            state.sync();
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let MemoryStorage { world, process, .. } = &self.storage;
        self.storage.change_in(Some(self.inode), "remove", name, |state, _| {
            state.remove(name, *process, world.folder.clock.millis());
            Ok(())
        })
    }
}

/// A file without a name. No process can open it, so that there is nothing to remove when it is dropped.
struct MemoryDraft {
    storage: MemoryStorage,
    /// The folder that it was made in.
    inode: u64,
    bytes: Vec<u8>,
    is_synced: bool,
}

impl Write for MemoryDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Draft for MemoryDraft {
    fn sync(&mut self) -> io::Result<()> {
        if let Some(Fault::Refused(kind)) = self.storage.step("sync", "")? {
            return Err(kind.into());
        }
        self.is_synced = true;
        Ok(())
    }

    fn publish(self: Box<Self>, name: &str, durable: bool) -> io::Result<()> {
        let Self { storage, inode, bytes, is_synced } = *self;
        storage.change("publish", name, |state, answered| {
            if state.inode != inode {
                return Err(ErrorKind::NotFound.into());
            }
            let file = File { bytes: bytes.into(), synced: durable || is_synced, named: false, written: 0 };
            state.add(name, file, storage.process, storage.world.folder.clock.millis());
            if durable && answered {
                state.sync();
            }
            Ok(())
        })
    }

    fn create(self: Box<Self>, name: &str) -> io::Result<bool> {
        let Self { storage, inode, bytes, .. } = *self;
        let (named, keys) = (rows_named(&bytes), keys_named(&bytes));
        let limit = storage.world.oracle().age_limit(storage.process).filter(|_| !keys.is_empty());
        let (mut committed, mut old) = (None, None);
        let created = storage.change("create", name, |state, answered| {
            if state.inode != inode {
                return Err(ErrorKind::NotFound.into());
            }
            let absent = !state.files.contains_key(name);
            if absent {
                committed = (!named.is_empty()).then(|| rows_committed(state, &bytes));
                old = limit.map(|millis| rows_older_than(state, clock::millis(Clock::wall(millis))));
                let file = File { bytes: bytes.into(), synced: true, named: false, written: 0 };
                state.add(name, file, storage.process, storage.world.folder.clock.millis());
            }
            if answered {
                state.sync();
            }
            Ok(absent)
        });
        let MemoryStorage { world, process, .. } = &storage;
        if let Some(committed) = committed {
            world.oracle().replaces(*process, name, &named, &committed);
        }
        if let Some(old) = old {
            world.oracle().ages(*process, &keys, &old);
        }
        created
    }
}
