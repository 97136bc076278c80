//! The folder as each process sees it: listings may be late or incomplete, replies may be lost.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::committed::{rows_lost_by_repair, rows_only_in};
use super::creation::{Creation, tell_segment};
use super::doubt::Doubt;
use super::folder::{File, State};
use super::pieces::Pieces;
use super::process::World;
use super::schedule::{self, Clock, Fault};
use super::weather::Weather;
use crate::storage::{Draft, FileInfo, Held, Sealed, Stamp, Storage};
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

impl MemoryStorage {
    pub(super) fn new(world: Arc<World>, process: usize, weather: Weather, doubt: Arc<Doubt>) -> Self {
        let (path, found) = (PathBuf::from("/memory/m_v1"), Arc::default());
        Self { world, process, weather, path, found, doubt }
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
        self.doubt.list(fault.is_some());
        if !matches!(fault, Some(Fault::Refused(_))) {
            self.doubt.listed(fault.is_some());
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
            let is_gone = !self.world.folder.state().files.contains_key(name);
            self.doubt.opened(fault.is_some(), is_gone);
        }
        if name.starts_with("change-") && matches!(fault, Some(Fault::Refused(_))) {
            self.doubt.did_not_read_change();
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

    fn set_aside(&self, name: &str) -> io::Result<()> {
        let mut lost = Vec::new();
        let done = self.change("set aside", name, |state, answered| {
            lost = rows_only_in(state, |own, _| own == name);
            state.remove(name, self.process, self.world.folder.clock.millis());
            if answered {
                state.sync();
            }
            Ok(())
        });
        self.world.oracle().evicted(self.process, &lost, done.is_ok());
        done
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
        let bytes: Arc<[u8]> = bytes.into();
        let mut lost = None;
        let published = storage.change("publish", name, |state, answered| {
            if state.inode != inode {
                return Err(ErrorKind::NotFound.into());
            }
            let file = File { bytes: bytes.clone(), synced: durable || is_synced, named: false, written: 0 };
            lost = state.is_damaged(name).then(|| rows_lost_by_repair(state, &file.bytes));
            state.add(name, file, storage.process, storage.world.folder.clock.millis());
            if durable && answered {
                state.sync();
            }
            Ok(())
        });
        tell_segment(&storage.world, name, &bytes);
        if let Some(lost) = lost {
            storage.world.oracle().repaired(name);
            storage.world.oracle().evicted(storage.process, &lost, published.is_ok());
        }
        published
    }

    fn create(self: Box<Self>, name: &str) -> io::Result<bool> {
        let Self { storage, inode, bytes, .. } = *self;
        let mut creation = Creation::new(&bytes);
        let created = storage.change("create", name, |state, answered| {
            if state.inode != inode {
                return Err(ErrorKind::NotFound.into());
            }
            let absent = !state.files.contains_key(name);
            if absent {
                creation.happens(state, &bytes);
                let file = File { bytes: bytes.into(), synced: true, named: false, written: 0 };
                state.add(name, file, storage.process, storage.world.folder.clock.millis());
            }
            if answered {
                state.sync();
            }
            Ok(absent)
        });
        creation.tell(&storage.world, storage.process, name, created.is_ok());
        created
    }
}
