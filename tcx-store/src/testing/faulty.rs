//! The system with faults: chosen steps of its many fail.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::storage::held::Dir;
use crate::storage::{FileInfo, FileOperations, Stamp, System};

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does not happen.
    Refused(io::ErrorKind),
    /// It happens, and the answer is an error all the same.
    LostReply,
    /// Of what was written, only a half arrives.
    ShortWrite,
    /// Of what was to be read, only a half arrives.
    ShortRead,
    /// There is nothing to read: the file has become shorter.
    EndOfFile,
    /// A byte that was read is another one.
    Misread,
}

/// Which steps fail: by their number, what they do, and to which file.
type Rule = dyn Fn(usize, &str, &Path) -> Option<Fault> + Send + Sync;

/// Fails the steps that a rule names, and remembers those that happened.
#[derive(Clone)]
pub(crate) struct Faulty {
    rule: Arc<Rule>,
    steps: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    happened: Arc<Mutex<Vec<(&'static str, PathBuf)>>>,
}

impl Faulty {
    /// Fails the steps whose numbers, counted from 0, are in a range.
    pub(crate) fn new(fault: Fault, fail: std::ops::Range<usize>) -> Self {
        Self::with(move |number, _, _| fail.contains(&number).then_some(fault))
    }

    pub(crate) fn with(rule: impl Fn(usize, &str, &Path) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self { rule: Arc::new(rule), steps: Arc::default(), failed: Arc::default(), happened: Arc::default() }
    }

    /// Whether a step has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst) > 0
    }

    /// Whether this step has happened to this file.
    pub(crate) fn has_happened(&self, step: &str, path: &Path) -> bool {
        self.happened.lock().unwrap().iter().any(|(own, file)| *own == step && file == path)
    }

    fn fault(&self, step: &str, path: &Path) -> Option<Fault> {
        let fault = (self.rule)(self.steps.fetch_add(1, Ordering::SeqCst), step, path)?;
        self.failed.fetch_add(1, Ordering::SeqCst);
        Some(fault)
    }

    fn step<T>(
        &self,
        step: &'static str,
        path: &Path,
        happen: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let fault = self.fault(step, path);
        if let Some(Fault::Refused(kind)) = fault {
            return Err(kind.into());
        }
        let done = happen()?;
        self.happened.lock().unwrap().push((step, path.to_owned()));
        if fault == Some(Fault::LostReply) { Err(io::Error::other("the reply was lost")) } else { Ok(done) }
    }
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

/// Operations that work on an open file have no path.
const OPEN_FILE: &str = "";

impl FileOperations for Faulty {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step("create_dir", path, || System.create_dir(path))
    }

    fn create_file(&self, path: &Path) -> io::Result<File> {
        self.step("create_file", path, || System.create_file(path))
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        match self.fault("write", Path::new(OPEN_FILE)) {
            Some(Fault::ShortWrite) => System.write(file, &bytes[..bytes.len().div_ceil(2)]),
            Some(Fault::Refused(kind)) => Err(kind.into()),
            Some(Fault::LostReply) => {
                System.write(file, bytes).and(Err(io::Error::other("the reply was lost")))
            }
            _ => System.write(file, bytes),
        }
    }

    fn seal(&self, file: &File) -> io::Result<()> {
        self.step("seal", Path::new(OPEN_FILE), || System.seal(file))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step("sync", Path::new(OPEN_FILE), || System.sync(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename", to, || System.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("link", to, || System.link(from, to))
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename_no_replace", to, || System.rename_no_replace(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step("remove", path, || System.remove(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step("sync_dir", path, || System.sync_dir(path))
    }

    fn hold(&self, path: &Path) -> io::Result<Dir> {
        self.step("hold", path, || System.hold(path))
    }

    fn info_in(&self, dir: &Dir, path: &Path) -> io::Result<FileInfo> {
        self.step("metadata", path, || System.info_in(dir, path))
    }

    fn remove_in(&self, dir: &Dir, path: &Path) -> io::Result<()> {
        self.step("remove", path, || System.remove_in(dir, path))
    }

    fn sync_held(&self, dir: &Dir, path: &Path) -> io::Result<()> {
        self.step("sync_dir", path, || System.sync_held(dir, path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.step("list", path, || System.list(path))
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        self.step("stamp", path, || System.stamp(path))
    }

    fn metadata(&self, path: &Path) -> io::Result<std::fs::Metadata> {
        self.step("metadata", path, || System.metadata(path))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.step("open", path, || System.open(path))
    }

    fn read_at(&self, file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let (step, path) = ("read_at", Path::new(OPEN_FILE));
        match self.fault(step, path) {
            Some(Fault::Refused(kind)) => Err(kind.into()),
            Some(Fault::EndOfFile) => Ok(0),
            Some(Fault::ShortRead) => {
                let half = bytes.len().div_ceil(2);
                System.read_at(file, &mut bytes[..half], at)
            }
            fault => {
                let read = System.read_at(file, bytes, at)?;
                self.happened.lock().unwrap().push((step, path.to_owned()));
                match fault {
                    Some(Fault::Misread) => bytes[0] ^= 1,
                    Some(Fault::LostReply) => return Err(io::Error::other("the reply was lost")),
                    _ => {}
                }
                Ok(read)
            }
        }
    }
}
