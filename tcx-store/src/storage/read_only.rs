//! A directory that is only looked at: nothing is written into it, and looking is no use of it.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::operations::{FileOperations, Stamp, System};
use super::remote::is_remote;
use super::sealed::{LocalFile, Sealed};
use super::{Draft, FileInfo, Held, Storage};
use crate::sys::mmap::Mapped;

/// A directory of a file system, for processes that must leave no trace there.
#[derive(Debug)]
pub(crate) struct ReadOnlyStorage {
    dir: PathBuf,
    /// Whether files are read instead of mapped: another machine may take them away.
    reads: bool,
}

/// So much of a file is read at a time.
const PIECE: usize = 1 << 20;

impl ReadOnlyStorage {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { reads: is_remote(&dir), dir }
    }

    #[cfg(test)]
    pub(crate) fn reading(dir: PathBuf) -> Self {
        Self { reads: true, dir }
    }

    fn file(&self, name: &str) -> io::Result<File> {
        let path = self.dir.join(name);
        // Only the owner of a file may leave its time alone.
        untimed(&path).or_else(|_| System.open(&path))
    }

    /// When a file was last read or written, or a folder changed, as far as the file system records it.
    pub(crate) fn last_used(&self, name: &str) -> Option<SystemTime> {
        let metadata = System.metadata(&self.dir.join(name)).ok()?;
        // Listing a folder is a look at it.
        let read = metadata.accessed().ok().filter(|_| metadata.is_file());
        metadata.modified().ok().max(read)
    }
}

impl Storage for ReadOnlyStorage {
    fn path(&self) -> &Path {
        &self.dir
    }

    fn list(&self) -> io::Result<Vec<String>> {
        System.list(&self.dir)
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        System.stamp(&self.dir).map(Some)
    }

    fn map(&self, name: &str) -> io::Result<Mapped> {
        if !self.reads {
            return Mapped::new(&self.file(name)?);
        }
        Mapped::copied(&LocalFile::of(self.dir.join(name), System, self.file(name)?)?.all()?)
    }

    fn open(&self, name: &str) -> io::Result<Sealed> {
        if !self.reads {
            return self.map(name).map(Sealed::Mapped);
        }
        let file = LocalFile::of(self.dir.join(name), System, self.file(name)?)?;
        Ok(Sealed::Read(Box::new(file)))
    }

    fn read_through(&self, name: &str, part: Range<usize>) -> io::Result<()> {
        let mut file = self.file(name)?;
        file.seek(SeekFrom::Start(part.start as u64))?;
        let (mut part, mut piece) = (file.take(part.len() as u64), vec![0; PIECE]);
        while part.read(&mut piece)? > 0 {}
        Ok(())
    }

    fn make(&self) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn draft(&self) -> io::Result<Box<dyn Draft>> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn info(&self, name: &str) -> io::Result<FileInfo> {
        FileInfo::of(&System.metadata(&self.dir.join(name))?)
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn hold(&self) -> io::Result<Box<dyn Held>> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn map_unnamed(&self, _: &[u8]) -> io::Result<Mapped> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// Opens a plain file without touching the time of its last use.
#[cfg(target_os = "linux")]
fn untimed(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOATIME;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(ErrorKind::InvalidInput.into()) }
}

#[cfg(not(target_os = "linux"))]
fn untimed(_: &Path) -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}
