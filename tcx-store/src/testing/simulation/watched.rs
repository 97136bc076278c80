//! A storage of another crate, whose failures the oracle has to know of: rows that a process cannot see for them are not lost.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::doubt::Doubt;
use crate::stats::traffic::Traffic;
use crate::storage::{Draft, FileInfo, Held, Parts, ReadAt, Sealed, Stamp, Storage};
use crate::sys::mmap::Mapped;

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) doubt: Arc<Doubt>,
    /// At what has moved.
    pub(super) looks: AtomicU64,
}

impl Watched {
    /// What has become of a look at a file.
    fn note<T>(&self, name: &str, looked: io::Result<T>) -> io::Result<T> {
        let failed = looked.as_ref().err().map(io::Error::kind);
        let is_gone = failed == Some(ErrorKind::NotFound);
        let is_unread = failed.is_some() && !is_gone;
        if name.starts_with("seg-") {
            self.doubt.opened(is_unread, is_gone);
        } else if is_unread {
            // Until it can be read, it hides what is before it.
            self.doubt.did_not_read_change();
        }
        if is_unread {
            self.doubt.mislead();
        }
        looked
    }
}

impl Storage for Watched {
    fn path(&self) -> &Path {
        self.storage.path()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        // It may have begun before, with a look ahead.
        self.doubt.list(false);
        let listed = self.storage.list();
        let is_late = self.doubt.was_listed_late();
        if listed.is_ok() {
            self.doubt.listed(is_late);
        } else {
            self.doubt.opened(true, false);
        }
        listed
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        self.storage.stamp()
    }

    fn map(&self, name: &str) -> io::Result<Mapped> {
        self.note(name, self.storage.map(name))
    }

    fn open(&self, name: &str) -> io::Result<Sealed> {
        Ok(match self.note(name, self.storage.open(name))? {
            Sealed::Read(file) => Sealed::Read(Box::new(WatchedFile { file, doubt: self.doubt.clone() })),
            mapped @ Sealed::Mapped(_) => mapped,
        })
    }

    fn is_there(&self, name: &str) -> io::Result<bool> {
        let looked = match self.storage.is_there(name) {
            Ok(false) => Err(ErrorKind::NotFound.into()),
            looked => looked,
        };
        match self.note(name, looked) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            looked => looked,
        }
    }

    fn is_here(&self, name: &str) -> Option<bool> {
        self.storage.is_here(name)
    }

    /// Another value each time: times of a file system are not those of the simulation.
    fn moves(&self) -> Option<Stamp> {
        let moves = self.storage.moves()?;
        Some(Stamp { inode: self.looks.fetch_add(1, Ordering::Relaxed), ..moves })
    }

    fn read_parts(&self, wanted: &[Parts]) -> Vec<Vec<io::Result<Vec<u8>>>> {
        let read = self.storage.read_parts(wanted);
        if read.iter().flatten().any(Result::is_err) {
            self.doubt.mislead();
        }
        read
    }

    fn beside(&self, name: &str, map: &Mapped) -> io::Result<Option<Box<dyn ReadAt>>> {
        self.storage.beside(name, map)
    }

    fn make(&self) -> io::Result<()> {
        self.storage.make()
    }

    fn draft(&self) -> io::Result<Box<dyn Draft>> {
        self.storage.draft()
    }

    fn create_if_absent(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.storage.create_if_absent(name, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.storage.sync()
    }

    fn info(&self, name: &str) -> io::Result<FileInfo> {
        let info = self.storage.info(name);
        // A change that is looked for in vain proves nothing if the store was not asked.
        let is_unread = info.as_ref().is_err_and(|error| error.kind() != ErrorKind::NotFound);
        if is_unread || self.storage.is_away() {
            self.doubt.did_not_read_change();
        }
        info
    }

    fn is_remote(&self) -> bool {
        self.storage.is_remote()
    }

    fn is_in_memory(&self) -> bool {
        self.storage.is_in_memory()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.storage.remove(name)
    }

    fn hold(&self) -> io::Result<Box<dyn Held>> {
        self.storage.hold()
    }

    fn folder(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        self.storage.folder(name)
    }

    fn existing_folder(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        self.storage.existing_folder(name)
    }

    fn map_unnamed(&self, bytes: &[u8]) -> io::Result<Mapped> {
        self.storage.map_unnamed(bytes)
    }

    fn is_away(&self) -> bool {
        self.storage.is_away()
    }

    fn try_now(&self) {
        self.storage.try_now();
    }

    fn settle(&self) -> io::Result<()> {
        self.storage.settle()
    }

    fn list_every(&self) -> Option<Duration> {
        self.storage.list_every()
    }

    fn look_ahead(&self) {
        self.doubt.was_listed_late();
        self.storage.look_ahead();
    }

    fn distrust(&self, name: &str) {
        self.storage.distrust(name);
    }

    fn traffic(&self) -> Traffic {
        self.storage.traffic()
    }
}

/// A file that is read piece by piece.
#[derive(Debug)]
struct WatchedFile {
    file: Box<dyn ReadAt>,
    doubt: Arc<Doubt>,
}

impl ReadAt for WatchedFile {
    fn bytes(&self) -> usize {
        self.file.bytes()
    }

    fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        self.file.read_at(bytes, at).inspect_err(|_| self.doubt.mislead())
    }

    fn is_far(&self) -> bool {
        self.file.is_far()
    }

    fn forget(&self) {
        self.file.forget();
    }
}
