//! The system with faults: one step of its many fails.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::steps::{Stamp, Steps, System};

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does not happen.
    Refused(io::ErrorKind),
    /// It happens, and the answer is an error all the same.
    LostReply,
    /// Of what was written, only a half arrives.
    ShortWrite,
}

/// Fails step number `fail_at`, counted from 0, and those after it that `last` includes.
#[derive(Clone, Debug)]
pub(crate) struct Faulty {
    fault: Fault,
    steps: Arc<AtomicUsize>,
    fail: std::ops::Range<usize>,
}

impl Faulty {
    pub(crate) fn new(fault: Fault, fail: std::ops::Range<usize>) -> Self {
        Self { fault, steps: Arc::default(), fail }
    }

    /// Whether the steps got as far as those that fail.
    pub(crate) fn has_failed(&self) -> bool {
        self.steps.load(Ordering::SeqCst) > self.fail.start
    }

    fn step<T>(&self, happen: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !self.fail.contains(&self.steps.fetch_add(1, Ordering::SeqCst)) {
            return happen();
        }
        match self.fault {
            Fault::Refused(kind) => Err(kind.into()),
            Fault::LostReply => happen().and_then(|_| Err(io::Error::other("the reply was lost"))),
            Fault::ShortWrite => happen(),
        }
    }
}

impl Steps for Faulty {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step(|| System.create_dir(path))
    }

    fn create_file(&self, path: &Path) -> io::Result<File> {
        self.step(|| System.create_file(path))
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        let fails = self.fail.contains(&self.steps.load(Ordering::SeqCst));
        let part =
            if fails && self.fault == Fault::ShortWrite { bytes.len().div_ceil(2) } else { bytes.len() };
        self.step(|| System.write(file, &bytes[..part]))
    }

    fn seal(&self, file: &File) -> io::Result<()> {
        self.step(|| System.seal(file))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step(|| System.sync(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|| System.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|| System.link(from, to))
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|| System.rename_no_replace(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step(|| System.remove(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step(|| System.sync_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.step(|| System.list(path))
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        self.step(|| System.stamp(path))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.step(|| System.open(path))
    }
}
