//! The folder while files are removed from it. Names of segments are never given twice, so each file is the one that was meant.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tcx_store::unstable::{FileInfo, Held};

use super::{Inner, info, info_of};
use crate::copy::files::{Kind, kind};
use crate::near::lock::{Attempt, WAIT_AT_MOST, lock_within};

pub(super) struct RemoteHeld {
    pub(super) folder: Arc<Inner>,
    /// The history that was known when it was held.
    pub(super) origin: Option<String>,
}

impl Held for RemoteHeld {
    /// What the store says: a segment that waits to be sent is not there.
    fn info(&self, name: &str) -> io::Result<FileInfo> {
        match kind(name) {
            Some(Kind::Run) | None => self.folder.local_info(name),
            Some(_) => {
                let object = self.folder.ask(|bucket| bucket.head(&self.folder.key(name)))?;
                object.map(|object| info_of(&object)).ok_or_else(|| ErrorKind::NotFound.into())
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name, self.origin.as_deref())
    }
}

impl Inner {
    pub(super) fn local_info(&self, name: &str) -> io::Result<FileInfo> {
        let metadata = fs::symlink_metadata(self.near.file(name))?;
        Ok(info(metadata.len(), metadata.modified()?, None))
    }

    /// Removes a file wherever it is. What waits to be sent first: it must not come back.
    ///
    /// # Errors
    ///
    /// Returns an error if a process sends the segment all the time, if the store has not the module of this history any more, or if a file or
    /// object cannot be removed.
    pub(super) fn remove(&self, name: &str, origin: Option<&str>) -> io::Result<()> {
        self.remove_within(name, origin, WAIT_AT_MOST)
    }

    /// As [`remove`](Self::remove), which waits for a process that sends the segment at most so long.
    pub(super) fn remove_within(
        &self,
        name: &str,
        origin: Option<&str>,
        longest: Duration,
    ) -> io::Result<()> {
        let is_segment = kind(name) == Some(Kind::Segment);
        let alone = if is_segment { Some(lock_within(&self.lock_of(name)?, longest)?) } else { None };
        if matches!(alone, Some(Attempt::Busy)) {
            // The upload under way would bring it back.
            let what = format!("another process sends or receives {name}: try again later");
            return Err(io::Error::new(ErrorKind::ResourceBusy, what));
        }
        // Last: an older copy, in which the segment is alive, may have taken the place of the module at any time before.
        if let Some(origin) = origin.filter(|_| is_segment)
            && !self.has_origin_now(origin)?
        {
            let what =
                format!("another module has taken the place of that from which {name} was to be removed");
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        // In one step with what a flush looks at: the segment has not vanished, it was removed.
        self.state(|state| {
            let waiting = self.near.find_spooled(name);
            if waiting.is_some() && !state.own.contains(name) {
                // The process whose rows they are flushes in vain, too.
                self.near.note_departure(name);
            }
            waiting.map_or(Ok(()), |waiting| remove(&waiting))?;
            state.own.remove(name);
            io::Result::Ok(())
        })??;
        if let Some(Kind::Segment | Kind::Change(_) | Kind::Merged(_)) = kind(name) {
            let removed = self.ask(|bucket| bucket.delete(&self.key(name)));
            self.wrote()?;
            removed?;
        }
        remove(&self.near.file(name))?;
        self.budget.changed();
        Ok(())
    }
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
