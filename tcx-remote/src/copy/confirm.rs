//! Whether the store still has the module of which a copy to it was made: sending may take hours, and an older copy may have come into place.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::files::change;
use super::{changes, local};
use crate::bucket::{Bucket, Created, Removed};

/// The changes of a directory by which the store is known, and what was sent.
pub(super) struct Copy<'a> {
    pub(super) dir: PathBuf,
    pub(super) bucket: &'a Bucket,
    pub(super) module: &'a str,
    /// The first change, the newest one that both sides had, and the newest of the directory, by their numbers. What the store has is
    /// compared with these bytes: the directory may be gone by then.
    history: BTreeMap<u64, Vec<u8>>,
    /// The files but for changes that were sent, each with its length.
    pub(super) sent: Vec<(String, u64)>,
    /// Those and others that may have arrived, though an error was the answer.
    pub(super) begun: Vec<String>,
    /// The changes that this copy has created, and the number after those that it has tried to.
    created: Range<u64>,
    tried: u64,
}

impl<'a> Copy<'a> {
    /// Both sides have `known` changes, and the directory has `here`.
    pub(super) fn new(
        dir: &Path,
        bucket: &'a Bucket,
        module: &'a str,
        known: u64,
        here: u64,
    ) -> io::Result<Self> {
        let ends = [Some(0), known.min(here).checked_sub(1), here.checked_sub(1)];
        let ends: BTreeSet<u64> = ends.into_iter().flatten().filter(|number| *number < here).collect();
        let read = |number| Ok((number, local::read(&dir.join(change(number)))?));
        let history = ends.into_iter().map(read).collect::<io::Result<_>>()?;
        Ok(Self {
            dir: dir.to_owned(),
            bucket,
            module,
            history,
            sent: Vec::new(),
            begun: Vec::new(),
            created: known..known,
            tried: known,
        })
    }

    /// Sends the changes that the store lacks, in their order: a process that finds one finds those before it. Returns how many bytes they
    /// have.
    pub(super) fn create(&mut self, numbers: Range<u64>) -> io::Result<u64> {
        let mut bytes = 0;
        for number in numbers {
            let own = local::read(&self.dir.join(change(number)))?;
            self.tried = number + 1;
            if let Created::Other(_) = self.bucket.create(&self.key(number), &own)? {
                return Err(changes::diverged(self.module, number));
            }
            self.created.end = self.tried;
            bytes += own.len() as u64;
        }
        Ok(bytes)
    }

    /// Makes sure that the store has the module. Otherwise what was sent is removed again: its bases would be the numbers of other changes.
    /// A change that was created behind a missing one would keep every process from writing, and is taken back, too.
    pub(super) fn confirm(&self) -> io::Result<()> {
        let Some(number) = self.first_other()? else { return Ok(()) };
        for name in &self.begun {
            // Best effort: the error that follows says that the module is another one.
            let _ = self.bucket.delete(&format!("{}/{name}", self.module));
        }
        self.take_back()?;
        Err(changes::diverged(self.module, number))
    }

    /// The first change that the store lacks, or has another one of.
    fn first_other(&self) -> io::Result<Option<u64>> {
        for (&number, own) in self.history.range(..self.created.end) {
            match self.read(number)? {
                Some(found) if found == *own => {}
                // One answer is not enough to remove something: a listing has to agree.
                None if self.listed()?.contains(&change(number)) => {
                    return Err(gone(self.bucket, self.module, &change(number)));
                }
                _ => return Ok(Some(number)),
            }
        }
        // An older copy may also have come between two of the changes that were created.
        if self.created.is_empty() { Ok(None) } else { self.first_missing(self.created.end) }
    }

    /// The first change before this number that neither a listing shows nor a read finds.
    fn first_missing(&self, end: u64) -> io::Result<Option<u64>> {
        let listed = self.listed()?;
        for number in (0..end).filter(|number| !listed.contains(&change(*number))) {
            if self.read(number)?.is_none() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Removes the changes that were created behind a missing one, the last first. No process has gone by them, since one finds them only
    /// after those before. Others stay: processes may have gone by them, and count on them. So does change 1: a process that creates the
    /// module again goes by it.
    fn take_back(&self) -> io::Result<()> {
        let Some(missing) = self.first_missing(self.tried)? else { return Ok(()) };
        let mut removed = Vec::new();
        let done = self.remove_behind(missing, &mut removed);
        // While a copy is being made of the module, the missing one may have come in between: a process may have gone by the others then.
        if !removed.is_empty() && self.read(missing)?.is_some() {
            self.create_again(removed)?;
        }
        done
    }

    /// Removes the changes of this copy behind a missing one, the last first, and notes them.
    fn remove_behind(&self, missing: u64, removed: &mut Vec<(u64, Vec<u8>)>) -> io::Result<()> {
        for number in (self.created.start.max(missing + 1).max(2)..self.tried).rev() {
            let own = local::read(&self.dir.join(change(number)))?;
            if self.read(number)?.is_none_or(|found| found != own) {
                removed.clear();
                continue;
            }
            // The answer from before may be old by now.
            if self.read(missing)?.is_some() {
                return Ok(());
            }
            let sent = self.bucket.remove(&self.key(number))?;
            // What would be behind a gap, or could be removed a second time, is not created again.
            match sent {
                Removed::ForGood => removed.push((number, own)),
                Removed::PerhapsAgain => removed.clear(),
            }
        }
        Ok(())
    }

    /// Creates removed changes again, the first one first, up to one of which another process has got the number.
    fn create_again(&self, removed: Vec<(u64, Vec<u8>)>) -> io::Result<()> {
        for (number, own) in removed.into_iter().rev() {
            if let Created::Other(_) = self.bucket.create(&self.key(number), &own)? {
                break;
            }
        }
        Ok(())
    }

    fn listed(&self) -> io::Result<BTreeSet<String>> {
        let found = self.bucket.list(self.module, None)?;
        Ok(found.into_iter().map(|object| object.name).collect())
    }

    fn read(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        self.bucket.read(&self.key(number), u64::MAX)
    }

    fn key(&self, number: u64) -> String {
        format!("{}/{}", self.module, change(number))
    }
}

pub(super) fn gone(bucket: &Bucket, module: &str, name: &str) -> io::Error {
    io::Error::new(ErrorKind::NotFound, format!("{}/{module}/{name} has vanished", bucket.url()))
}
