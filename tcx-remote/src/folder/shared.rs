//! Small files that machines share while they work, as they are in the store. They change, so the near tier has no copies of them.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tcx_store::unstable::{Draft, FileInfo, Held, Mapped, ReadAt, Sealed, Stamp, Storage};

use super::{Inner, info_of};
use crate::bucket::Created;

/// The folders of a module that all machines share. The others are of one machine.
const SHARED: [&str; 1] = ["leases"];

/// Longer objects are not read.
const MOST: u64 = 16 << 20;

/// A folder of a module, in the store. A folder without objects does not exist there, and is empty here.
#[derive(Clone, Debug)]
pub(super) struct SharedFolder {
    module: Arc<Inner>,
    name: &'static str,
    path: PathBuf,
}

impl SharedFolder {
    /// `None` if the folder of this name is of one machine.
    pub(super) fn new(module: &Arc<Inner>, name: &str) -> Option<Self> {
        let name = SHARED.into_iter().find(|shared| *shared == name)?;
        Some(Self { path: module.path().join(name), module: module.clone(), name })
    }

    fn key(&self, name: &str) -> String {
        self.module.key(&format!("{}/{name}", self.name))
    }
}

impl Storage for SharedFolder {
    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let objects = self.module.ask(|bucket| bucket.list(&self.module.key(self.name), None))?;
        Ok(objects.into_iter().map(|object| object.name).collect())
    }

    /// A store has no time of its last change.
    fn stamp(&self) -> io::Result<Option<Stamp>> {
        Ok(Some(Stamp { modified: SystemTime::UNIX_EPOCH, inode: 0 }))
    }

    /// They are never mapped: they may be replaced.
    fn map(&self, _: &str) -> io::Result<Mapped> {
        Err(ErrorKind::Unsupported.into())
    }

    fn open(&self, name: &str) -> io::Result<Sealed> {
        let read = self.module.ask(|bucket| bucket.read(&self.key(name), MOST))?;
        let bytes = read.ok_or(ErrorKind::NotFound)?;
        Ok(Sealed::Read(Box::new(Bytes(bytes))))
    }

    fn make(&self) -> io::Result<()> {
        Ok(())
    }

    fn draft(&self) -> io::Result<Box<dyn Draft>> {
        Ok(Box::new(SharedDraft { folder: self.clone(), bytes: Vec::new() }))
    }

    fn create_if_absent(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.module.probe()?;
        let created = self.module.ask(|bucket| bucket.create(&self.key(name), bytes))?;
        Ok(created == Created::Own)
    }

    /// What a store has acknowledged is durable.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn info(&self, name: &str) -> io::Result<FileInfo> {
        let object = self.module.ask(|bucket| bucket.head(&self.key(name)))?;
        object.map(|object| info_of(&object)).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.module.ask(|bucket| bucket.delete(&self.key(name)))
    }

    fn hold(&self) -> io::Result<Box<dyn Held>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn map_unnamed(&self, _: &[u8]) -> io::Result<Mapped> {
        Err(ErrorKind::Unsupported.into())
    }
}

/// An object that was read.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl ReadAt for Bytes {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        let found = at.checked_add(bytes.len()).and_then(|end| self.0.get(at..end));
        bytes.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// An object that is being written.
struct SharedDraft {
    folder: SharedFolder,
    bytes: Vec<u8>,
}

impl Write for SharedDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Draft for SharedDraft {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn publish(self: Box<Self>, name: &str, _durable: bool) -> io::Result<()> {
        let Self { folder, bytes } = *self;
        folder.module.ask(|bucket| bucket.put(&folder.key(name), bytes))
    }

    fn create(self: Box<Self>, name: &str) -> io::Result<bool> {
        self.folder.create_if_absent(name, &self.bytes)
    }
}
