//! A directory of a file system.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::held::LocalHeld;
use super::operations::{FileOperations, Stamp};
use super::remote::is_remote;
use super::sealed::{LocalFile, MappedFile, ReadAt, Sealed};
use super::{DAMAGED, Draft, FileInfo, Held, Storage};
use crate::options::ReadMode;
use crate::storage::name::FileName;
use crate::sys::bytes::Random;
use crate::sys::mmap::Mapped;

/// A directory. It is created for the first file, change 0, and for no other; a [folder](Storage::folder) in one never is.
#[derive(Debug)]
pub(crate) struct LocalStorage<S> {
    dir: PathBuf,
    steps: S,
    /// Whether this process has made sure that the directory itself can be found after a power loss.
    named: AtomicBool,
    /// Whether files are read instead of mapped.
    reads: bool,
    /// Whether the directory may be made, and its name has to be durable.
    makes: bool,
}

impl<S: FileOperations + Clone> LocalStorage<S> {
    pub(crate) fn new(dir: PathBuf, steps: S) -> Self {
        Self { dir, steps, named: AtomicBool::new(false), reads: false, makes: true }
    }

    /// Reads files in this way.
    pub(crate) fn reading(self, mode: ReadMode) -> Self {
        let reads = match mode {
            ReadMode::Map => false,
            ReadMode::Pread => true,
            ReadMode::Auto => is_remote(&self.dir),
        };
        Self { reads, ..self }
    }

    fn create_draft(&self) -> io::Result<LocalDraft<S>> {
        let path = self.dir.join(FileName::Temporary(Random::new()).to_string());
        if self.makes && !self.named.load(Ordering::Acquire) {
            self.name_dir(false)?;
        }
        let file = self.steps.create_file(&path).inspect_err(|error| {
            if error.kind() == ErrorKind::NotFound {
                // It was removed: another that is made in its place has a name of its own.
                self.named.store(false, Ordering::Release);
            }
        })?;
        let (dir, steps) = (self.dir.clone(), self.steps.clone());
        Ok(LocalDraft { dir, path: Some(path), file, is_synced: false, steps })
    }

    /// Makes the names of the directory and of the cache that holds it durable: the process that created them may not have come to
    /// that. Where `makes`, what is missing is created; else it is an error.
    fn name_dir(&self, makes: bool) -> io::Result<()> {
        self.named.store(false, Ordering::Release);
        self.name_dirs(&self.dir, makes)?;
        if let Some(cache) = self.dir.parent() {
            self.sync_name(cache, true)?;
        }
        self.named.store(true, Ordering::Release);
        Ok(())
    }

    /// Nothing is created in a directory before its name is durable, so that a process that finds one can rely on those above it.
    fn name_dirs(&self, dir: &Path, makes: bool) -> io::Result<()> {
        match self.steps.stamp(dir) {
            Err(error) if makes && error.kind() == ErrorKind::NotFound => {}
            found => return found.and_then(|_| self.sync_name(dir, true)),
        }
        if let Some(parent) = dir.parent().filter(|parent| *parent != Path::new("")) {
            self.name_dirs(parent, makes)?;
        }
        match self.steps.create_dir(dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => self.sync_name(dir, true),
            created => created.and_then(|()| self.sync_name(dir, false)),
        }
    }

    /// Syncs the directory that holds the name of `dir`. Where `existed`, it may be one that we must not read, or one of
    /// a file system that knows no sync of directories, `dir` being mounted there: then it is not one that we have changed.
    fn sync_name(&self, dir: &Path, existed: bool) -> io::Result<()> {
        let parent = dir.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        match self.steps.sync_dir(parent) {
            Err(error) if existed && is_of_another(&error) => Ok(()),
            other => other,
        }
    }
}

impl<S: FileOperations + Clone> Storage for LocalStorage<S> {
    fn path(&self) -> &Path {
        &self.dir
    }

    fn list(&self) -> io::Result<Vec<String>> {
        match self.steps.list(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            other => other,
        }
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        match self.steps.stamp(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    fn map(&self, name: &str) -> io::Result<Mapped> {
        let path = self.dir.join(name);
        if !self.reads {
            return Mapped::new(&self.steps.open(&path)?);
        }
        // What is mapped is a copy that no other process can remove.
        self.map_unnamed(&LocalFile::open(path, self.steps.clone())?.all()?)
    }

    fn open(&self, name: &str) -> io::Result<Sealed> {
        if !self.reads {
            return self.map(name).map(Sealed::Mapped);
        }
        let file = LocalFile::open(self.dir.join(name), self.steps.clone())?;
        Ok(Sealed::Read(Box::new(file)))
    }

    fn beside(&self, name: &str, map: &Mapped) -> io::Result<Option<Box<dyn ReadAt>>> {
        let file = self.steps.open(&self.dir.join(name))?;
        Ok(if map.is_of(&file)? { Some(Box::new(MappedFile::new(self.steps.clone(), file))) } else { None })
    }

    fn make(&self) -> io::Result<()> {
        match self.steps.stamp(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.name_dir(true),
            found => found.map(drop),
        }
    }

    fn draft(&self) -> io::Result<Box<dyn Draft>> {
        Ok(Box::new(self.create_draft()?))
    }

    fn sync(&self) -> io::Result<()> {
        self.steps.sync_dir(&self.dir)
    }

    fn info(&self, name: &str) -> io::Result<FileInfo> {
        FileInfo::of(&self.steps.metadata(&self.dir.join(name))?)
    }

    fn is_remote(&self) -> bool {
        is_remote(&self.dir)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match self.steps.remove(&self.dir.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn set_aside(&self, name: &str) -> io::Result<()> {
        let aside = self.dir.join(DAMAGED);
        match self.steps.create_dir(&aside) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if !self.steps.metadata(&aside)?.is_dir() {
            return Err(io::Error::other(format!("`{DAMAGED}` is not a folder: move it away")));
        }
        self.steps.rename(&self.dir.join(name), &aside.join(name))?;
        // In this order the file is somewhere after a power loss.
        self.steps.sync_dir(&aside)?;
        self.steps.sync_dir(&self.dir)
    }

    fn hold(&self) -> io::Result<Box<dyn Held>> {
        Ok(Box::new(LocalHeld::open(self.dir.clone(), self.steps.clone())?))
    }

    fn folder(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        match self.steps.create_dir(&self.dir.join(name)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => self.existing_folder(name),
        }
    }

    fn existing_folder(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        let dir = self.dir.join(name);
        // A link could lead out of the cache.
        if !self.steps.metadata(&dir)?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(Box::new(Self { makes: false, reads: self.reads, ..Self::new(dir, self.steps.clone()) }))
    }

    fn map_unnamed(&self, bytes: &[u8]) -> io::Result<Mapped> {
        let file = || {
            let mut file = tempfile::tempfile()?;
            file.write_all(bytes)?;
            file.rewind()?;
            Mapped::new(&file)
        };
        // A temporary directory that is full or not there says nothing of the bytes.
        file().or_else(|_: io::Error| Mapped::copied(bytes))
    }
}

fn is_of_another(error: &io::Error) -> bool {
    use ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported | ReadOnlyFilesystem)
}

/// A file under its temporary name.
struct LocalDraft<S: FileOperations> {
    dir: PathBuf,
    /// `None` once the file has its name.
    path: Option<PathBuf>,
    file: File,
    /// Whether what was written is durable.
    is_synced: bool,
    steps: S,
}

impl<S: FileOperations> LocalDraft<S> {
    fn sealed_path(&self) -> io::Result<&Path> {
        // A courtesy to the careless; some network file systems refuse it.
        let _ = self.steps.seal(&self.file);
        self.path.as_deref().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl<S: FileOperations> Write for LocalDraft<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_synced = false;
        self.steps.write(&mut self.file, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: FileOperations> Draft for LocalDraft<S> {
    fn sync(&mut self) -> io::Result<()> {
        self.steps.sync(&self.file)?;
        self.is_synced = true;
        Ok(())
    }

    fn publish(mut self: Box<Self>, name: &str, durable: bool) -> io::Result<()> {
        if durable && !self.is_synced {
            self.sync()?;
        }
        self.steps.rename(self.sealed_path()?, &self.dir.join(name))?;
        self.path = None;
        if durable { self.steps.sync_dir(&self.dir) } else { Ok(()) }
    }

    fn create(mut self: Box<Self>, name: &str) -> io::Result<bool> {
        let target = self.dir.join(name);
        self.steps.sync(&self.file)?;
        let path = self.sealed_path()?;
        let linked = match self.steps.link(path, &target) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists && error.kind() != ErrorKind::NotFound => {
                let renamed = self.steps.rename_no_replace(path, &target);
                if renamed.is_ok() {
                    self.path = None;
                }
                renamed
            }
            other => other,
        };
        match linked {
            Ok(()) => self.steps.sync_dir(&self.dir).map(|()| true),
            // The name may be in the directory without being durable there: a process that relies on it syncs.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.steps.sync_dir(&self.dir).map(|()| false)
            }
            Err(error) => Err(error),
        }
    }
}

impl<S: FileOperations> Drop for LocalDraft<S> {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // What cannot be removed now is an orphan, which no process reads.
            let _ = self.steps.remove(path);
        }
    }
}
