//! Where the files of a module live. Everything above speaks to [`Storage`] only: [`LocalStorage`] is a directory of a file system,
//! [`MemoryStorage`] is in memory, and the crate `tcx-remote` has one of an object store.

pub(crate) mod held;
mod local;
pub(crate) mod memory;
pub(crate) mod name;
mod operations;
mod read_only;
mod remote;
mod sealed;
pub(crate) mod url;
pub(crate) mod warn_once;

use std::fmt;
use std::fs::Metadata;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(crate) use local::LocalStorage;
pub(crate) use memory::MemoryStorage;
pub use operations::Stamp;
pub(crate) use operations::{FileOperations, System};
pub(crate) use read_only::ReadOnlyStorage;
pub use sealed::{Parts, ReadAt, Sealed};

use crate::stats::traffic::Traffic;
use crate::sys::mmap::Mapped;
use crate::sys::runtime;

/// The folder of files that were [set aside](Storage::set_aside).
pub(crate) const DAMAGED: &str = "damaged";

/// Temporary files of this age are those of killed processes; a living one whose file was taken away writes it again.
pub(crate) const TEMPORARY_FILES_STAY: Duration = Duration::from_hours(24);

/// A file that looks damaged and is younger may be complete in a moment: someone copies it, or a network file system shows a part of it.
pub(crate) const COMPLETE_AFTER: Duration = Duration::from_mins(1);

/// An older file that looks damaged may have been misread: it is damaged if it still looks so after this time.
pub(crate) const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Whether a file that this process has known to look damaged `since` then may be sound at the next look.
pub(crate) fn may_be_sound(storage: &dyn Storage, name: &str, since: Instant) -> bool {
    let known = runtime::now().duration_since(since);
    match storage.info(name) {
        // A date in the future says nothing, and must not do so until it has come.
        Ok(found) if found.age.is_zero() => known < COMPLETE_AFTER,
        Ok(found) => found.is_new() || known < LOOK_AGAIN_AFTER,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// One folder of immutable files.
pub trait Storage: Send + Sync + fmt::Debug {
    /// What error messages call the folder.
    fn path(&self) -> &Path;

    /// The names of all files; none if the folder does not exist.
    fn list(&self) -> io::Result<Vec<String>>;

    /// When the folder last changed, as coarsely as the file system records it; `None` if it does not exist.
    fn stamp(&self) -> io::Result<Option<Stamp>>;

    /// All bytes of a sealed file, available whatever becomes of the file.
    fn map(&self, name: &str) -> io::Result<Mapped>;

    /// A sealed file of which only parts may be wanted.
    fn open(&self, name: &str) -> io::Result<Sealed> {
        self.map(name).map(Sealed::Mapped)
    }

    /// Whether a sealed file is in the folder. A copy of it on this machine says nothing: others may have removed the file.
    ///
    /// # Errors
    ///
    /// Returns an error if that is not known: nothing may be concluded from it.
    fn is_there(&self, name: &str) -> io::Result<bool> {
        match self.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            opened => opened.map(|_| true),
        }
    }

    /// Whether all bytes of a sealed file are on this machine now, where that may change: then the file is opened in another way than
    /// before. `None` where it does not change.
    fn is_here(&self, name: &str) -> Option<bool> {
        let _ = name;
        None
    }

    /// Another value once a file has come to this machine, or has left it, where that may [change](Self::is_here).
    fn moves(&self) -> Option<Stamp> {
        None
    }

    /// Reads parts of [far](ReadAt::is_far) files, at the same time as far as that is possible. Returns what became of each part of each
    /// file, in this order.
    fn read_parts(&self, wanted: &[Parts]) -> Vec<Vec<io::Result<Vec<u8>>>> {
        let unsupported =
            |parts: &Parts| parts.ranges.iter().map(|_| Err(io::ErrorKind::Unsupported.into())).collect();
        wanted.iter().map(unsupported).collect()
    }

    /// Reads a part of a file, to find out whether the disk can give it: reading such a page of a mapped file would end the process. Where
    /// no file is verified in place, this does nothing.
    ///
    /// # Errors
    ///
    /// Returns the error of the disk.
    fn read_through(&self, name: &str, part: Range<usize>) -> io::Result<()> {
        let _ = (name, part);
        Ok(())
    }

    /// The file of this name, to be read beside the map of it; `None` if it is not the one that is mapped, or not in a file system.
    fn beside(&self, name: &str, map: &Mapped) -> io::Result<Option<Box<dyn ReadAt>>> {
        let _ = (name, map);
        Ok(None)
    }

    /// Makes the folder, durably, if it does not exist.
    fn make(&self) -> io::Result<()>;

    /// A new file that has no name yet, in the folder that is there: one that was removed is not made again.
    fn draft(&self) -> io::Result<Box<dyn Draft>>;

    /// Creates `name` with these bytes, durably, unless it exists: then nothing changes and this is `false`.
    fn create_if_absent(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        let mut draft = self.draft()?;
        draft.write_all(bytes)?;
        draft.create(name)
    }

    /// Makes every name in the folder durable, also those that others have given.
    fn sync(&self) -> io::Result<()>;

    /// What the file system says of a file.
    fn info(&self, name: &str) -> io::Result<FileInfo>;

    /// Whether other machines may read the files: one that is removed is gone from under them.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether the files are in the memory of this process, and nowhere else.
    fn is_in_memory(&self) -> bool {
        false
    }

    /// Removes a file. One that is not there is no error.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Moves a damaged file out of the folder, durably, into one in it that is made for such files.
    fn set_aside(&self, name: &str) -> io::Result<()> {
        let _ = name;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Holds the folder that is there now.
    fn hold(&self) -> io::Result<Box<dyn Held>>;

    /// The folder `name` in this one, made if this one is there. A folder that is gone by then is not made again by what is written to it.
    fn folder(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        let _ = name;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The folder `name` in this one, if it exists.
    fn existing_folder(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        let _ = name;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes `bytes` readable without leaving anything in the folder, for folders that cannot be written.
    fn map_unnamed(&self, bytes: &[u8]) -> io::Result<Mapped>;

    /// Whether the files are on another machine that could not be reached a moment ago. Until it can be, segments that are published
    /// wait on this one, and a folder that is known is taken for the same.
    fn is_away(&self) -> bool {
        false
    }

    /// A caller waits for the files of other machines: the next request is made, however lately one has failed.
    fn try_now(&self) {}

    /// Brings files that wait on this machine to where they belong.
    ///
    /// # Errors
    ///
    /// Returns an error if some still wait.
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    /// A file does not verify as it was read: if that was a copy, it is not used again.
    fn distrust(&self, name: &str) {
        let _ = name;
    }

    /// `Some` if a listing costs money and time, and no stamp says whether it would show anything new: the folder is listed so often, and
    /// when a caller wants it.
    fn list_every(&self) -> Option<Duration> {
        None
    }

    /// A listing and comparisons with known changes follow on this thread, up to the end of the listing: one look at another machine may
    /// serve all of them.
    fn look_ahead(&self) {}

    /// What was asked of another machine since the folder was opened.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

/// One folder, by itself and not by its path: what is done in it happens there, whatever comes in its place.
pub trait Held {
    /// What the file system says of a file.
    fn info(&self, name: &str) -> io::Result<FileInfo>;

    /// Makes every name in the folder durable, also those that others have given.
    fn sync(&self) -> io::Result<()>;

    /// Removes a file. One that is not there is no error.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// The files of a directory of this machine, which is not made.
pub fn directory(dir: PathBuf) -> Arc<dyn Storage> {
    Arc::new(LocalStorage::new(dir, System))
}

/// What a file system says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its length.
    pub bytes: u64,
    /// How long ago it was written, by the clock of the file system.
    pub age: Duration,
    /// When it was last changed, and which file it is.
    pub stamp: Stamp,
}

impl FileInfo {
    /// Whether the file may not be complete yet.
    fn is_new(&self) -> bool {
        self.age < COMPLETE_AFTER
    }

    fn of(metadata: &Metadata) -> io::Result<Self> {
        let stamp = Stamp::of(metadata)?;
        // A file from the future is new.
        let age = SystemTime::now().duration_since(stamp.modified).unwrap_or_default();
        Ok(Self { bytes: metadata.len(), age, stamp })
    }
}

/// A file that is being written. Dropped before it has a name, it is removed.
pub trait Draft: Write + Send {
    /// Makes what was written durable, so that only the name is left to give.
    fn sync(&mut self) -> io::Result<()>;

    /// Gives the file its name, by which others find it whole.
    ///
    /// A durable file and its name survive a power loss once this has returned. After an error the draft is
    /// spent: what it held is written to a new one.
    fn publish(self: Box<Self>, name: &str, durable: bool) -> io::Result<()>;

    /// Gives the file its name, durably, unless that exists: then nothing changes and this is `false`.
    fn create(self: Box<Self>, name: &str) -> io::Result<bool>;
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_damaged_file_from_the_future_is_waited_for_as_long_as_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let storage = LocalStorage::new(dir.path().to_owned(), System);
        let file = File::create(dir.path().join("x")).unwrap();
        let may_be_sound = |modified: SystemTime, known: Duration| {
            file.set_modified(modified).unwrap();
            may_be_sound(&storage, "x", Instant::now().checked_sub(known).unwrap())
        };
        let (now, hour, second) = (SystemTime::now(), Duration::from_hours(1), Duration::from_secs(1));
        assert!(may_be_sound(now + hour, Duration::ZERO));
        assert!(may_be_sound(now + hour, COMPLETE_AFTER / 2));
        assert!(!may_be_sound(now + hour, COMPLETE_AFTER + second));
        assert!(may_be_sound(now - second, COMPLETE_AFTER * 2));
        assert!(!may_be_sound(now - hour, LOOK_AGAIN_AFTER + second));
    }
}
