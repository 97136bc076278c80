//! The system on a disk that keeps what was synced and, if the power fails, little else.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::disk::{Disk, Event};
use crate::storage::held::Dir;
use crate::storage::{FileInfo, FileOperations, Stamp, System};

/// Takes its steps in a real directory and keeps a log of them, from which [`after`](Self::after) tells what was on the
/// disk at any time. Nothing is synced in truth, which only takes time.
///
#[derive(Clone)]
pub(crate) struct PowerLossDisk {
    root: Arc<Path>,
    log: Arc<Mutex<Log>>,
    before: Arc<dyn Fn() + Send + Sync>,
}

struct Log {
    start: Disk,
    events: Vec<Event>,
    files: usize,
    /// The number of the file that was created last with an inode: the system gives them again.
    numbers: HashMap<u64, usize>,
}

impl PowerLossDisk {
    /// A machine that has just started, with the directory `root` as its disk.
    pub(crate) fn new(root: &Path) -> Self {
        let start = Disk::read(root);
        let log = Log { files: start.files(), start, events: Vec::new(), numbers: HashMap::new() };
        let (log, root) = (Arc::new(Mutex::new(log)), root.into());
        Self { root, log, before: Arc::new(|| {}) }
    }

    /// Another process of this machine. It calls `before` before each of its steps.
    pub(crate) fn process(&self, before: impl Fn() + Send + Sync + 'static) -> Self {
        Self { before: Arc::new(before), ..self.clone() }
    }

    /// How many things have happened to the disk.
    pub(crate) fn events(&self) -> usize {
        self.log.lock().unwrap().events.len()
    }

    /// After which events a file has just got its name or lost it. Index runs do not count, which can be made again, nor
    /// temporary files, nor records of sessions.
    pub(crate) fn namings(&self) -> Vec<usize> {
        let log = self.log.lock().unwrap();
        let counts = |name: &OsStr| {
            let name = name.to_string_lossy();
            !name.starts_with("run-") && !name.starts_with("tmp-") && !name.ends_with(".txt")
        };
        (1..=log.events.len()).filter(|events| log.events[events - 1].name().is_some_and(counts)).collect()
    }

    /// The disk after so many events.
    pub(crate) fn after(&self, events: usize) -> Disk {
        let log = self.log.lock().unwrap();
        let mut disk = log.start.clone();
        log.events[..events].iter().for_each(|event| disk.apply(event));
        disk
    }

    /// The names of what has happened, for those who look for the reason of a failure.
    pub(crate) fn story(&self, events: usize) -> String {
        let log = self.log.lock().unwrap();
        let told = log.events[..events].iter().map(|event| match event {
            Event::Write(file, bytes) => format!("\n  Write({file}, {} bytes)", bytes.len()),
            other => format!("\n  {other:?}"),
        });
        told.collect()
    }

    /// The next step of this process: reads change nothing and are not logged.
    fn read<T>(&self, step: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        (self.before)();
        step()
    }

    /// The next step of this process, and what has happened if it succeeds. One process is at the disk at a time, so
    /// that the order of the log is the order of the steps.
    fn change<T>(
        &self,
        step: impl FnOnce() -> io::Result<T>,
        event: impl FnOnce(&mut Log, &T) -> Event,
    ) -> io::Result<T> {
        (self.before)();
        let mut log = self.log.lock().unwrap();
        let done = step()?;
        let event = event(&mut log, &done);
        log.push(event);
        Ok(done)
    }

    fn path(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).expect("the step stays on the disk").to_owned()
    }
}

impl Log {
    /// Bytes that are written one after the other are one event: what comes between them is nothing new.
    fn push(&mut self, event: Event) {
        match (self.events.last_mut(), event) {
            (Some(Event::Write(file, bytes)), Event::Write(same, more)) if *file == same => {
                bytes.extend(more);
            }
            (_, event) => self.events.push(event),
        }
    }

    fn number(&self, file: &File) -> usize {
        self.numbers[&file.metadata().unwrap().ino()]
    }
}

impl std::fmt::Debug for PowerLossDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PowerLossDisk")
    }
}

impl FileOperations for PowerLossDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.change(|| System.create_dir(path), |_, ()| Event::CreateDir(self.path(path)))
    }

    fn create_file(&self, path: &Path) -> io::Result<File> {
        self.change(
            || System.create_file(path),
            |log, file| {
                log.numbers.insert(file.metadata().unwrap().ino(), log.files);
                log.files += 1;
                Event::CreateFile(self.path(path))
            },
        )
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        let same = file.try_clone()?;
        self.change(
            || System.write(file, bytes),
            |log, written| Event::Write(log.number(&same), bytes[..*written].to_vec()),
        )
    }

    fn seal(&self, file: &File) -> io::Result<()> {
        self.read(|| System.seal(file))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.change(|| Ok(()), |log, ()| Event::Sync(log.number(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|| System.rename(from, to), |_, ()| Event::Rename(self.path(from), self.path(to)))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|| System.link(from, to), |_, ()| Event::Link(self.path(from), self.path(to)))
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        let step = || System.rename_no_replace(from, to);
        self.change(step, |_, ()| Event::Rename(self.path(from), self.path(to)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(|| System.remove(path), |_, ()| Event::Remove(self.path(path)))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if !path.starts_with(&self.root) {
            return self.read(|| Ok(()));
        }
        self.change(|| File::open(path).map(drop), |_, ()| Event::SyncDir(self.path(path)))
    }

    fn hold(&self, path: &Path) -> io::Result<Dir> {
        self.read(|| System.hold(path))
    }

    fn info_in(&self, dir: &Dir, path: &Path) -> io::Result<FileInfo> {
        self.read(|| System.info_in(dir, path))
    }

    fn remove_in(&self, dir: &Dir, path: &Path) -> io::Result<()> {
        self.change(|| System.remove_in(dir, path), |_, ()| Event::Remove(self.path(path)))
    }

    fn sync_held(&self, _: &Dir, path: &Path) -> io::Result<()> {
        self.change(|| Ok(()), |_, ()| Event::SyncDir(self.path(path)))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.read(|| System.list(path))
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        self.read(|| System.stamp(path))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.read(|| System.metadata(path))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.read(|| System.open(path))
    }

    fn read_at(&self, file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        System.read_at(file, bytes, at)
    }
}
