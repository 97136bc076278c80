//! Folders that are in the memory of this process, and nowhere else.
//!
//! No lock is held at any time: a child of `fork` reads the folders as they were at the fork, whatever other threads of its parent
//! were changing then. What one of the two changes later, the other does not see.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;

use super::{Draft, FileInfo, Held, Stamp, Storage};
use crate::sys::aligned_bytes::AlignedBytes;
use crate::sys::mmap::Mapped;
use crate::sys::runtime;

/// What messages call the place of all folders in memory. No directory has this path.
pub(crate) const IN_MEMORY: &str = "memory://";

/// A folder in memory. Clones are the same folder.
#[derive(Clone, Debug)]
pub(crate) struct MemoryStorage {
    path: PathBuf,
    contents: Arc<ArcSwap<Contents>>,
}

/// What a folder holds at a moment.
#[derive(Clone, Debug)]
struct Contents {
    /// A folder is found only once it was made.
    is_made: bool,
    files: BTreeMap<Arc<str>, MemoryFile>,
    folders: BTreeMap<Arc<str>, MemoryStorage>,
    modified: SystemTime,
    /// How often it was changed: no two states have the same stamp.
    changes: u64,
}

#[derive(Clone, Debug)]
struct MemoryFile {
    bytes: Arc<AlignedBytes>,
    /// The stamp of the folder when the file came.
    stamp: Stamp,
}

impl Contents {
    fn stamp(&self) -> Stamp {
        Stamp { modified: self.modified, inode: self.changes }
    }

    fn file(&self, name: &str) -> io::Result<&MemoryFile> {
        self.files.get(name).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn info(&self, name: &str) -> io::Result<FileInfo> {
        let MemoryFile { bytes, stamp } = self.file(name)?;
        let age = runtime::wall().duration_since(stamp.modified).unwrap_or_default();
        Ok(FileInfo { bytes: bytes.len() as u64, age, stamp: *stamp })
    }

    fn add(&mut self, name: &str, bytes: &Arc<AlignedBytes>) {
        let file = MemoryFile { bytes: bytes.clone(), stamp: self.stamp() };
        self.files.insert(name.into(), file);
    }
}

impl MemoryStorage {
    /// The place of all folders of one cache.
    pub(crate) fn root() -> Self {
        Self::at(PathBuf::from(IN_MEMORY))
    }

    fn at(path: PathBuf) -> Self {
        let (files, folders) = (BTreeMap::new(), BTreeMap::new());
        let contents = Contents { is_made: false, files, folders, modified: runtime::wall(), changes: 0 };
        Self { path, contents: Arc::new(ArcSwap::from_pointee(contents)) }
    }

    /// The folder `name` in this one, which may still have to be made.
    pub(crate) fn child(&self, name: &str) -> Self {
        if let Some(child) = self.contents.load().folders.get(name) {
            return child.clone();
        }
        let new = Self::at(self.path.join(name));
        self.change(|contents| contents.folders.entry(name.into()).or_insert_with(|| new.clone()).clone())
    }

    /// Changes the folder at once. `happen` is called again if another thread was faster.
    fn change<T>(&self, mut happen: impl FnMut(&mut Contents) -> T) -> T {
        loop {
            let before = self.contents.load_full();
            let mut after = (*before).clone();
            (after.modified, after.changes) = (runtime::wall(), before.changes + 1);
            let done = happen(&mut after);
            let found = self.contents.compare_and_swap(&before, Arc::new(after));
            if Arc::ptr_eq(&found, &before) {
                return done;
            }
        }
    }
}

impl Storage for MemoryStorage {
    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.contents.load().files.keys().map(|name| (**name).to_owned()).collect())
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        let contents = self.contents.load();
        Ok(contents.is_made.then(|| contents.stamp()))
    }

    fn map(&self, name: &str) -> io::Result<Mapped> {
        Ok(Mapped::shared(self.contents.load().file(name)?.bytes.clone()))
    }

    fn make(&self) -> io::Result<()> {
        self.change(|contents| contents.is_made = true);
        Ok(())
    }

    fn draft(&self) -> io::Result<Box<dyn Draft>> {
        if !self.contents.load().is_made {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(Box::new(MemoryDraft { folder: self.clone(), bytes: AlignedBytes::default() }))
    }

    fn sync(&self) -> io::Result<()> {
        if self.contents.load().is_made { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
    }

    fn info(&self, name: &str) -> io::Result<FileInfo> {
        self.contents.load().info(name)
    }

    fn is_in_memory(&self) -> bool {
        true
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(|contents| drop(contents.files.remove(name)));
        Ok(())
    }

    fn hold(&self) -> io::Result<Box<dyn Held>> {
        self.sync()?;
        Ok(Box::new(MemoryHeld(self.clone())))
    }

    fn folder(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        self.sync()?;
        let folder = self.child(name);
        folder.make()?;
        Ok(Box::new(folder))
    }

    fn existing_folder(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        let folder = self.contents.load().folders.get(name).cloned().ok_or(ErrorKind::NotFound)?;
        folder.sync()?;
        Ok(Box::new(folder))
    }

    fn map_unnamed(&self, bytes: &[u8]) -> io::Result<Mapped> {
        Ok(Mapped::shared(Arc::new(AlignedBytes::copied(bytes)?)))
    }
}

/// A folder that no other one ever takes the place of.
struct MemoryHeld(MemoryStorage);

impl Held for MemoryHeld {
    fn info(&self, name: &str) -> io::Result<FileInfo> {
        self.0.info(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
}

/// A file without a name, which no listing shows.
struct MemoryDraft {
    folder: MemoryStorage,
    bytes: AlignedBytes,
}

impl Write for MemoryDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Draft for MemoryDraft {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn publish(self: Box<Self>, name: &str, _durable: bool) -> io::Result<()> {
        let bytes = Arc::new(self.bytes.finish());
        self.folder.change(|contents| contents.add(name, &bytes));
        Ok(())
    }

    fn create(self: Box<Self>, name: &str) -> io::Result<bool> {
        let bytes = Arc::new(self.bytes.finish());
        Ok(self.folder.change(|contents| {
            let is_absent = !contents.files.contains_key(name);
            if is_absent {
                contents.add(name, &bytes);
            }
            is_absent
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> MemoryStorage {
        let folder = MemoryStorage::root().child("m_v1");
        folder.make().unwrap();
        folder
    }

    fn publish(folder: &MemoryStorage, name: &str, bytes: &[u8]) {
        let mut draft = folder.draft().unwrap();
        draft.write_all(bytes).unwrap();
        draft.publish(name, true).unwrap();
    }

    #[test]
    fn a_lookup_maps_the_bytes_of_a_file_without_a_copy() {
        let folder = made();
        publish(&folder, "a", &vec![7; 100_000]);
        let (one, other) = (folder.map("a").unwrap(), folder.map("a").unwrap());
        assert!(one.as_ptr() == other.as_ptr() && one.as_ptr().addr().is_multiple_of(64));
        folder.remove("a").unwrap();
        assert_eq!(folder.map("a").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(one.iter().all(|&byte| byte == 7), "what is mapped outlives its file");
    }

    #[test]
    fn a_folder_is_found_once_it_is_made_and_its_stamp_changes_with_each_file() {
        let folder = MemoryStorage::root().child("m_v1");
        assert_eq!(folder.stamp().unwrap(), None);
        assert_eq!(folder.draft().err().unwrap().kind(), ErrorKind::NotFound);
        folder.existing_folder("sessions").unwrap_err();
        folder.make().unwrap();
        let before = folder.stamp().unwrap();
        publish(&folder, "a", b"1");
        assert_ne!(folder.stamp().unwrap(), before);
        assert_eq!(folder.list().unwrap(), ["a"]);
        assert_eq!(folder.info("a").unwrap().bytes, 1);
        folder.folder("sessions").unwrap();
        folder.existing_folder("sessions").unwrap();
        assert_eq!(folder.list().unwrap(), ["a"], "folders are no files");
    }

    #[test]
    fn of_threads_that_create_one_name_exactly_one_does() {
        let folder = made();
        let created = std::thread::scope(|scope| {
            let create = |number: u8| {
                let folder = &folder;
                scope.spawn(move || folder.create_if_absent("change", &[number]).unwrap())
            };
            let threads: Vec<_> = (0..8).map(create).collect();
            threads.into_iter().map(|own| own.join().unwrap()).filter(|own| *own).count()
        });
        assert_eq!(created, 1);
        assert_eq!(folder.map("change").unwrap().len(), 1);
    }

    #[test]
    fn caches_in_memory_share_nothing() {
        let (one, other) = (MemoryStorage::root(), MemoryStorage::root());
        one.child("m_v1").make().unwrap();
        assert!(one.child("m_v1").stamp().unwrap().is_some());
        assert_eq!(other.child("m_v1").stamp().unwrap(), None);
    }
}
